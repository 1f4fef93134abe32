//! A short report in one HTML file that needs nothing beside it.

use std::fmt::Write as _;

use super::svg::escape;

/// A line of the table: what, how much, and what it means.
pub struct Row {
    /// What.
    pub what: &'static str,
    /// How much.
    pub value: String,
    /// What it means.
    pub meaning: &'static str,
}

/// A part of the report that is text as a terminal shows it.
pub struct Section {
    /// Its heading.
    pub title: String,
    /// The text.
    pub text: String,
}

const STYLE: &str = "\
body{font:16px/1.5 Ubuntu,'Segoe UI',system-ui,sans-serif;color:#1c2026;background:#fcfcfd;\
max-width:1180px;margin:2.5rem auto;padding:0 1.2rem}\
h1{font-weight:400;font-size:1.9rem;margin:0 0 .2rem}h2{font-weight:400;margin:2.2rem 0 .6rem}\
p.lead{font-size:1.1rem}p.verdict{padding:.7rem 1rem;border-left:.35rem solid;background:#f3f4f7}\
p.good{border-color:#2b8a5f}p.bad{border-color:#c83c3c}\
table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.32rem .7rem;\
border-bottom:1px solid #dde0e6;vertical-align:top}td.n{text-align:right;white-space:nowrap;\
font-variant-numeric:tabular-nums}td.m{color:#626a76}svg{width:100%;height:auto}\
pre{background:#f3f4f7;padding:.8rem 1rem;overflow:auto}code{font-size:.92em}";

/// Title, verdict (and whether it is good), a paragraph, the picture as SVG, the table, and what
/// else there is to say.
pub fn html(
    title: &str,
    verdict: (&str, bool),
    lead: &str,
    picture: &str,
    rows: &[Row],
    sections: &[Section],
) -> String {
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<title>{0}</title>\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<style>{STYLE}</style></head>\n\
         <body>\n<h1>{0}</h1>\n<p class=\"lead\">{1}</p>\n<p class=\"verdict {2}\">{3}</p>\n",
        escape(title),
        escape(lead),
        if verdict.1 { "good" } else { "bad" },
        escape(verdict.0),
    );
    text.push_str(picture);
    text.push_str("<h2>Figures</h2>\n<table>\n");
    for Row { what, value, meaning } in rows {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "<tr><th>{}</th><td class=\"n\">{}</td><td class=\"m\">{}</td></tr>",
            escape(what),
            escape(value),
            escape(meaning)
        );
    }
    text.push_str("</table>\n");
    for Section { title, text: body } in sections {
        let (title, body) = (escape(title), escape(body.trim_end()));
        let _ = writeln!(text, "<h2>{title}</h2>\n<pre><code>{body}</code></pre>");
    }
    text.push_str("</body></html>\n");
    text
}

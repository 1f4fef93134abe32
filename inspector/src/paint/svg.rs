//! A scene as SVG: sharp at any size, with a tip on every block.

use std::fmt::Write as _;

use crate::layout::{Anchor, Color, Fill, Scene, Shape};

/// The scene as an `<svg>` element that needs nothing beside it.
pub fn svg(scene: &Scene) -> String {
    let (w, h) = (scene.width, scene.height);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {w} {h}\" role=\"img\" \
         font-family=\"Ubuntu, 'Segoe UI', system-ui, sans-serif\">\n"
    );
    let mut patterns = Vec::new();
    let mut body = String::new();
    for shape in &scene.shapes {
        // Writing to a String cannot fail.
        let _ = write_shape(&mut body, shape, &mut patterns);
    }
    text.push_str("<defs>");
    for (number, fill) in patterns.iter().enumerate() {
        text.push_str(&pattern(number, *fill));
    }
    text.push_str("</defs>\n");
    let _ = writeln!(text, "<rect width=\"{w}\" height=\"{h}\" fill=\"{}\"/>", hex(scene.paper));
    text.push_str(&body);
    text.push_str("</svg>\n");
    text
}

fn write_shape(out: &mut String, shape: &Shape, patterns: &mut Vec<Fill>) -> std::fmt::Result {
    match shape {
        Shape::Rect { rect, fill, tip } => {
            let fill = fill_text(*fill, patterns);
            write!(
                out,
                "<rect x=\"{:.2}\" y=\"{:.2}\" width=\"{:.2}\" height=\"{:.2}\" fill=\"{fill}\"",
                rect.x, rect.y, rect.w, rect.h
            )?;
            if tip.is_empty() {
                out.push_str("/>\n");
            } else {
                writeln!(out, "><title>{}</title></rect>", escape(tip))?;
            }
        }
        Shape::Line { points, width, color, dash } => {
            write!(
                out,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{width}\"",
                list(points),
                hex(*color)
            )?;
            if let Some((on, off)) = dash {
                write!(out, " stroke-dasharray=\"{on} {off}\"")?;
            }
            out.push_str("/>\n");
        }
        Shape::Area { points, color } => {
            writeln!(out, "<polygon points=\"{}\" fill=\"{}\"/>", list(points), hex(*color))?;
        }
        Shape::Text { at, size, anchor, color, text } => {
            let anchor = match anchor {
                Anchor::Start => "start",
                Anchor::Middle => "middle",
                Anchor::End => "end",
            };
            writeln!(
                out,
                "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"{size}\" text-anchor=\"{anchor}\" \
                 fill=\"{}\">{}</text>",
                at.0,
                at.1,
                hex(*color),
                escape(text)
            )?;
        }
    }
    Ok(())
}

fn fill_text(fill: Fill, patterns: &mut Vec<Fill>) -> String {
    if let Fill::Solid(color) = fill {
        return hex(color);
    }
    let at = patterns.iter().position(|known| *known == fill).unwrap_or_else(|| {
        patterns.push(fill);
        patterns.len() - 1
    });
    format!("url(#p{at})")
}

fn pattern(number: usize, fill: Fill) -> String {
    let (back, line, size, width, angle) = match fill {
        Fill::Solid(color) => (color, color, 8.0, 0.0, 0),
        Fill::Hatch { back, line } => (back, line, 4.24, 1.0, 45),
        Fill::Stripes { back, line } => (back, line, 6.36, 3.5, -45),
    };
    format!(
        "<pattern id=\"p{number}\" width=\"{size}\" height=\"{size}\" \
         patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate({angle})\">\
         <rect width=\"{size}\" height=\"{size}\" fill=\"{}\"/>\
         <rect width=\"{width}\" height=\"{size}\" fill=\"{}\"/></pattern>",
        hex(back),
        hex(line)
    )
}

fn list(points: &[(f32, f32)]) -> String {
    let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    points.join(" ")
}

fn hex(Color(r, g, b): Color) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

/// A text for HTML and SVG.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Rect;

    #[test]
    fn texts_and_tips_cannot_break_out_of_the_picture() {
        let scene = Scene {
            width: 10.0,
            height: 10.0,
            paper: Color(255, 255, 255),
            shapes: vec![Shape::Rect {
                rect: Rect::new(0.0, 0.0, 1.0, 1.0),
                fill: Fill::Hatch { back: Color(0, 0, 0), line: Color(1, 2, 3) },
                tip: "<script>\"&".to_owned(),
            }],
        };
        let svg = svg(&scene);
        assert!(svg.contains("&lt;script&gt;&quot;&amp;") && !svg.contains("<script>"), "{svg}");
        assert!(svg.contains("fill=\"url(#p0)\"") && svg.contains("id=\"p0\""), "{svg}");
    }
}

//! Progress on the error stream; silent when nobody looks or when asked to be.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar over `total` steps.
pub fn bar(quiet: bool, what: &'static str, total: u64) -> ProgressBar {
    let target =
        if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr_with_hz(10) };
    let bar = ProgressBar::with_draw_target(Some(total), target).with_message(what);
    let template = "{msg:<10} [{bar:40}] {human_pos}/{human_len}  {per_sec}  {eta} left";
    bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| {
        // The template is a constant; the plain bar is as good.
        ProgressStyle::default_bar()
    }));
    bar
}

/// A spinner that counts bytes, for what has no known end.
pub fn bytes(quiet: bool, what: &'static str) -> ProgressBar {
    let target =
        if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr_with_hz(10) };
    let bar = ProgressBar::with_draw_target(None, target).with_message(what);
    let template = "{spinner} {msg} {binary_bytes}  {binary_bytes_per_sec}";
    bar.set_style(
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner()),
    );
    bar
}

/// A line on the error stream, unless quiet.
pub fn note(quiet: bool, text: &str) {
    if !quiet {
        eprintln!("{text}");
    }
}

//! From shapes to files.

mod font;
mod png;
mod report;
mod svg;

pub use font::Font;
pub use png::png;
pub use report::{Row, Section, html};
pub use svg::svg;

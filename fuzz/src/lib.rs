//! What the fuzz targets share.

pub mod driver;
pub mod ranges;
pub mod readers;

// The tests of terrane-core that are used here name its modules as they do at home.
use terrane_core::{point, range, units};

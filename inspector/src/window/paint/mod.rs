//! From cells and colours to pixels.

mod cells;
mod gpu;
mod look;
mod raster;
mod shot;

pub use cells::{Cell, Cells, Pattern, Surface};
pub use look::{Look, apply};
pub use shot::{Renderer, Shot, render};

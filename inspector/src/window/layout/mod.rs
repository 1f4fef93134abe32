//! From recorded facts to rectangles: where everything goes, in which colour. Draws nothing.

mod address_time;
mod coloring;
mod flame;
mod heap;
mod pages;
mod sums;
mod time;

pub use address_time::{AddressTime, Order};
pub use coloring::{Classes, Coloring, Focus};
pub use flame::{Box as FlameBox, Flame};
pub use heap::{Camera, Grid, HeapScene, scene as heap_scene};
pub use pages::{Ticks, ticks};
pub use sums::Sums;
pub use time::{Axis, Span, TimeScale};

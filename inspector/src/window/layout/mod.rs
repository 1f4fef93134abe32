//! From recorded facts to rectangles: where everything goes, in which colour. Draws nothing.

mod address_time;
mod coloring;
mod density;
mod flame;
mod heap;
mod pages;
mod painted;
mod sums;
mod time;

pub use address_time::{AddressTime, Entry, Order};
pub use coloring::{Classes, Coloring, Focus};
pub use density::{Layer, Sight as ChartSight};
pub use flame::{Box as FlameBox, Flame};
pub use heap::{Camera, Grid, HeapScene, scene as heap_scene};
pub use pages::{Ticks, ticks};
pub use painted::Painted;
use sums::Sums;
pub use time::{Axis, Span, TimeScale};

//! Colours. Sizes go from light to dark, so they can be told apart without seeing hues; what is
//! not a size has a pattern.

use super::scene::{Color, Fill};

pub struct Theme {
    pub paper: Color,
    pub panel: Color,
    pub ink: Color,
    pub faint: Color,
    pub grid: Color,
    /// Small blocks to large ones.
    pub sizes: [Color; 6],
    pub free: Fill,
    pub pending: Fill,
    pub reserved: Color,
    pub active: Color,
    pub requested: Color,
    pub mark: Color,
}

impl Theme {
    pub const fn light() -> Self {
        Self {
            paper: Color(252, 252, 253),
            panel: Color(243, 244, 247),
            ink: Color(28, 32, 38),
            faint: Color(98, 106, 118),
            grid: Color(221, 224, 230),
            sizes: [
                Color(246, 216, 110),
                Color(168, 210, 142),
                Color(92, 184, 164),
                Color(52, 143, 178),
                Color(56, 98, 160),
                Color(45, 52, 112),
            ],
            free: Fill::Hatch { back: Color(243, 244, 247), line: Color(196, 202, 212) },
            pending: Fill::Stripes { back: Color(255, 226, 190), line: Color(224, 120, 30) },
            reserved: Color(120, 128, 140),
            active: Color(52, 143, 178),
            requested: Color(45, 52, 112),
            mark: Color(200, 60, 60),
        }
    }
}

//! What a picture of a heap is made with: the class of every part, and sums over any stretch.

use std::sync::Arc;

use super::coloring::{Classes, Coloring, Focus};
use super::sums::Sums;
use crate::window::model::{Moment, Recording};

/// A moment whose parts have been sorted into classes.
pub struct Painted {
    /// Of which recording.
    pub recording: Arc<Recording>,
    /// The moment.
    pub moment: Arc<Moment>,
    /// What colour stands for, and what stands out.
    pub by: (Coloring, Option<Focus>),
    /// The classes.
    pub classes: Classes,
    /// The class of each part.
    pub of_parts: Vec<u8>,
    /// Bytes by class in any stretch.
    pub sums: Sums,
}

impl Painted {
    /// Sorts the parts of a moment into classes.
    pub fn of(
        recording: &Arc<Recording>,
        moment: &Arc<Moment>,
        by: (Coloring, Option<Focus>),
    ) -> Self {
        let classes = Classes::of(recording, moment, by.0, by.1);
        let of_parts = classes.of_parts(recording, moment);
        let sums = Sums::of(&moment.parts, moment.extent, &of_parts);
        let (recording, moment) = (Arc::clone(recording), Arc::clone(moment));
        Self { recording, moment, by, classes, of_parts, sums }
    }

    /// The heap of a recording after `at` events.
    pub fn at(recording: &Arc<Recording>, at: u32, by: (Coloring, Option<Focus>)) -> Self {
        let moment = Arc::new(Moment::of(recording, at));
        Self::of(recording, &moment, by)
    }
}

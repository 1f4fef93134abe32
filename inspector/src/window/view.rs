//! The views there are, and the arrangements of them that are offered.

use egui_tiles::{Container, Linear, LinearDir, TileId, Tiles, Tree};
use serde::{Deserialize, Serialize};

/// A view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum View {
    /// The heap by address.
    HeapMap,
    /// Blocks by address and time.
    AddressTime,
    /// Bytes over time.
    Timeline,
    /// One lane for each stream.
    Streams,
    /// Moves of live blocks.
    Compaction,
    /// Blocks at the moment.
    Allocations,
    /// Segments at the moment.
    Segments,
    /// Places in the program.
    Sites,
    /// Events in order.
    Events,
    /// Call stacks of live memory.
    Flame,
    /// Two moments beside each other.
    Diff,
    /// What grows.
    Leaks,
    /// Why a request failed.
    Explain,
    /// Other allocators, replayed.
    Whatif,
    /// Limits and what is left.
    Budget,
    /// What is selected.
    Details,
}

impl View {
    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::HeapMap,
        Self::AddressTime,
        Self::Timeline,
        Self::Streams,
        Self::Compaction,
        Self::Allocations,
        Self::Segments,
        Self::Sites,
        Self::Events,
        Self::Flame,
        Self::Diff,
        Self::Leaks,
        Self::Explain,
        Self::Whatif,
        Self::Budget,
        Self::Details,
    ];

    /// As on its tab.
    pub const fn title(self) -> &'static str {
        match self {
            Self::HeapMap => "Heap map",
            Self::AddressTime => "Address × time",
            Self::Timeline => "Timeline",
            Self::Streams => "Streams",
            Self::Compaction => "Compaction",
            Self::Allocations => "Allocations",
            Self::Segments => "Segments",
            Self::Sites => "Sites",
            Self::Events => "Events",
            Self::Flame => "Call stacks",
            Self::Diff => "Difference",
            Self::Leaks => "Leaks",
            Self::Explain => "Explain",
            Self::Whatif => "What if",
            Self::Budget => "Budget",
            Self::Details => "Details",
        }
    }

    /// What it answers.
    pub const fn tip(self) -> &'static str {
        match self {
            Self::HeapMap => "where everything lies at this moment",
            Self::AddressTime => "every block's place and life",
            Self::Timeline => "requested, active and reserved bytes over the run",
            Self::Streams => "what each stream holds, and what waits",
            Self::Compaction => "which blocks move where, and why others do not",
            Self::Allocations => "the blocks as a table",
            Self::Segments => "the segments as a table",
            Self::Sites => "which lines of the program hold the memory",
            Self::Events => "what happened, in order",
            Self::Flame => "the memory by call stack",
            Self::Diff => "what changed between two moments or files",
            Self::Leaks => "what grows from step to step",
            Self::Explain => "why memory ran out, and what would help",
            Self::Whatif => "how other allocators would have done",
            Self::Budget => "limits, headroom and what is not tracked",
            Self::Details => "all about what is selected",
        }
    }

    /// As on the command line.
    pub fn slug(self) -> String {
        use clap::ValueEnum as _;
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// An arrangement of views.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Arrangement {
    /// The map above the timeline, tables beside.
    Overview,
    /// What grows, and who holds it.
    LeakHunt,
    /// Why memory ran out.
    OutOfMemory,
    /// Moves.
    Compaction,
    /// Lanes.
    Streams,
}

impl Arrangement {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Overview, Self::LeakHunt, Self::OutOfMemory, Self::Compaction, Self::Streams];

    /// As in the menu.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::LeakHunt => "Leak hunt",
            Self::OutOfMemory => "Out of memory",
            Self::Compaction => "Compaction",
            Self::Streams => "Streams",
        }
    }

    /// The views, tabs by tabs: left column (above, below), right column (above, below).
    const fn views(self) -> [&'static [View]; 4] {
        use View as V;
        match self {
            Self::Overview => [
                &[V::HeapMap, V::AddressTime, V::Compaction],
                &[V::Timeline, V::Streams, V::Events],
                &[V::Sites, V::Allocations, V::Segments, V::Flame],
                &[V::Details, V::Budget],
            ],
            Self::LeakHunt => [
                &[V::Leaks, V::Diff],
                &[V::Timeline, V::AddressTime],
                &[V::Sites, V::Flame, V::Allocations],
                &[V::Details, V::HeapMap],
            ],
            Self::OutOfMemory => [
                &[V::HeapMap, V::AddressTime],
                &[V::Timeline, V::Events],
                &[V::Explain, V::Whatif, V::Budget],
                &[V::Details, V::Sites, V::Segments],
            ],
            Self::Compaction => [
                &[V::Compaction, V::HeapMap],
                &[V::AddressTime, V::Timeline],
                &[V::Segments, V::Allocations],
                &[V::Details, V::Budget],
            ],
            Self::Streams => [
                &[V::Streams],
                &[V::AddressTime, V::Timeline],
                &[V::Events, V::Allocations],
                &[V::Details],
            ],
        }
    }

    /// The arrangement as tiles.
    pub fn tree(self) -> Tree<View> {
        let mut tiles = Tiles::default();
        let [a, b, c, d] = self.views().map(|views| {
            let panes: Vec<TileId> = views.iter().map(|view| tiles.insert_pane(*view)).collect();
            tiles.insert_tab_tile(panes)
        });
        let mut split = |dir, pair, share| {
            let linear = Linear::new_binary(dir, pair, share);
            tiles.insert_container(Container::Linear(linear))
        };
        let left = split(LinearDir::Vertical, [a, b], 0.64);
        let right = split(LinearDir::Vertical, [c, d], 0.55);
        let root = split(LinearDir::Horizontal, [left, right], 0.64);
        Tree::new(egui::Id::unique("dock"), root, tiles)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_view_is_in_some_arrangement_and_has_a_name_for_the_command_line() {
        for view in View::ALL {
            let used = Arrangement::ALL.iter().any(|a| a.views().iter().any(|v| v.contains(&view)));
            assert!(used, "{view:?}");
            assert!(!view.slug().is_empty());
        }
        assert_eq!(View::HeapMap.slug(), "heap-map");
        assert_eq!(View::Whatif.slug(), "whatif");
    }
}

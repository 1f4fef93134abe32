//! The end of an allocator.

use std::time::Duration;

use crate::point::{Points, SyncPoint};

use super::Inner;

impl Drop for Inner {
    /// Waits for the work that uses the memory, then gives everything back.
    fn drop(&mut self) {
        // A lost device reaches everything or answers at once; ten seconds bound a hung one.
        self.close_checks(Duration::from_secs(10));
        let _ = self.settle(Duration::from_secs(10));
        let mut state = self.lock();
        let live: Points = state
            .blocks
            .iter()
            .flat_map(|(_, block)| state.pool(block).uses(block.spot).iter())
            .filter(|point| point.value != SyncPoint::NEVER)
            .chain(state.moves.awaited_points())
            .collect();
        let copy_streams: Vec<_> = state.moves.streams.iter().flatten().copied().collect();
        let views: Vec<_> = state.views.values().copied().collect();
        let spaces: Vec<_> = state
            .pools
            .iter()
            .flat_map(|pool| pool.segments().map(|(_, segment)| segment.plain.space))
            .collect();
        let paged: Vec<_> = state.pools.iter_mut().filter_map(|pool| pool.paged.take()).collect();
        drop(state);
        let _ = self.wait_all(&live, Duration::from_secs(10), 0);
        for view in views {
            let _ = self.device.destroy_view(view);
        }
        for stream in copy_streams {
            let _ = self.device.retire_stream(stream);
        }
        for space in spaces {
            let _ = self.device.release_plain(space);
        }
        for mut paged in paged {
            self.tear_down(&mut paged);
        }
    }
}

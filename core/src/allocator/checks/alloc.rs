//! A request while something is checked.

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use crate::device::{Place, Region};
use crate::error::Error;
use crate::id::Key;
use crate::point::{Points, SyncPoint};
use crate::request::Request;
use crate::units::Align;

use super::super::Inner;
use super::super::handle::Allocation;
use super::super::ladder::is_shortage;
use super::NEW_WORD;
use super::state::Guarded;

/// How long a request that would run short waits for freed blocks to be compared.
const PATIENCE: Duration = Duration::from_secs(2);

impl Inner {
    /// Serves a request in guard mode or under checks.
    #[cold]
    pub(in crate::allocator) fn alloc_checked(
        self: &Arc<Self>,
        request: &Request<'_>,
        site: &'static Location<'static>,
    ) -> Result<Allocation, Error> {
        let mut request = *request;
        if self.config.guard {
            request = request.dedicated(true);
        }
        if self.config.checks.is_off() || self.device.is_capturing() {
            // Graphs replay with the same memory, whose margins nobody would fill again.
            return self.alloc_apart(&request, request.bytes, site);
        }
        if request.bytes == 0 {
            return Err(Error::ZeroSize);
        }
        let align = Align::new(request.align).ok_or(Error::BadAlign { align: request.align })?;
        let align = align.max(self.caps().binding_align);
        let guarded = Guarded::around(request.bytes, align.get(), &self.config.checks);
        self.poll_checks()?;
        // Cleared below, and no more than the user sees.
        let bare = request.zeroed(false);
        let mut made = self.alloc_apart(&bare, guarded.total(), site);
        if made.as_ref().is_err_and(|error| is_shortage(*error)) && self.empty_quarantine()? {
            made = self.alloc_apart(&bare, guarded.total(), site);
        }
        let made = made?;
        let key = made.handle.key;
        self.lock().checking.guarded.insert(key.index(), guarded);
        match self.fill_new(&made, &request, &guarded) {
            Ok(()) => Ok(Allocation { bytes: guarded.bytes, ..made }),
            Err(error) => {
                // The caller never sees the handle: nothing else can have used or freed it.
                self.lock().checking.forget(key);
                let _ = self.free_now(made.handle, &Points::NONE);
                Err(error)
            }
        }
    }

    /// A block of `bytes` in all for a request, by the slow way.
    fn alloc_apart(
        self: &Arc<Self>,
        request: &Request<'_>,
        bytes: u64,
        site: &'static Location<'static>,
    ) -> Result<Allocation, Error> {
        let sized = Request { bytes, ..*request };
        let graph = self.graph_of(request.stream)?;
        let mut asked = self.ask(&sized, site, graph)?;
        // What was asked for counts as requested, the margins only as allocated.
        asked.request = request;
        if self.config.guard {
            self.release_freed()?;
        }
        let mut state = self.lock();
        state.check_tag_limit(request.tag, asked.layout.bytes)?;
        self.serve(state, &asked, None)
    }

    /// Has every freed block compared and released that can be within the patience. Tells whether
    /// there were any.
    fn empty_quarantine(&self) -> Result<bool, Error> {
        let before = self.lock().frees;
        self.finish_checks(PATIENCE)?;
        Ok(self.lock().frees != before)
    }

    /// Fills a new block's margins and, as the request and the policy have it, its bytes.
    fn fill_new(
        &self,
        made: &Allocation,
        request: &Request<'_>,
        guarded: &Guarded,
    ) -> Result<(), Error> {
        let key = made.handle.key;
        let (at, waits) = self.hold_new(key, request.stream)?;
        let filled = self.submit_fills(key, request, guarded, (at.place, &waits));
        let point = match &filled {
            Ok(point) => *point,
            // One of them may be under way all the same.
            Err(_) => self.device.mark(request.stream).ok(),
        };
        self.unhold(&[key], point);
        if filled.is_ok() {
            // Known to be a use by now, which a comparison waits for.
            self.lock().checking.arm(key);
        }
        filled.map(drop)
    }

    fn submit_fills(
        &self,
        key: Key,
        request: &Request<'_>,
        guarded: &Guarded,
        (place, waits): (Place, &Points),
    ) -> Result<Option<SyncPoint>, Error> {
        let stream = request.stream;
        self.device.wait_on_stream(stream, waits.as_slice())?;
        let word = if request.zeroed { Some(0) } else { None };
        let word = word.or(self.config.checks.poison.then_some(NEW_WORD));
        let mut last = None;
        if let Some(word) = word {
            last = Some(self.device.fill(stream, place, guarded.bytes, word)?);
        }
        let margins = guarded.margins(key, place);
        let regions: Vec<Region> = margins.into_iter().map(|(_, region)| region).collect();
        if !regions.is_empty() {
            last = Some(self.compute()?.fill_pattern(stream, &regions)?);
        }
        Ok(last)
    }
}

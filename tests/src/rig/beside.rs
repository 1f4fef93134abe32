//! What a program does beside Terrane: streams, captures and memory of its own.

use terrane_core::MemoryKind;
use terrane_core::device::{Access, Binding, Device, Place, Plain, PlainSpec, StreamId};

use super::{Rig, lacking};
use crate::busy::{Busy, Way};
use crate::clause::{Need, Stop};
use crate::native::{Capture, Imported, OfModel};
use crate::probe::Flaw;

impl Rig {
    /// A wrapped stream of another API, retired at the end: [`theirs`](Self::theirs) puts work into
    /// it that Terrane does not submit.
    ///
    /// # Errors
    /// Skips where the suite has none.
    pub fn wrapped_stream(&self) -> Result<StreamId, Stop> {
        let stream = match (&self.sim, self.way.foreign()) {
            (Some(sim), _) => sim.create_foreign_stream(),
            (None, Some(foreign)) => foreign.wrap()?,
            (None, None) => return Err(lacking(Need::Wrapped)),
        };
        self.device.adopt_stream();
        self.made().streams.push(stream);
        Ok(stream)
    }

    /// Work of the program's own on a wrapped stream that uses `ranges` and is done when the test
    /// says so. Its point is a mark made behind it.
    ///
    /// # Errors
    /// Skips where the suite has no such streams.
    pub fn theirs(&self, stream: StreamId, ranges: &[(Place, u64)]) -> Result<Busy, Stop> {
        let bind = |&(place, bytes): &_| Binding { place, bytes, access: Access::Write };
        let bindings: Vec<Binding> = ranges.iter().map(bind).collect();
        self.way.submit_theirs(&*self.device, stream, &bindings)
    }

    /// Begins to capture a stream into a graph.
    ///
    /// # Errors
    /// Skips where the suite can not; what the device says.
    pub(crate) fn capture(&self, stream: StreamId) -> Result<Capture, Stop> {
        if let Some(sim) = &self.sim {
            return Ok(Capture::of_model(sim, stream)?);
        }
        let kept = match &self.way {
            Way::Kept(keeper) => Capture::kept(keeper, stream)?,
            _ => None,
        };
        kept.ok_or_else(|| lacking(Need::Capture))
    }

    /// Opens what an exportable plain segment exports, as somebody else does.
    ///
    /// # Errors
    /// Skips where the suite can not; what the device says.
    pub(crate) fn import(&self, plain: Plain) -> Result<Box<dyn Imported>, Stop> {
        let space = match self.plan.flaw {
            Flaw::ExportsAnother => self.exportable(plain.bytes)?.space,
            _ => plain.space,
        };
        match (&self.sim, self.way.imports()) {
            (Some(sim), _) => Ok(OfModel::open(sim, space)?),
            (None, Some(imports)) => Ok(imports.import(space, plain.bytes)?),
            (None, None) => Err(lacking(Need::Import)),
        }
    }

    /// Device memory that can be exported, given back at the end.
    ///
    /// # Errors
    /// What the device says.
    pub fn exportable(&self, bytes: u64) -> Result<Plain, Stop> {
        let class = self.class(MemoryKind::Device)?;
        let spec = PlainSpec { exportable: true, ..self.spec(class, bytes) };
        let plain = self.device.create_plain(&spec)?;
        self.made().plains.push(plain.space);
        Ok(plain)
    }
}

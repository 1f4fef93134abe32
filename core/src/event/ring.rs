//! A bounded queue of events that never blocks the allocating thread.

use super::Event;

/// What happens when the ring is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecorderMode {
    /// Nothing is kept.
    Off,
    /// New events are dropped and counted until a reader makes room: the reader loses the end,
    /// knows how much, and asks for full state.
    Stream {
        /// Events kept, rounded up to a power of two.
        capacity: u32,
    },
    /// Old events are overwritten: the last ones are there when something goes wrong.
    Flight {
        /// Events kept, rounded up to a power of two.
        capacity: u32,
    },
}

impl Default for RecorderMode {
    /// The flight recorder over 4,096 events (256 KiB).
    fn default() -> Self {
        Self::Flight { capacity: 4096 }
    }
}

/// The queue. Its owner guards it by the lock that also guards what the events tell of.
///
/// The events kept are those at positions `tail..head`, the last `slots.len()` of them where there
/// are more: the flight recorder overwrites without looking at the tail.
#[derive(Debug)]
pub struct Ring {
    slots: Vec<Event>,
    mode: RecorderMode,
    head: u64,
    tail: u64,
    /// Events ever offered; each gets the next number, kept or not.
    sequence: u64,
    /// Events before the tail that no reader will see.
    dropped: u64,
}

/// What one call of [`Ring::drain`] tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Events written to the caller's buffer.
    pub events: usize,
    /// Events lost since the ring was made.
    pub dropped: u64,
    /// Whether more are waiting.
    pub more: bool,
}

impl Ring {
    /// A ring in the given mode.
    pub fn new(mode: RecorderMode) -> Self {
        let capacity = match mode {
            RecorderMode::Off => 0,
            RecorderMode::Stream { capacity } | RecorderMode::Flight { capacity } => {
                capacity.clamp(16, 1 << 26).next_power_of_two() as usize
            }
        };
        let slots = vec![Event::default(); capacity];
        Self { slots, mode, head: 0, tail: 0, sequence: 0, dropped: 0 }
    }

    /// The same, with events numbered from after `sequence`.
    #[must_use]
    pub fn starting_at(self, sequence: u64) -> Self {
        Self { sequence, ..self }
    }

    /// The mode.
    pub const fn mode(&self) -> RecorderMode {
        self.mode
    }

    /// Number of the last event, kept or not.
    pub const fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Events lost since the ring was made.
    pub const fn dropped(&self) -> u64 {
        self.dropped + (self.first() - self.tail)
    }

    /// Position of the oldest event that is kept.
    const fn first(&self) -> u64 {
        let oldest = self.head.saturating_sub(self.slots.len() as u64);
        if oldest > self.tail { oldest } else { self.tail }
    }

    /// Switches to another mode; events kept so far are given up, numbers go on.
    pub fn set_mode(&mut self, mode: RecorderMode) {
        let (sequence, dropped) = (self.sequence, self.dropped());
        *self = Self { sequence, dropped, ..Self::new(mode) };
    }

    /// Numbers an event and keeps it as the mode says. Never fails, never allocates.
    #[inline(always)]
    pub fn push(&mut self, mut event: Event) {
        // Over the end of 2^64 they begin anew.
        self.sequence = self.sequence.wrapping_add(1);
        event.sequence = self.sequence;
        let len = self.slots.len();
        if let Some(slot) = self.slots.get_mut(self.head as usize & len.wrapping_sub(1)) {
            if matches!(self.mode, RecorderMode::Stream { .. })
                && self.head - self.tail >= len as u64
            {
                self.dropped += 1;
                return;
            }
            *slot = event;
            self.head += 1;
        }
    }

    /// Moves the oldest events to `into`, at most `most` of them.
    pub fn drain(&mut self, into: &mut Vec<Event>, most: usize) -> Drained {
        self.dropped = self.dropped();
        self.tail = self.first();
        let events = most.min((self.head - self.tail) as usize);
        into.extend(self.peek().take(events));
        self.tail += events as u64;
        let more = self.tail < self.head;
        if !more {
            // What comes next goes where the last events were: a ring of megabytes that is emptied
            // often stays in the cache, and each event costs the one who tells it half as much.
            (self.head, self.tail) = (0, 0);
        }
        Drained { events, dropped: self.dropped, more }
    }

    /// The events kept, oldest first, left where they are.
    pub fn peek(&self) -> impl Iterator<Item = Event> + '_ {
        let mask = self.slots.len().wrapping_sub(1);
        (self.first()..self.head).map(move |at| self.slots[at as usize & mask])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EventKind;

    fn numbers(ring: &mut Ring) -> Vec<u64> {
        let mut events = Vec::new();
        ring.drain(&mut events, usize::MAX);
        events.iter().map(|event| event.sequence).collect()
    }

    #[test]
    fn the_flight_recorder_keeps_the_last_events() {
        let mut ring = Ring::new(RecorderMode::Flight { capacity: 16 });
        for _ in 0..20 {
            ring.push(Event::new(EventKind::Alloc));
        }
        assert_eq!(numbers(&mut ring), (5..=20).collect::<Vec<_>>());
        assert_eq!(ring.dropped(), 4);
    }

    #[test]
    fn a_full_stream_drops_new_events_and_goes_on_after_a_drain() {
        let mut ring = Ring::new(RecorderMode::Stream { capacity: 16 });
        for _ in 0..20 {
            ring.push(Event::new(EventKind::Alloc));
        }
        let mut events = Vec::new();
        let drained = ring.drain(&mut events, 4);
        assert_eq!(drained, Drained { events: 4, dropped: 4, more: true });
        ring.push(Event::new(EventKind::Alloc));
        let mut expected: Vec<u64> = (5..=16).collect();
        expected.push(21);
        assert_eq!(numbers(&mut ring), expected);
    }

    #[test]
    fn what_comes_after_a_ring_was_emptied_lies_where_it_began() {
        for mode in [RecorderMode::Stream { capacity: 64 }, RecorderMode::Flight { capacity: 64 }] {
            let mut ring = Ring::new(mode);
            for round in 0..20_u64 {
                (0..5).for_each(|_| ring.push(Event::new(EventKind::Alloc)));
                let first = round * 5 + 1;
                assert_eq!(ring.slots[0].sequence, first, "{mode:?}");
                assert_eq!(numbers(&mut ring), (first..first + 5).collect::<Vec<_>>());
            }
            assert_eq!(ring.dropped(), 0);
        }
    }

    #[test]
    fn a_ring_that_is_off_still_counts() {
        let mut ring = Ring::new(RecorderMode::Off);
        ring.push(Event::new(EventKind::Alloc));
        assert_eq!((ring.sequence(), numbers(&mut ring)), (1, vec![]));
    }
}

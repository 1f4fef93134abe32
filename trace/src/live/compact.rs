//! What somebody who looks on asks a pass of moves for: a goal and limits, as a line.

use std::time::Duration;
use terrane_core::compact::{Goal, Limits, Mode};
use terrane_core::{Allocator, Error, PassReport};

/// What the moves are to reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Aim {
    /// A free range of so many bytes.
    Room(u64),
    /// Free segments of so many bytes together, which are given back; `u64::MAX` for all.
    Release(u64),
    /// At most so many per cent of the free bytes outside the largest free range.
    Fragmentation(u8),
}

impl Aim {
    /// In words.
    #[must_use]
    pub fn text(self) -> String {
        match self {
            Self::Room(bytes) => format!("room:{bytes}"),
            Self::Release(u64::MAX) => "release:all".to_owned(),
            Self::Release(bytes) => format!("release:{bytes}"),
            Self::Fragmentation(percent) => format!("fragmentation:{percent}"),
        }
    }
}

impl std::str::FromStr for Aim {
    type Err = String;

    /// Reads `room:BYTES`, `release:BYTES`, `release:all` or `fragmentation:PERCENT`.
    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || {
            format!("`{text}`: say room:BYTES, release:BYTES, release:all or fragmentation:PERCENT")
        };
        let (word, number) = text.split_once(':').ok_or_else(bad)?;
        let bytes = || number.parse().ok().filter(|bytes| *bytes > 0).ok_or_else(bad);
        match word {
            "room" => Ok(Self::Room(bytes()?)),
            "release" if number == "all" => Ok(Self::Release(u64::MAX)),
            "release" => Ok(Self::Release(bytes()?)),
            "fragmentation" => {
                let percent = number.parse().ok().filter(|percent| *percent <= 100);
                Ok(Self::Fragmentation(percent.ok_or_else(bad)?))
            }
            _ => Err(bad()),
        }
    }
}

/// A pass of moves that is asked for. Its time is always bounded. A pass whose bytes or blocks are
/// limited makes nothing worse before it gets better, so it may reach less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Compact {
    /// What it is to reach.
    pub aim: Aim,
    /// The most bytes moved; `u64::MAX` for no limit.
    pub bytes_max: u64,
    /// The most blocks moved; `u64::MAX` for no limit.
    pub moves_max: u64,
    /// The longest that moves are begun, milliseconds: at most
    /// [`TIME_MAX_MS`](Self::TIME_MAX_MS).
    pub time_max_ms: u64,
    /// Beside other work, a few copies at a time, rather than as fast as the device can.
    pub background: bool,
}

impl Default for Compact {
    fn default() -> Self {
        Self {
            aim: Aim::Fragmentation(5),
            bytes_max: u64::MAX,
            moves_max: u64::MAX,
            time_max_ms: 2_000,
            background: false,
        }
    }
}

impl Compact {
    /// Ten minutes.
    pub const TIME_MAX_MS: u64 = 600_000;

    /// What the pass is to reach, as the allocator takes it.
    #[must_use]
    pub fn goal(&self) -> Goal {
        match self.aim {
            Aim::Room(bytes) => Goal::Contiguous { bytes, align: 1 },
            Aim::Release(bytes) => Goal::Release { bytes },
            Aim::Fragmentation(percent) => {
                Goal::Fragmentation { below: f64::from(percent) / 100.0 }
            }
        }
    }

    /// What it may spend.
    #[must_use]
    pub fn limits(&self) -> Limits {
        let time = Duration::from_millis(self.time_max_ms.min(Self::TIME_MAX_MS));
        let ticks = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let mode = if self.background { Mode::Background } else { Mode::Full };
        Limits::NONE.bytes(self.bytes_max).moves(self.moves_max).ticks(ticks).mode(mode)
    }

    /// Makes the pass, and waits for its copies.
    ///
    /// # Errors
    /// As [`Allocator::compact`].
    pub fn run(&self, alloc: &Allocator) -> Result<PassReport, Error> {
        alloc.compact(self.goal(), self.limits())
    }

    /// The words of a line that asks for it.
    pub(super) fn words(&self) -> String {
        let Self { aim, bytes_max, moves_max, time_max_ms, background } = self;
        let mode = if *background { "background" } else { "full" };
        format!("{} {bytes_max} {moves_max} {time_max_ms} {mode}", aim.text())
    }

    /// Reads [`words`](Self::words); what is out of bounds is nothing.
    pub(super) fn of_words(words: &[&str]) -> Option<Self> {
        let [aim, bytes, moves, time, mode] = words else { return None };
        let number = |text: &str| text.parse().ok().filter(|number: &u64| *number > 0);
        let background = match *mode {
            "full" => false,
            "background" => true,
            _ => return None,
        };
        Some(Self {
            aim: aim.parse().ok()?,
            bytes_max: number(bytes)?,
            moves_max: number(moves)?,
            time_max_ms: number(time).filter(|time| *time <= Self::TIME_MAX_MS)?,
            background,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_comes_back_from_its_words_and_nothing_else_does() {
        let aims = [
            Aim::Room(1),
            Aim::Room(u64::MAX),
            Aim::Release(u64::MAX),
            Aim::Release(7),
            Aim::Fragmentation(0),
            Aim::Fragmentation(100),
        ];
        for aim in aims {
            for background in [false, true] {
                let all = Compact { aim, background, ..Compact::default() };
                let most = Compact {
                    bytes_max: u64::MAX,
                    moves_max: u64::MAX,
                    time_max_ms: Compact::TIME_MAX_MS,
                    ..all
                };
                for asked in [all, most] {
                    let words = asked.words();
                    let split: Vec<&str> = words.split(' ').collect();
                    assert_eq!(Compact::of_words(&split), Some(asked), "{words}");
                }
            }
        }
        for bad in [
            "fragmentation:101 1 1 1 full",
            "room:0 1 1 1 full",
            "room:1 0 1 1 full",
            "room:1 1 0 1 full",
            "room:1 1 1 0 full",
            "room:1 1 1 600001 full",
            "room:1 1 1 1 fast",
            "room:1 1 1 1",
            "room:1 1 1 1 full more",
            "room:-1 1 1 1 full",
            "room:18446744073709551616 1 1 1 full",
        ] {
            let split: Vec<&str> = bad.split(' ').collect();
            assert_eq!(Compact::of_words(&split), None, "{bad}");
        }
    }

    #[test]
    fn limits_are_those_that_were_asked_for() {
        let asked =
            Compact { moves_max: 7, time_max_ms: 3, background: true, ..Compact::default() };
        let limits = asked.limits();
        assert_eq!((limits.moves, limits.bytes, limits.ticks), (7, u64::MAX, 3_000_000));
        assert_eq!(
            (limits.mode, asked.goal()),
            (Mode::Background, Goal::Fragmentation { below: 0.05 })
        );
    }
}

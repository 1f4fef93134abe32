//! Checks for mistakes of the program's own: writes outside of a block, and after its free.
//!
//! Everything here is on the slow way, taken only while [`Checks`] asks for something. A block
//! then has *margins*: bytes of a pattern before and behind what its user sees, written by the
//! device's built-in kernels when it is handed out and compared by them when it is freed. Its
//! memory goes back to the pool only after that, and with *quarantine* only some time later, when
//! the pattern that a free writes over the whole block has been compared too.
//!
//! The way of a checked block: handed out (filled) -> freed (held by the check, compared on a
//! stream of the checks' own) -> kept back -> compared once more -> released as any other block.

mod alloc;
mod damage;
mod free;
mod settle;
mod state;

pub use damage::{Damage, DamageKind, Suspect};
pub(crate) use state::Checking;

use crate::device::Caps;
use crate::error::{DeviceError, Error, Feature};
use crate::units::MIB;

/// The environment variable that switches checks on without a change of the program.
const VARIABLE: &str = "TERRANE_CHECKS";

/// Bytes of a margin, and of the quarantine, where no number is said.
const MARGIN: u64 = 256;
const QUARANTINE: u64 = 64 * MIB;

/// What a new block is filled with: as a 32-bit float it is not a number.
pub(crate) const NEW_WORD: u32 = 0xFFF7_C0DE;
/// What a freed block is filled with, where no pattern is to be compared.
pub(crate) const FREED_WORD: u32 = 0xFFFD_DEAD;

/// Checks for mistakes of the program's own. They need a device with
/// [`Compute`](crate::device::Compute), and make every request and free slow: kernels run at both,
/// and freed memory is there again only when it was compared.
///
/// What they find is a [`Damage`]: told to [`Allocator::on_damage`](crate::Allocator::on_damage),
/// kept for [`Allocator::damage`](crate::Allocator::damage), and recorded as
/// [`EventKind::Damage`](crate::event::EventKind::Damage).
///
/// The environment variable `TERRANE_CHECKS` switches them on for every allocator whose
/// configuration comes from [`Config::for_device`](crate::Config::for_device): a list of
/// `pass-through`, `margins`, `poison` and `quarantine`, or `all`, separated by commas;
/// `margins=1024` and `quarantine=256M` say how many bytes. Each finding is then also written to
/// standard error. Blocks used by captured graphs are not checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checks {
    /// Bytes of guard pattern behind each block; as many before it, rounded up to its alignment.
    /// 0, the default, for none. Blocks with margins do not [`grow`](crate::Allocator::grow) past
    /// their end.
    pub margin: u64,
    /// Whether blocks are filled when they are handed out, unless they are to be zero, and when
    /// they are freed: with words that are not a number as floats, `0xFFF7C0DE` and `0xFFFDDEAD`.
    pub poison: bool,
    /// Bytes of freed blocks that are kept back, and compared when they leave. 0, the default, for
    /// none. Blocks leave early when a request would run short.
    pub quarantine: u64,
    /// Whether findings are written to standard error too.
    pub to_stderr: bool,
    /// The environment variable said something that is no check.
    unknown: bool,
    /// The environment variable asks for [`Config::guard`](crate::Config::guard).
    pass_through: bool,
}

impl Checks {
    /// No checks.
    pub const NONE: Self = Self {
        margin: 0,
        poison: false,
        quarantine: 0,
        to_stderr: false,
        unknown: false,
        pass_through: false,
    };

    /// Margins, poison and quarantine, with the usual numbers.
    pub const ALL: Self =
        Self { margin: MARGIN, poison: true, quarantine: QUARANTINE, ..Self::NONE };

    /// With margins of so many bytes.
    #[must_use]
    pub const fn margin(self, bytes: u64) -> Self {
        Self { margin: bytes, ..self }
    }

    /// With blocks filled at both ends of their life, or not.
    #[must_use]
    pub const fn poison(self, poison: bool) -> Self {
        Self { poison, ..self }
    }

    /// With so many bytes of freed blocks kept back.
    #[must_use]
    pub const fn quarantine(self, bytes: u64) -> Self {
        Self { quarantine: bytes, ..self }
    }

    /// What the environment variable asks for.
    pub(crate) fn from_environment() -> Self {
        // A text that is not Unicode is no list of checks either.
        std::env::var_os(VARIABLE).map_or(Self::NONE, |text| Self::parse(&text.to_string_lossy()))
    }

    fn parse(text: &str) -> Self {
        let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        words.fold(Self { to_stderr: true, ..Self::NONE }, Self::with_word)
    }

    fn with_word(mut self, word: &str) -> Self {
        let (name, number) = match word.split_once('=') {
            Some((name, number)) => (name, Some(bytes_of(number))),
            None => (word, None),
        };
        match (name, number) {
            ("margins", None) => self.margin = MARGIN,
            ("margins", Some(Some(bytes))) => self.margin = bytes,
            ("quarantine", None) => self.quarantine = QUARANTINE,
            ("quarantine", Some(Some(bytes))) => self.quarantine = bytes,
            ("poison", None) => self.poison = true,
            ("pass-through", None) => self.pass_through = true,
            ("all", None) => self = Self { to_stderr: self.to_stderr, ..Self::ALL },
            _ => self.unknown = true,
        }
        self
    }

    /// Whether nothing is asked for.
    pub(crate) const fn is_off(&self) -> bool {
        self.margin == 0 && !self.poison && self.quarantine == 0
    }

    /// Whether the environment asks for one memory object per block.
    pub(crate) const fn is_pass_through(&self) -> bool {
        self.pass_through
    }

    /// Fails where the device can not do what is asked for, rather than that nothing is checked.
    pub(crate) const fn fit(&self, caps: &Caps) -> Result<(), Error> {
        if self.unknown {
            return Err(Error::UnknownCheck);
        }
        if !self.is_off() && !caps.compute {
            return Err(Error::Device(DeviceError::Unsupported(Feature::Compute)));
        }
        Ok(())
    }
}

/// A number of bytes, perhaps with `K`, `M` or `G`.
fn bytes_of(text: &str) -> Option<u64> {
    let (digits, unit) = match text.char_indices().last()? {
        (at, 'K') => (&text[..at], 10),
        (at, 'M') => (&text[..at], 20),
        (at, 'G') => (&text[..at], 30),
        _ => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::sim::Sim;
    use crate::device::{Device, StreamSpec};
    use crate::{Allocator, Config, Request};

    #[test]
    fn a_device_that_can_not_compute_is_refused_rather_than_left_unchecked() {
        let sim = Sim::cuda().caps(|caps| caps.compute = false).open();
        let mut config = Config::for_device(sim.caps());
        config.checks = Checks::NONE.margin(16);
        let opened = Allocator::with_config(sim.shared(), config).map(drop);
        assert_eq!(opened, Err(Error::Device(DeviceError::Unsupported(Feature::Compute))));
    }

    #[test]
    fn blocks_of_a_device_that_fails_during_a_check_are_released_all_the_same() {
        let sim = Sim::cuda().bytes(true).open();
        let mut config = Config::for_device(sim.caps());
        config.checks = Checks::ALL;
        let alloc = Allocator::with_config(sim.shared(), config).unwrap();
        let stream = sim.create_stream(StreamSpec::default()).unwrap();
        let blocks = [(); 3].map(|()| alloc.alloc(&Request::new(9000, stream)).unwrap().handle);
        alloc.free(blocks[0]).unwrap();
        let pin = alloc.pin(blocks[2]).unwrap();
        sim.lose();
        alloc.free(blocks[1]).unwrap();
        alloc.free(blocks[2]).unwrap();
        drop(pin);
        assert_eq!(alloc.stats().total.blocks.current, 1, "kept back before the loss");
        alloc.check().unwrap();
        // Gives back what a lost device takes back, and waits for nothing.
        drop(alloc);
    }

    #[test]
    fn the_environment_names_checks_and_anything_else_is_refused() {
        let parsed = Checks::parse("margins=1K, poison,quarantine=2M");
        let meant = Checks::NONE.margin(1024).poison(true).quarantine(2 << 20);
        assert_eq!(parsed, Checks { to_stderr: true, ..meant });
        assert_eq!(Checks::parse("all"), Checks { to_stderr: true, ..Checks::ALL });
        assert!(Checks::parse("pass-through").is_pass_through());
        assert!(Checks::parse("").is_off());
        let sim = Sim::cuda().open();
        for wrong in ["margin", "margins=", "margins=x", "quarantine=9999999999999G", "poison=1"] {
            let checks = Checks::parse(wrong);
            assert_eq!(checks.fit(sim.caps()), Err(Error::UnknownCheck), "{wrong}");
        }
    }
}

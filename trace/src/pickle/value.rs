//! Values of a pickle, held in an arena so that what the file shares stays shared.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU32;

/// A string in [`Strings`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Text(NonZeroU32);

impl Text {
    fn at(at: usize) -> Self {
        // One more than the index; there are fewer strings than bytes in memory's limit.
        Self(NonZeroU32::MIN.saturating_add(at as u32))
    }

    /// Position among the strings, from 0.
    pub(crate) fn index(self) -> usize {
        (self.0.get() - 1) as usize
    }
}

/// A value; containers are indices into the [`Arena`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value {
    None,
    Bool(bool),
    Int(i64),
    /// An integer from 2^63 to 2^64 - 1.
    Unsigned(u64),
    Float(f64),
    Text(Text),
    List(u32),
    Tuple(u32),
    Dict(u32),
    /// A function that returns its first argument; see [`super::machine`].
    Identity,
}

impl Value {
    /// The type's name for messages.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Bool(_) => "a bool",
            Self::Int(_) | Self::Unsigned(_) => "an integer",
            Self::Float(_) => "a float",
            Self::Text(_) => "a string",
            Self::List(_) => "a list",
            Self::Tuple(_) => "a tuple",
            Self::Dict(_) => "a dict",
            Self::Identity => "a function",
        }
    }
}

/// What a dictionary of the file has become.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Dict {
    Empty,
    /// Index of its pairs.
    Pairs(u32),
    /// The reader of records took it over: what kind, and which.
    Record(u8, u32),
}

/// Every string once, back to back.
#[derive(Clone, Debug, Default)]
pub struct Strings {
    bytes: String,
    ends: Vec<usize>,
    /// Hash of a string -> the strings with that hash.
    index: HashMap<u64, Vec<Text>>,
    hasher: RandomState,
}

impl Strings {
    /// The string itself; empty for a name from another file.
    #[must_use]
    pub fn get(&self, text: Text) -> &str {
        let at = text.index();
        let Some(&end) = self.ends.get(at) else { return "" };
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..end]
    }

    /// Stores a string, or finds it.
    pub(crate) fn intern(&mut self, string: &str) -> Text {
        let hash = self.hasher.hash_one(string);
        let known = self.index.get(&hash).into_iter().flatten().copied();
        if let Some(text) = known.into_iter().find(|text| self.get(*text) == string) {
            return text;
        }
        let text = Text::at(self.ends.len());
        self.bytes.push_str(string);
        self.ends.push(self.bytes.len());
        self.index.entry(hash).or_default().push(text);
        text
    }

    /// How many strings there are.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The string at a position, if there is one.
    pub(crate) fn at(&self, index: usize) -> Option<&str> {
        (index < self.ends.len()).then(|| self.get(Text::at(index)))
    }

    /// Bytes of all strings.
    pub(crate) fn len_bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// All containers of a pickle.
#[derive(Clone, Debug, Default)]
pub(crate) struct Arena {
    pub strings: Strings,
    /// Lists and tuples.
    pub sequences: Vec<Vec<Value>>,
    pub dicts: Vec<Dict>,
    /// Pairs of dictionaries, flat: key, value, key, value.
    pub pairs: Vec<Vec<Value>>,
    /// Where in the file each of them was filled first.
    pub pair_offsets: Vec<u64>,
}

impl Arena {
    /// Elements of a list or tuple, nothing for any other value.
    pub(crate) fn elements(&self, value: Value) -> Option<&[Value]> {
        match value {
            Value::List(at) | Value::Tuple(at) => {
                self.sequences.get(at as usize).map(Vec::as_slice)
            }
            _ => None,
        }
    }

    /// What a dictionary has become, `None` for any other value.
    pub(crate) fn dict(&self, value: Value) -> Option<Dict> {
        match value {
            Value::Dict(at) => self.dicts.get(at as usize).copied(),
            _ => None,
        }
    }

    /// Pairs of a dictionary that is no record, flat.
    pub(crate) fn pairs(&self, dict: Dict) -> &[Value] {
        match dict {
            Dict::Pairs(at) => &self.pairs[at as usize],
            Dict::Empty | Dict::Record(..) => &[],
        }
    }
}

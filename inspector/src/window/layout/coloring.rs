//! Which colour a block has, and what the colours mean.

use std::collections::HashMap;

use egui::Color32;

use crate::units;
use crate::window::model::{
    BlockRow, Hold, Moment, Part, PartState, PoolKind, Recording, short_site,
};
use crate::window::paint::{Look, Pattern};

/// What colour stands for.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize, clap::ValueEnum,
)]
pub enum Coloring {
    /// Bytes.
    Size,
    /// The stream that owns the block.
    Stream,
    /// How long ago it was allocated.
    Age,
    /// Where in the program it was allocated.
    Site,
    /// The pool of its segment.
    Pool,
    /// The tag that the program gave it.
    Tag,
    /// Whether it can be moved, and what holds it.
    Movable,
    /// What its memory is for: the device, uploads, readbacks or both sides.
    Kind,
}

impl Coloring {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Size,
        Self::Stream,
        Self::Age,
        Self::Site,
        Self::Pool,
        Self::Tag,
        Self::Movable,
        Self::Kind,
    ];

    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Size => "size",
            Self::Stream => "stream",
            Self::Age => "age",
            Self::Site => "site",
            Self::Pool => "pool",
            Self::Tag => "tag",
            Self::Movable => "movable",
            Self::Kind => "kind",
        }
    }
}

/// What stands out; everything else is faded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Focus {
    /// Blocks of one site.
    Site(u32),
    /// Blocks of one stream.
    Stream(u32),
}

impl Focus {
    fn has(self, block: &BlockRow) -> bool {
        match self {
            Self::Site(site) => block.site == site,
            Self::Stream(stream) => block.stream == stream,
        }
    }
}

/// Classes below this are live blocks; a faded block's class is this much higher.
const FADED: u8 = 8;
/// The class of holes.
pub const FREE: u8 = 16;
/// The class of pending blocks.
pub const PENDING: u8 = 17;
/// The class of addresses without memory.
pub const UNBACKED: u8 = 18;
/// The class of old mappings.
pub const STALE: u8 = 19;
/// How many classes there are.
pub const CLASSES: usize = 20;

/// The classes of one moment's blocks.
#[derive(Clone, Debug)]
pub struct Classes {
    coloring: Coloring,
    focus: Option<Focus>,
    /// Upper limits of all steps but the last, for sizes and ages.
    limits: [u64; 5],
    at: u32,
    /// Class of each of the largest sites or streams.
    ranks: HashMap<u32, u8>,
    /// What the classes in use mean.
    labels: Vec<(u8, String)>,
}

impl Classes {
    /// Sorts the blocks of a moment.
    pub fn of(
        recording: &Recording,
        moment: &Moment,
        coloring: Coloring,
        focus: Option<Focus>,
    ) -> Self {
        let mut classes = Self {
            coloring,
            focus,
            limits: [0; 5],
            at: moment.at,
            ranks: HashMap::new(),
            labels: Vec::new(),
        };
        match coloring {
            Coloring::Size => classes.by_size(recording, moment),
            Coloring::Age => classes.by_age(recording),
            Coloring::Stream => {
                classes.by_rank(
                    recording,
                    moment,
                    |_, block| block.stream,
                    |n| recording.stream(n),
                );
            }
            Coloring::Site => classes.by_rank(
                recording,
                moment,
                |_, block| block.site,
                |n| recording.places.sites.get(n as usize).map_or("", |name| short_site(name)),
            ),
            Coloring::Tag => {
                let name = |tag: u32| recording.tag(u16::try_from(tag).unwrap_or(u16::MAX));
                classes.by_rank(recording, moment, |_, block| block.tag.into(), name);
            }
            Coloring::Movable => {
                let name = |code| Hold::of_code(code).text();
                let hold = |number, _: &BlockRow| recording.hold(number, moment.at).code();
                classes.by_rank(recording, moment, hold, name);
            }
            Coloring::Kind => {
                let name = |kind| recording.kind(u8::try_from(kind).unwrap_or(u8::MAX));
                classes.by_rank(recording, moment, |_, block| block.kind.into(), name);
            }
            Coloring::Pool => {
                let pools = [PoolKind::Small, PoolKind::Large, PoolKind::Unknown];
                let label =
                    |(at, pool): (usize, &PoolKind)| (at as u8, format!("{} pool", pool.name()));
                classes.labels = pools.iter().enumerate().map(label).collect();
                classes.labels.retain(|(class, _)| {
                    moment.spaces.iter().any(|space| pools[*class as usize] == space.pool)
                });
            }
        }
        classes
    }

    fn by_size(&mut self, recording: &Recording, moment: &Moment) {
        let blocks = moment.parts.iter().filter_map(|p| recording.blocks.get(p.block as usize));
        let largest = blocks.map(|block| block.bytes).max().unwrap_or(0).max(4096);
        let last = 1_u64 << ((largest - 1).ilog2() / 2 * 2);
        self.limits = [8, 6, 4, 2, 0].map(|shift| (last >> shift).max(256));
        self.label_steps(units::bytes, "blocks to ", "over ");
    }

    fn by_age(&mut self, recording: &Recording) {
        let now = u64::from(self.at.max(64));
        self.limits = [6, 4, 3, 2, 1].map(|shift| (now >> shift).max(1));
        let _ = recording;
        self.label_steps(
            |limit| format!("{} events", units::count(limit)),
            "younger than ",
            "older",
        );
        if let Some((_, last)) = self.labels.last_mut() {
            "older".clone_into(last);
        }
    }

    fn label_steps(&mut self, text: impl Fn(u64) -> String, first: &str, last: &str) {
        let label = |class: u8| match class {
            0 => format!("{first}{}", text(self.limits[0])),
            5 => format!("{last}{}", text(self.limits[4])),
            _ => format!("to {}", text(self.limits[class as usize])),
        };
        self.labels = (0..6).map(|class| (class, label(class))).collect();
    }

    /// The seven with the most bytes get a colour each, the rest shares one.
    fn by_rank<Name: Into<String>>(
        &mut self,
        recording: &Recording,
        moment: &Moment,
        key: impl Fn(u32, &BlockRow) -> u32,
        name: impl Fn(u32) -> Name,
    ) {
        let mut bytes: HashMap<u32, u64> = HashMap::new();
        for part in &moment.parts {
            if let Some(block) = recording.blocks.get(part.block as usize) {
                *bytes.entry(key(part.block, block)).or_default() += part.bytes;
            }
        }
        let mut order: Vec<(u32, u64)> = bytes.into_iter().collect();
        order.sort_unstable_by_key(|(key, bytes)| (std::cmp::Reverse(*bytes), *key));
        for (class, (key, _)) in (0..7).zip(&order) {
            self.ranks.insert(*key, class);
            self.labels.push((class, name(*key).into()));
        }
        if order.len() > 7 {
            self.labels.push((7, format!("{} others", units::count(order.len() as u64 - 7))));
        }
    }

    /// The class of a block, by its number.
    pub fn class(&self, recording: &Recording, number: u32, pool: PoolKind) -> Option<u8> {
        let block = recording.blocks.get(number as usize)?;
        let step =
            |value: u64| self.limits.iter().take_while(|limit| value > **limit).count() as u8;
        let class = match self.coloring {
            Coloring::Size => step(block.bytes),
            Coloring::Age => step(u64::from(self.at.saturating_sub(block.born))),
            Coloring::Stream => self.ranks.get(&block.stream).copied().unwrap_or(7),
            Coloring::Site => self.ranks.get(&block.site).copied().unwrap_or(7),
            Coloring::Tag => self.ranks.get(&block.tag.into()).copied().unwrap_or(7),
            Coloring::Movable => {
                let code = recording.hold(number, self.at).code();
                self.ranks.get(&code).copied().unwrap_or(7)
            }
            Coloring::Kind => self.ranks.get(&block.kind.into()).copied().unwrap_or(7),
            Coloring::Pool => match pool {
                PoolKind::Small => 0,
                PoolKind::Large => 1,
                PoolKind::Unknown => 2,
            },
        };
        let faded = self.focus.is_some_and(|focus| !focus.has(block));
        Some(if faded { class + FADED } else { class })
    }

    /// The class of any part.
    fn class_of(&self, recording: &Recording, state: PartState, block: u32, pool: PoolKind) -> u8 {
        match state {
            PartState::Unbacked => UNBACKED,
            PartState::Stale => STALE,
            PartState::Pending if (block as usize) < recording.blocks.len() => PENDING,
            PartState::Live => self.class(recording, block, pool).unwrap_or(FREE),
            PartState::Free | PartState::Pending => FREE,
        }
    }

    /// The class of every part of a moment, in order.
    pub fn of_parts(&self, recording: &Recording, moment: &Moment) -> Vec<u8> {
        let mut classes = Vec::with_capacity(moment.parts.len());
        for space in &moment.spaces {
            let parts = &moment.parts[space.parts.clone()];
            let class = |part: &Part| self.class_of(recording, part.state, part.block, space.pool);
            classes.extend(parts.iter().map(class));
        }
        classes
    }

    /// Colour, colour of its lines, and pattern of a class.
    pub fn paint(&self, look: &Look, class: u8) -> ((Color32, Color32), Pattern) {
        match class {
            FREE => (look.free, Pattern::Hatch),
            PENDING => (look.pending, Pattern::Stripes),
            UNBACKED => ((look.paper, look.faint), Pattern::Dots),
            STALE => ((look.free.0, look.alarm), Pattern::Cross),
            _ => {
                let color = self.color(look, class % FADED);
                let color = if class >= FADED { look.fade(color) } else { color };
                ((color, color), Pattern::Solid)
            }
        }
    }

    fn color(&self, look: &Look, class: u8) -> Color32 {
        match self.coloring {
            Coloring::Size | Coloring::Age => look.steps[usize::from(class).min(5)],
            _ => look.kinds[usize::from(class).min(7)],
        }
    }

    /// What the classes mean: colour, pattern and words.
    pub fn legend(
        &self,
        look: &Look,
        moment: &Moment,
    ) -> Vec<((Color32, Color32), Pattern, String)> {
        let mut keys: Vec<_> = self
            .labels
            .iter()
            .map(|(class, label)| {
                let (colors, pattern) = self.paint(look, *class);
                (colors, pattern, label.clone())
            })
            .collect();
        keys.push((look.free, Pattern::Hatch, "free".to_owned()));
        if moment.pending > 0 {
            keys.push((look.pending, Pattern::Stripes, "pending".to_owned()));
        }
        for (class, bytes, text) in [
            (UNBACKED, moment.unbacked, "no memory behind it"),
            (STALE, moment.stale, "stale: its pages are mapped elsewhere"),
        ] {
            if bytes > 0 {
                let (colors, pattern) = self.paint(look, class);
                keys.push((colors, pattern, text.to_owned()));
            }
        }
        keys
    }
}

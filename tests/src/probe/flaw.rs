//! Ways to be broken.

use terrane_core::device::{Caps, HeapId};
use terrane_core::units::Align;

macro_rules! flaws {
    ($($flaw:ident,)*) => {
        /// One way in which a device, or the allocator on it, is broken on purpose.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs)] // the names say it; probe and subject show what each does
        pub enum Flaw {
            #[default]
            None,
            $($flaw,)*
        }

        impl Flaw {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$flaw,)*];
        }
    };
}

flaws! {
    // Facts about the device.
    Nameless,
    CapsChange,
    HeapMissing,
    NoDeviceMemory,
    OddGranularity,
    BindingAlignAboveBase,
    ComputeDenied,
    NoAddressesToPage,
    ClockRunsBack,
    FreeAboveTotal,
    UnknownHeapAccepted,
    // Memory.
    PlainTooSmall,
    BaseUnaligned,
    SamePlainTwice,
    ReleaseIgnored,
    UnknownIdsAccepted,
    HugePlainAccepted,
    ShortageInWrongWords,
    HeapUseFrozen,
    ClassIgnored,
    // Work.
    FillIgnoresWord,
    FillTooLong,
    FillTooShort,
    FillDropsSecondWindow,
    CopyDropsLast,
    CopyTooShort,
    CopyTooLong,
    CopyOtherWay,
    CopyPartlyDone,
    WriteKeepsPointer,
    WriteTooShort,
    ReadSpoilsLast,
    ReadCutShort,
    TicketsTakenTwice,
    TicketsTakenEarly,
    BrokenCallsAccepted,
    // Streams.
    SameStreamTwice,
    ValuesRepeat,
    MarkIsZero,
    MarkGoesOn,
    ReachedAtOnce,
    ReachedNever,
    ReachedFallsBack,
    WaitOnStreamIgnored,
    WaitOnStreamBlocks,
    WaitAnySaysYes,
    WaitAnySaysNo,
    WaitAnyWaitsForAll,
    WaitAnyReturnsEarly,
    RetireIgnored,
    RetiredForgotten,
    UnknownStreamAccepted,
    CopyStreamsCannotFill,
    NeverPoisoned,
    // Compute.
    SeedHalved,
    VerifySaysZero,
    VerifySaysOne,
    ChecksumIgnoresOrder,
    ReportsReversed,
    GatherDropsLast,
    DispatchesNotCounted,
    PushIgnored,
    FirstGroupOnly,
    LargeBindingAccepted,
    AnyKernelLoads,
    UnloadIgnored,
    PatternDropsSecondWindow,
    // The host.
    ViewReadsZero,
    ViewWritesLost,
    MapsStale,
    ViewOfEverything,
    PointersShifted,
    // Paging.
    ReserveSameTwice,
    HugeReserveAccepted,
    MapDropsLast,
    MapPartly,
    MapIgnoresOffset,
    MapIgnoresAfter,
    MapSwapsPages,
    UnmapIgnored,
    UnmapIgnoresAfter,
    UnmapForgives,
    StaleUnmappedEarly,
    PagesNotReleased,
    // Views.
    ViewObjectsUnknownAccepted,
    ViewObjectsDenied,
    // A lost device.
    LostUnnoticed,
    LostKeepsThings,
    ForkUnnoticed,
    ExportDenied,
    ExportsAnother,
    WrappedUnknown,
    CaptureUnseen,
    DevicesShared,
    // The allocator.
    BlockTooSmall,
    AlignIgnored,
    KindIgnored,
    ClassesIgnored,
    DedicatedIgnored,
    ExportIgnored,
    NotZeroed,
    NamesLost,
    WaitsDropped,
    WaitsLoseOne,
    WaitModeIgnored,
    TagIgnored,
    ErrorsMixedUp,
    FreeIgnored,
    FreeTwiceAccepted,
    FreePointsIgnored,
    UsesForgotten,
    GrowLies,
    PinsIgnored,
    GraphsForgotten,
    StaleCounted,
    StaleUncapped,
    TrimIgnored,
    TrimTakesAll,
    ReleaseCachedIsTrim,
    MaintainIgnored,
    LimitsIgnored,
    ChargesIgnored,
    PreallocationIgnored,
    ScrubIgnored,
    ReuseEager,
    HooksIgnored,
    HookPanicsPass,
    StatsOff,
    PeaksNotReset,
    PeaksLost,
    KindStatsOff,
    SizeClassesOff,
    SectionsSeeNothing,
    EventsLost,
    EventsRepeat,
    SnapshotMissesBlock,
    LeaksHidden,
    BuffersLeak,
    GrowthIgnored,
    PauseClaimed,
    ChecksIgnored,
    PoisonIgnored,
    QuarantineIgnored,
    GuardIgnored,
    DamageForgotten,
}

impl Flaw {
    /// The capabilities as a device with the flaw tells them.
    pub(super) fn caps(self, mut caps: Caps) -> Caps {
        match self {
            Self::HeapMissing => {
                if let Some(class) = caps.classes.last_mut() {
                    class.heap = HeapId(200);
                }
            }
            Self::NoDeviceMemory => {
                caps.classes.retain(|class| class.kind != terrane_core::MemoryKind::Device);
            }
            Self::OddGranularity => caps.plain_granularity = 3,
            Self::BindingAlignAboveBase => {
                caps.binding_align =
                    Align::new(caps.plain_base_align.get() * 2).unwrap_or_default();
            }
            Self::NoAddressesToPage => {
                if let Some(paging) = &mut caps.paging {
                    paging.space_bytes = 0;
                }
            }
            Self::ComputeDenied => caps.compute = !caps.compute,
            Self::ExportDenied => caps.export = !caps.export,
            Self::ViewObjectsDenied => caps.views = !caps.views,
            _ => {}
        }
        caps
    }
}

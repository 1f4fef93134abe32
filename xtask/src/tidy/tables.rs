//! The architecture as data. ARCHITECTURE.md explains it; these tables are what is enforced.

/// Modules of `core`, bottom to top. A module uses its own layer and those before it.
pub const CORE_LAYERS: [&[&str]; 6] = [
    &["units", "id", "kind", "point", "error", "sync"],
    &["range", "size_class", "event", "stats"],
    &["device"],
    &["request", "segment", "pages", "pending", "budget", "pool"],
    &["allocator", "cache", "compact"],
    // The root of the crate: re-exports and the example.
    &[],
];

/// The only modules of `terrane_core` that a backend may name.
pub const BACKEND_MAY_USE: &[&str] = &["device", "units", "id", "kind", "point", "error", "event"];

/// Source folders of the backends.
pub const BACKENDS: &[&str] = &["cuda-backend/src/", "vulkan-backend/src/"];

/// A path that must not be named in a folder.
pub struct Forbidden {
    /// Files whose path starts so are bound.
    pub within: &'static str,
    /// Except those whose path starts with one of these.
    pub except: &'static [&'static str],
    /// The path, by segments; all below it is meant too.
    pub path: &'static [&'static str],
    pub why: &'static str,
}

const HOST: &[&str] = &["core/src/device/host"];
/// Devices that park a thread until a time is over, and the lock, which looks how long ago it was
/// taken away: nothing that is served depends on that.
const PARKING: &[&str] = &["core/src/device/host", "core/src/device/sim", "core/src/sync/lock.rs"];
const CLOCK: &str = "the allocator calls no clock: time comes from the injected Ticks";
const NO_IO: &str = "core does no file or socket input or output";
const ONE_SOURCE: &str = "the inspector reaches the allocator only through inspector/src/source/";

pub const FORBIDDEN: &[Forbidden] = &[
    Forbidden {
        within: "core/src/",
        except: PARKING,
        path: &["std", "time", "Instant"],
        why: CLOCK,
    },
    Forbidden {
        within: "core/src/",
        except: HOST,
        path: &["std", "time", "SystemTime"],
        why: CLOCK,
    },
    Forbidden { within: "core/src/", except: HOST, path: &["std", "fs"], why: NO_IO },
    Forbidden { within: "core/src/", except: &[], path: &["std", "net"], why: NO_IO },
    Forbidden {
        within: "inspector/src/",
        except: &["inspector/src/source/", "inspector/src/source.rs"],
        path: &["terrane"],
        why: ONE_SOURCE,
    },
];

/// Where `unsafe` may stand: the edges to drivers and to the operating system.
pub const UNSAFE_WITHIN: &[&str] = &[
    "core/src/device/host",
    "core/src/device/wrap/pass.rs",
    // A value behind a lock that one thread enters by plain stores, a third of a request's time.
    "core/src/sync/lock.rs",
    "cuda-backend/src/",
    "vulkan-backend/src/",
    // Raw streams of CUDA programs, which nobody can check.
    "src/cuda_raw.rs",
    // How the suite keeps real devices busy, and its kernels in a language that nobody checks.
    "tests/src/gate.rs",
    "tests/src/spin.rs",
    // How it is a program of the device's own API.
    "tests/src/native/",
    "tests/src/clauses/kernels.rs",
    // A child of which the suite looks that it gets no device: nothing safe forks.
    "tests/src/clauses/fork.rs",
    // The same for the kernel that compaction is measured beside.
    "tests/src/bin/compaction/kernel.rs",
    // Nothing safe forks.
    "tests/tests/fork.rs",
];

/// Our packages and those of ours that each may depend on (dev-dependencies are free).
pub const ARROWS: &[(&str, &[&str])] = &[
    ("terrane-core", &[]),
    ("terrane-trace", &["terrane-core"]),
    ("terrane-cuda", &["terrane-core"]),
    ("terrane-vulkan", &["terrane-core"]),
    ("terrane", &["terrane-core", "terrane-trace", "terrane-cuda", "terrane-vulkan"]),
    ("terrane-inspector", &["terrane-core", "terrane-trace", "terrane"]),
    (
        "terrane-tests",
        &[
            "terrane-core",
            "terrane-trace",
            "terrane-cuda",
            "terrane-vulkan",
            "terrane",
            "terrane-inspector",
        ],
    ),
    ("xtask", &[]),
];

/// Crates that draw or talk to a GPU, by the beginning of their name.
pub const GPU_OR_UI: &[&str] = &[
    "ash",
    "cudarc",
    "cust",
    "gpu-allocator",
    "metal",
    "naga",
    "nvml",
    "opencl",
    "vk-mem",
    "vulkano",
    "wgpu", // GPU
    "eframe",
    "egui",
    "epaint",
    "iced",
    "winit", // UI
];

/// Packages that may reach none of `GPU_OR_UI`, however indirectly.
pub const NO_GPU_OR_UI: &[&str] = &["terrane-core", "terrane-trace"];

//! RAPIDS RMM: its pool and its arena resource.

mod arena;
mod pool;

pub(super) use arena::Arena;
pub use arena::ArenaConfig;
pub(super) use pool::Pool;
pub use pool::PoolConfig;

use super::SpecError;

/// Every request is rounded up to a multiple of this.
const ALIGNMENT: u64 = 256;

fn mebibytes(key: &str, value: &str) -> Result<u64, SpecError> {
    let parsed = value.parse::<u64>().ok().and_then(|n| n.checked_mul(1 << 20));
    parsed.ok_or_else(|| SpecError::value(key, value, "a whole number of MiB"))
}

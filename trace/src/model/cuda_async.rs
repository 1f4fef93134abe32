//! CUDA's stream-ordered allocator (`cudaMallocAsync`), of which only figures are public.
//!
//! What was seen of it on four recorded workloads is this: its pool grows in steps of 32 MiB
//! and its peaks are those of PyTorch's expandable segments with handles of that size, one
//! segment per stream and size class. So that is the model.

use super::pytorch::{Pytorch, PytorchConfig};
use super::{Model, Validation};

const STEP_BYTES: u64 = 32 << 20;

pub(super) const VALIDATION: Validation =
    Validation::Validated { within_percent: 2.0, against: "peaks of four runs on one H200" };

/// A replayed `cudaMallocAsync` pool whose release threshold is never reached.
pub(super) fn model(capacity: Option<u64>) -> impl Model {
    let config = PytorchConfig {
        expandable_segments: true,
        large_segment_bytes: STEP_BYTES,
        small_segment_bytes: STEP_BYTES,
        ..PytorchConfig::default()
    };
    Pytorch::new(config, capacity)
}

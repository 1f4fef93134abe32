//! Recording dispatches.

use std::sync::Arc;

use ash::vk;
use terrane_core::device::DeviceError;

use crate::stream::Recorder;

use super::pipeline::Pipeline;

/// A range of a buffer given to a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    pub buffer: vk::Buffer,
    pub offset: u64,
    pub bytes: u64,
}

/// Workgroups to run: from `first`, `count` in each dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups {
    pub first: [u32; 3],
    pub count: [u32; 3],
}

impl Groups {
    /// From the first workgroup on.
    pub const fn of(count: [u32; 3]) -> Self {
        Self { first: [0; 3], count }
    }

    /// At least `count` workgroups over two dimensions, for kernels that number them
    /// `y * groups.x + x` and stop at `count`.
    pub fn line(count: u32, limit: [u32; 3]) -> Self {
        let x = count.clamp(1, limit[0].clamp(1, 1 << 16));
        Self::of([x, count.div_ceil(x), 1])
    }
}

/// Records the binding of a kernel's buffers and push data and its dispatches.
pub fn dispatch(
    recorder: &mut Recorder<'_>,
    pipeline: &Arc<Pipeline>,
    bound: &[Bound],
    push: &[u8],
    runs: &[Groups],
) -> Result<(), DeviceError> {
    let (device, commands) = (recorder.device, recorder.commands);
    let set = match bound {
        [] => None,
        bound => Some(fill_set(recorder, pipeline, bound)?),
    };
    let point = vk::PipelineBindPoint::COMPUTE;
    // SAFETY: the command buffer is being recorded on a queue that can compute; the pipeline is
    // kept below, the set lives as long as the submission, and the push data has the layout's
    // size.
    unsafe {
        device.cmd_bind_pipeline(commands, point, pipeline.raw);
        if let Some(set) = set {
            device.cmd_bind_descriptor_sets(commands, point, pipeline.layout, 0, &[set], &[]);
        }
        if !push.is_empty() {
            let stage = vk::ShaderStageFlags::COMPUTE;
            device.cmd_push_constants(commands, pipeline.layout, stage, 0, push);
        }
        for Groups { first: [a, b, c], count: [x, y, z] } in runs {
            match (a, b, c) {
                (0, 0, 0) => device.cmd_dispatch(commands, *x, *y, *z),
                _ => device.cmd_dispatch_base(commands, *a, *b, *c, *x, *y, *z),
            }
        }
    }
    recorder.keep(Arc::clone(pipeline));
    Ok(())
}

fn fill_set(
    recorder: &mut Recorder<'_>,
    pipeline: &Pipeline,
    bound: &[Bound],
) -> Result<vk::DescriptorSet, DeviceError> {
    let set = recorder.set(pipeline.set, bound.len() as u32)?;
    let infos: Vec<_> = bound
        .iter()
        .map(|b| {
            [vk::DescriptorBufferInfo::default().buffer(b.buffer).offset(b.offset).range(b.bytes)]
        })
        .collect();
    let writes: Vec<_> = (0..)
        .zip(&infos)
        .map(|(binding, info)| {
            vk::WriteDescriptorSet::default()
                .dst_set(set)
                .dst_binding(binding)
                .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                .buffer_info(info)
        })
        .collect();
    // SAFETY: the set is new and used by no submission; the buffers are alive.
    unsafe { recorder.device.update_descriptor_sets(&writes, &[]) };
    Ok(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_workgroups_covers_its_count_within_the_limits() {
        for count in [1, 2, 65_535, 65_536, 65_537, 1 << 20, u32::MAX] {
            let Groups { count: [x, y, z], .. } = Groups::line(count, [65_535; 3]);
            assert!(x <= 65_535 && z == 1);
            assert!(u64::from(x) * u64::from(y) >= u64::from(count));
            assert!(u64::from(x) * (u64::from(y) - 1) < u64::from(count));
        }
    }
}

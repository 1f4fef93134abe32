//! Driver calls, counted by kind with their total and longest time.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

macro_rules! calls {
    ($($variant:ident $name:literal),* $(,)?) => {
        /// A function of the driver that this backend calls.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs)]
        #[non_exhaustive]
        pub enum Call { $($variant),* }

        impl Call {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The name of the Vulkan function.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }
        }
    };
}

calls! {
    AllocateMemory "vkAllocateMemory",
    FreeMemory "vkFreeMemory",
    AllocateFixed "gpu-allocator allocate",
    MapMemory "vkMapMemory",
    FlushMemory "vkFlushMappedMemoryRanges",
    InvalidateMemory "vkInvalidateMappedMemoryRanges",
    BindBufferMemory "vkBindBufferMemory",
    BindImageMemory "vkBindImageMemory",
    CreateBuffer "vkCreateBuffer",
    DestroyBuffer "vkDestroyBuffer",
    CreateImage "vkCreateImage",
    DestroyImage "vkDestroyImage",
    CreateSemaphore "vkCreateSemaphore",
    DestroySemaphore "vkDestroySemaphore",
    CreateCommandPool "vkCreateCommandPool",
    DestroyCommandPool "vkDestroyCommandPool",
    ResetCommandPool "vkResetCommandPool",
    AllocateCommandBuffers "vkAllocateCommandBuffers",
    RecordCommands "vkBeginCommandBuffer",
    EndCommandBuffer "vkEndCommandBuffer",
    QueueSubmit "vkQueueSubmit",
    QueueBindSparse "vkQueueBindSparse",
    WaitSemaphores "vkWaitSemaphores",
    GetSemaphoreCounter "vkGetSemaphoreCounterValue",
    DeviceWaitIdle "vkDeviceWaitIdle",
    CreateShaderModule "vkCreateShaderModule",
    CreatePipelineLayout "vkCreatePipelineLayout",
    CreateDescriptorSetLayout "vkCreateDescriptorSetLayout",
    CreateComputePipelines "vkCreateComputePipelines",
    CreatePipelineCache "vkCreatePipelineCache",
    GetPipelineCacheData "vkGetPipelineCacheData",
    CreateDescriptorPool "vkCreateDescriptorPool",
    ResetDescriptorPool "vkResetDescriptorPool",
    AllocateDescriptorSets "vkAllocateDescriptorSets",
    CreateQueryPool "vkCreateQueryPool",
    GetQueryPoolResults "vkGetQueryPoolResults",
    GetMemoryFd "vkGetMemoryFdKHR",
    SetDebugName "vkSetDebugUtilsObjectNameEXT",
}

/// How often a function was called and how long it took, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallStat {
    /// The function.
    pub call: Call,
    /// Calls so far.
    pub count: u64,
    /// Their time together, in nanoseconds.
    pub total_ns: u64,
    /// The longest of them, in nanoseconds.
    pub longest_ns: u64,
}

#[derive(Default)]
struct Counter {
    count: AtomicU64,
    total_ns: AtomicU64,
    longest_ns: AtomicU64,
}

/// The counters of one device.
pub struct Calls(Vec<Counter>);

impl Calls {
    pub fn new() -> Self {
        Self(Call::ALL.iter().map(|_| Counter::default()).collect())
    }

    pub fn add(&self, call: Call, time: Duration) {
        let Some(counter) = self.0.get(call as usize) else { return };
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        counter.count.fetch_add(1, Relaxed);
        counter.total_ns.fetch_add(ns, Relaxed);
        counter.longest_ns.fetch_max(ns, Relaxed);
    }

    /// Functions called at least once, in the order of [`Call::ALL`].
    pub fn stats(&self) -> Vec<CallStat> {
        let stat = |(call, counter): (&Call, &Counter)| CallStat {
            call: *call,
            count: counter.count.load(Relaxed),
            total_ns: counter.total_ns.load(Relaxed),
            longest_ns: counter.longest_ns.load(Relaxed),
        };
        Call::ALL.iter().zip(&self.0).map(stat).filter(|stat| stat.count > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_with_their_total_and_longest_time() {
        let calls = Calls::new();
        calls.add(Call::QueueSubmit, Duration::from_nanos(30));
        calls.add(Call::QueueSubmit, Duration::from_nanos(50));
        let expected = CallStat { call: Call::QueueSubmit, count: 2, total_ns: 80, longest_ns: 50 };
        assert_eq!(calls.stats(), [expected]);
    }
}

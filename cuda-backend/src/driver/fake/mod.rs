//! A software driver for tests. It is no CUDA: it keeps memory in vectors, runs work on the
//! calling thread, checks what the real driver leaves unchecked (live handles, a current context,
//! access to mapped pages) and fails where a test asks it to.

mod memory;
mod modules;
pub(crate) mod work;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard};
use std::thread::ThreadId;

use super::{
    Answer, Attribute, CaptureState, Dev, Driver, Fault, Launch, RawContext, RawEvent, RawFunction,
    RawMemory, RawModule, RawStream, code,
};
use crate::inner::lock;
use memory::Memory;
use modules::Modules;
use work::Work;

/// Pages of the software driver: small, so that tests are quick.
pub(crate) const PAGE: u64 = 64 << 10;
/// The context of device `n` is this plus `n`.
pub(crate) const CONTEXT: u64 = 0xC0;

/// A driver in software.
pub(crate) struct FakeDriver {
    state: Mutex<State>,
}

/// What the tests set and look at.
pub(crate) struct State {
    pub(crate) init_code: i32,
    pub(crate) version: i32,
    pub(crate) devices: i32,
    pub(crate) capability: (i32, i32),
    pub(crate) virtual_memory: bool,
    /// Calls so far, by name.
    pub(crate) calls: BTreeMap<&'static str, u64>,
    /// Calls to fail: name, how many to let pass first, the code.
    pub(crate) faults: Vec<(&'static str, u64, i32)>,
    /// Streams in a capture, with its number.
    pub(crate) captures: HashMap<RawStream, u64>,
    pub(crate) contexts: HashMap<ThreadId, Vec<u64>>,
    pub(crate) modes: HashMap<ThreadId, u32>,
    /// The calls that were made with each capture mode that is not relaxed.
    pub(crate) strict_calls: Vec<&'static str>,
    pub(crate) retained: i64,
    pub(crate) peers: HashSet<(u64, u64)>,
    /// The code that everything answers once a kernel or copy faulted.
    pub(crate) broken: Option<i32>,
    pub(crate) memory: Memory,
    pub(crate) work: Work,
    modules: Modules,
    next: u64,
}

impl Default for FakeDriver {
    fn default() -> Self {
        let state = State {
            init_code: 0,
            version: 12_040,
            devices: 2,
            capability: (9, 0),
            virtual_memory: true,
            calls: BTreeMap::new(),
            faults: Vec::new(),
            captures: HashMap::new(),
            contexts: HashMap::new(),
            modes: HashMap::new(),
            strict_calls: Vec::new(),
            retained: 0,
            peers: HashSet::new(),
            broken: None,
            memory: Memory::default(),
            work: Work::default(),
            modules: Modules::default(),
            next: 0x1000,
        };
        Self { state: Mutex::new(state) }
    }
}

impl State {
    fn next(&mut self) -> u64 {
        self.next += 0x10;
        self.next
    }

    /// Lets work run that is not held, on all streams.
    pub(crate) fn run(&mut self) {
        while let Some(step) = self.work.next_step() {
            if let Err(code) = work::run(&mut self.memory, &step) {
                self.broken = Some(code);
                return;
            }
        }
    }
}

fn fault<T>(call: &'static str, code: i32) -> Answer<T> {
    Err(Fault { call, code })
}

impl FakeDriver {
    /// The state, to set and to look at.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Keeps a stream's work from running.
    pub(crate) fn hold(&self, stream: u64) {
        self.state().work.hold(RawStream(stream));
    }

    /// Lets all held work run.
    pub(crate) fn release_all(&self) {
        let mut state = self.state();
        state.work.release_all();
        state.run();
    }

    /// Fails the call after `pass` more of its name.
    pub(crate) fn fail(&self, call: &'static str, pass: u64, code: i32) {
        self.state().faults.push((call, pass, code));
    }

    /// How often a call was made.
    pub(crate) fn calls(&self, call: &str) -> u64 {
        self.state().calls.get(call).copied().unwrap_or(0)
    }

    /// A call that needs no context.
    fn begin(&self, call: &'static str) -> Answer<MutexGuard<'_, State>> {
        let mut state = self.state();
        *state.calls.entry(call).or_default() += 1;
        if let Some(code) = state.broken {
            return fault(call, code);
        }
        let wanted = state.faults.iter().position(|(name, _, _)| *name == call);
        if let Some(at) = wanted {
            if state.faults[at].1 == 0 {
                let (_, _, code) = state.faults.remove(at);
                return fault(call, code);
            }
            state.faults[at].1 -= 1;
        }
        Ok(state)
    }

    /// A call that needs the device's context.
    fn enter(&self, call: &'static str) -> Answer<MutexGuard<'_, State>> {
        let mut state = self.begin(call)?;
        let thread = std::thread::current().id();
        let current = state.contexts.get(&thread).and_then(|stack| stack.last().copied());
        if current.is_none_or(|context| context < CONTEXT) {
            return fault(call, code::INVALID_CONTEXT);
        }
        if state.modes.get(&thread).copied().unwrap_or(0) != super::CAPTURE_RELAXED {
            state.strict_calls.push(call);
        }
        Ok(state)
    }

    fn submit(&self, call: &'static str, stream: RawStream, step: work::Step) -> Answer<()> {
        let mut state = self.enter(call)?;
        if !state.work.is_stream(stream) {
            return fault(call, code::INVALID_HANDLE);
        }
        if state.captures.contains_key(&stream) {
            return Ok(());
        }
        state.work.push(stream, step);
        state.run();
        Ok(())
    }
}

impl Driver for FakeDriver {
    fn init(&self) -> Answer<()> {
        let state = self.begin("cuInit")?;
        if state.init_code == 0 { Ok(()) } else { fault("cuInit", state.init_code) }
    }

    fn version(&self) -> Answer<i32> {
        Ok(self.begin("cuDriverGetVersion")?.version)
    }

    fn device_count(&self) -> Answer<i32> {
        Ok(self.begin("cuDeviceGetCount")?.devices)
    }

    fn device(&self, ordinal: i32) -> Answer<Dev> {
        let state = self.begin("cuDeviceGet")?;
        if ordinal < state.devices { Ok(Dev(ordinal)) } else { fault("cuDeviceGet", 101) }
    }

    fn device_name(&self, device: Dev) -> Answer<String> {
        Ok(format!("Software Device {}", device.0))
    }

    fn device_uuid(&self, device: Dev) -> Answer<[u8; 16]> {
        Ok([device.0 as u8 + 1; 16])
    }

    fn device_memory(&self, _: Dev) -> Answer<u64> {
        Ok(self.state().memory.capacity)
    }

    fn attribute(&self, attribute: Attribute, _: Dev) -> Answer<i32> {
        let state = self.state();
        Ok(match attribute {
            Attribute::GridX => i32::MAX,
            Attribute::GridY | Attribute::GridZ => 65_535,
            Attribute::MultiProcessors => 4,
            Attribute::CopyEngines => 2,
            Attribute::Integrated => 0,
            Attribute::ComputeMajor => state.capability.0,
            Attribute::ComputeMinor => state.capability.1,
            Attribute::VirtualMemory => i32::from(state.virtual_memory),
            Attribute::UnifiedAddressing
            | Attribute::Managed
            | Attribute::ConcurrentManaged
            | Attribute::PosixDescriptors
            | Attribute::MemoryPools => 1,
        })
    }

    fn can_access_peer(&self, device: Dev, peer: Dev) -> Answer<bool> {
        Ok(device != peer)
    }

    fn primary_retain(&self, device: Dev) -> Answer<RawContext> {
        self.begin("cuDevicePrimaryCtxRetain")?.retained += 1;
        Ok(RawContext(CONTEXT + device.0 as u64))
    }

    fn primary_release(&self, _: Dev) -> Answer<()> {
        self.state().retained -= 1;
        Ok(())
    }

    fn current(&self) -> Answer<RawContext> {
        let state = self.begin("cuCtxGetCurrent")?;
        let stack = state.contexts.get(&std::thread::current().id());
        Ok(RawContext(stack.and_then(|stack| stack.last().copied()).unwrap_or(0)))
    }

    fn push(&self, context: RawContext) -> Answer<()> {
        let mut state = self.begin("cuCtxPushCurrent")?;
        state.contexts.entry(std::thread::current().id()).or_default().push(context.0);
        Ok(())
    }

    fn pop(&self) -> Answer<()> {
        let mut state = self.state();
        match state.contexts.entry(std::thread::current().id()).or_default().pop() {
            Some(_) => Ok(()),
            None => fault("cuCtxPopCurrent", code::INVALID_CONTEXT),
        }
    }

    fn exchange_capture_mode(&self, mode: u32) -> Answer<u32> {
        let mut state = self.state();
        Ok(state.modes.insert(std::thread::current().id(), mode).unwrap_or(0))
    }

    fn synchronize(&self) -> Answer<()> {
        self.enter("cuCtxSynchronize")?.run();
        Ok(())
    }

    fn enable_peer(&self, peer: RawContext) -> Answer<()> {
        let mut state = self.enter("cuCtxEnablePeerAccess")?;
        let own = state.contexts[&std::thread::current().id()].last().copied().unwrap_or(0);
        if state.peers.insert((own, peer.0)) {
            Ok(())
        } else {
            fault("cuCtxEnablePeerAccess", code::PEER_ACCESS_ALREADY_ENABLED)
        }
    }

    fn memory_info(&self) -> Answer<(u64, u64)> {
        let state = self.enter("cuMemGetInfo")?;
        Ok((state.memory.capacity - state.memory.used, state.memory.capacity))
    }

    fn alloc(&self, bytes: u64) -> Answer<u64> {
        self.enter("cuMemAlloc")?.memory.alloc(bytes).or_else(|code| fault("cuMemAlloc", code))
    }

    fn free(&self, address: u64) -> Answer<()> {
        self.enter("cuMemFree")?.memory.free(address).or_else(|code| fault("cuMemFree", code))
    }

    fn alloc_async(&self, bytes: u64, _: RawStream) -> Answer<u64> {
        let made = self.enter("cuMemAllocAsync")?.memory.alloc(bytes);
        made.or_else(|code| fault("cuMemAllocAsync", code))
    }

    fn free_async(&self, address: u64, _: RawStream) -> Answer<()> {
        let freed = self.enter("cuMemFreeAsync")?.memory.free(address);
        freed.or_else(|code| fault("cuMemFreeAsync", code))
    }

    fn host_alloc(&self, bytes: u64) -> Answer<u64> {
        Ok(self.enter("cuMemHostAlloc")?.memory.host_alloc(bytes))
    }

    fn host_free(&self, address: u64) -> Answer<()> {
        let freed = self.enter("cuMemFreeHost")?.memory.host_free(address);
        freed.or_else(|code| fault("cuMemFreeHost", code))
    }

    fn managed_alloc(&self, bytes: u64) -> Answer<u64> {
        Ok(self.enter("cuMemAllocManaged")?.memory.host_alloc(bytes))
    }

    fn prefetch(&self, _: u64, _: u64, _: Dev, _: RawStream) -> Answer<()> {
        self.enter("cuMemPrefetchAsync").map(|_| ())
    }

    fn advise(&self, _: u64, _: u64, _: u32, _: Dev) -> Answer<()> {
        self.enter("cuMemAdvise").map(|_| ())
    }

    fn granularity(&self, _: Dev) -> Answer<u64> {
        Ok(PAGE)
    }

    fn reserve(&self, bytes: u64, _: u64) -> Answer<u64> {
        Ok(self.enter("cuMemAddressReserve")?.memory.reserve(bytes))
    }

    fn unreserve(&self, address: u64, bytes: u64) -> Answer<()> {
        let gone = self.enter("cuMemAddressFree")?.memory.unreserve(address, bytes);
        gone.or_else(|code| fault("cuMemAddressFree", code))
    }

    fn create(&self, bytes: u64, _: Dev, _: bool) -> Answer<RawMemory> {
        let made = self.enter("cuMemCreate")?.memory.create(bytes);
        made.map(RawMemory).or_else(|code| fault("cuMemCreate", code))
    }

    fn release(&self, memory: RawMemory) -> Answer<()> {
        let gone = self.enter("cuMemRelease")?.memory.release(memory.0);
        gone.or_else(|code| fault("cuMemRelease", code))
    }

    fn map(&self, address: u64, bytes: u64, memory: RawMemory) -> Answer<()> {
        let done = self.enter("cuMemMap")?.memory.map(address, bytes, memory.0);
        done.or_else(|code| fault("cuMemMap", code))
    }

    fn unmap(&self, address: u64, bytes: u64) -> Answer<()> {
        let done = self.enter("cuMemUnmap")?.memory.unmap(address, bytes);
        done.or_else(|code| fault("cuMemUnmap", code))
    }

    fn set_access(&self, address: u64, bytes: u64, devices: &[Dev]) -> Answer<()> {
        let mut state = self.enter("cuMemSetAccess")?;
        let done = state.memory.set_access(address, bytes, devices);
        done.or_else(|code| fault("cuMemSetAccess", code))
    }

    fn export(&self, memory: RawMemory) -> Answer<i32> {
        use std::os::fd::IntoRawFd;
        drop(self.enter("cuMemExportToShareableHandle")?);
        // A real descriptor, so that closing it is right; its number names the object.
        let file = std::fs::File::open("/dev/null").map(IntoRawFd::into_raw_fd);
        let descriptor = file.map_err(|_| Fault { call: "open", code: 304 })?;
        self.state().memory.exported.insert(descriptor, memory.0);
        Ok(descriptor)
    }

    fn import(&self, descriptor: i32) -> Answer<RawMemory> {
        let mut state = self.enter("cuMemImportFromShareableHandle")?;
        let found = state.memory.import(descriptor).map(RawMemory);
        found.or_else(|code| fault("cuMemImportFromShareableHandle", code))
    }

    fn stream_create(&self, _: bool) -> Answer<RawStream> {
        let mut state = self.enter("cuStreamCreateWithPriority")?;
        let stream = RawStream(state.next());
        state.work.add_stream(stream);
        Ok(stream)
    }

    fn stream_destroy(&self, stream: RawStream) -> Answer<()> {
        let mut state = self.enter("cuStreamDestroy")?;
        if state.work.end_stream(stream) { Ok(()) } else { fault("cuStreamDestroy", 400) }
    }

    fn stream_context(&self, stream: RawStream) -> Answer<RawContext> {
        let state = self.enter("cuStreamGetCtx")?;
        if state.work.is_stream(stream) { Ok(RawContext(CONTEXT)) } else { Ok(RawContext(0xBAD)) }
    }

    fn stream_synchronize(&self, _: RawStream) -> Answer<()> {
        self.enter("cuStreamSynchronize").map(|_| ())
    }

    fn stream_wait(&self, stream: RawStream, event: RawEvent) -> Answer<()> {
        let version = self.state().work.version(event);
        let Some(version) = version else { return fault("cuStreamWaitEvent", 400) };
        self.submit("cuStreamWaitEvent", stream, work::Step::Wait(event, version))
    }

    fn capture_state(&self, stream: RawStream) -> Answer<CaptureState> {
        let state = self.enter("cuStreamGetCaptureInfo")?;
        if stream == RawStream::LEGACY && !state.captures.is_empty() {
            return fault("cuStreamGetCaptureInfo", code::STREAM_CAPTURE_IMPLICIT);
        }
        Ok(state.captures.get(&stream).map_or(CaptureState::None, |id| CaptureState::Active(*id)))
    }

    fn event_create(&self, _: bool) -> Answer<RawEvent> {
        let mut state = self.enter("cuEventCreate")?;
        let event = RawEvent(state.next());
        state.work.add_event(event);
        Ok(event)
    }

    fn event_destroy(&self, event: RawEvent) -> Answer<()> {
        let gone = self.enter("cuEventDestroy")?.work.remove_event(event);
        if gone { Ok(()) } else { fault("cuEventDestroy", code::INVALID_HANDLE) }
    }

    fn event_record(&self, event: RawEvent, stream: RawStream) -> Answer<()> {
        let version = self.state().work.record(event);
        let Some(version) = version else { return fault("cuEventRecord", code::INVALID_HANDLE) };
        self.submit("cuEventRecord", stream, work::Step::Record(event, version))
    }

    fn event_record_all(&self, event: RawEvent, _: RawContext) -> Answer<()> {
        let mut state = self.enter("cuCtxRecordEvent")?;
        let Some(version) = state.work.record(event) else {
            return fault("cuCtxRecordEvent", code::INVALID_HANDLE);
        };
        state.work.record_behind_all(event, version);
        state.run();
        Ok(())
    }

    fn event_query(&self, event: RawEvent) -> Answer<bool> {
        let state = self.begin("cuEventQuery")?;
        match state.work.is_done(event) {
            Some(done) => Ok(done),
            None => fault("cuEventQuery", code::INVALID_HANDLE),
        }
    }

    fn event_elapsed(&self, start: RawEvent, end: RawEvent) -> Answer<f32> {
        let state = self.enter("cuEventElapsedTime")?;
        match (state.work.is_done(start), state.work.is_done(end)) {
            (Some(true), Some(true)) => Ok(0.25),
            _ => fault("cuEventElapsedTime", code::NOT_READY),
        }
    }

    fn copy(&self, to: u64, from: u64, bytes: u64, stream: RawStream) -> Answer<()> {
        self.submit("cuMemcpyAsync", stream, work::Step::Copy { to, from, bytes })
    }

    fn fill(&self, to: u64, word: u32, words: u64, stream: RawStream) -> Answer<()> {
        self.submit("cuMemsetD32Async", stream, work::Step::Fill { to, word, words })
    }

    fn module_load(&self, image: &[u8]) -> Answer<RawModule> {
        let mut state = self.enter("cuModuleLoadData")?;
        let id = state.next();
        state.modules.load(id, image).or_else(|code| fault("cuModuleLoadData", code))
    }

    fn module_unload(&self, module: RawModule) -> Answer<()> {
        let gone = self.enter("cuModuleUnload")?.modules.unload(module);
        gone.or_else(|code| fault("cuModuleUnload", code))
    }

    fn function(&self, module: RawModule, name: &str) -> Answer<RawFunction> {
        let mut state = self.enter("cuModuleGetFunction")?;
        let id = state.next();
        let found = state.modules.function(id, module, name);
        found.or_else(|code| fault("cuModuleGetFunction", code))
    }

    fn allow_shared(&self, _: RawFunction, _: u32) -> Answer<()> {
        self.enter("cuFuncSetAttribute").map(|_| ())
    }

    fn launch(&self, launch: &Launch<'_>, stream: RawStream) -> Answer<()> {
        let launchable = self.state().modules.launchable(launch);
        let name = launchable.or_else(|code| fault("cuLaunchKernel", code))?;
        let (groups, params) = (launch.groups, launch.params.to_vec());
        self.submit("cuLaunchKernel", stream, work::Step::Kernel { name, groups, params })
    }
}

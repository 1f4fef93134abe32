//! The driver through its function table.
//!
//! The one reason behind every block that says "by contract": the trait's callers pass live handles
//! and ranges of this driver's (see the parent module), and results go to locals.

use std::ffi::{CString, c_int, c_void};
use std::ptr;

use cudarc::driver::sys;

use super::count::counted;
use super::table::Table;
use super::{
    Answer, Attribute, CAPTURE_RELAXED, CaptureState, Dev, Driver, Fault, Launch, RawContext,
    RawEvent, RawFunction, RawMemory, RawModule, RawStream, code,
};

/// Page-locked memory is seen by every context, mapped for the device.
const HOST_ALLOC_FLAGS: u32 = 0x01 | 0x02;
const MANAGED_GLOBAL: u32 = 1;
const STREAM_NON_BLOCKING: u32 = 1;
const EVENT_DISABLE_TIMING: u32 = 2;
const POSIX_DESCRIPTOR: u32 = 1;
const FUNC_MAX_DYNAMIC_SHARED: c_int = 8;
const JIT_ERROR_LOG: u32 = 5;
const JIT_ERROR_LOG_SIZE: u32 = 6;
const JIT_LOG_BYTES: usize = 8 << 10;
/// Markers of `cuLaunchKernel`'s list of extras.
const LAUNCH_END: usize = 0;
const LAUNCH_BUFFER: usize = 1;
const LAUNCH_BUFFER_SIZE: usize = 2;

pub(super) struct RealDriver {
    table: Table,
}

fn check(call: &'static str, function: impl FnOnce() -> c_int) -> Answer<()> {
    let code = counted(call, function);
    if code == 0 { Ok(()) } else { Err(Fault { call, code }) }
}

/// Calls a function of the table and turns its code into an answer named after the function.
macro_rules! call {
    ($self:ident.$field:ident, $name:literal, $($arg:expr),* $(,)?) => {
        check($name, || ($self.table.$field)($($arg),*))
    };
}

fn pointer(handle: u64) -> *mut c_void {
    ptr::without_provenance_mut(handle as usize)
}

fn handle(pointer: *mut c_void) -> u64 {
    pointer.addr() as u64
}

/// On 64-bit targets, the only ones CUDA has, every `u64` fits.
fn size(bytes: u64) -> usize {
    bytes as usize
}

fn location(device: Dev) -> sys::CUmemLocation {
    sys::CUmemLocation {
        type_: sys::CUmemLocationType_enum::CU_MEM_LOCATION_TYPE_DEVICE,
        id: device.0,
    }
}

fn properties(device: Dev, exportable: bool) -> sys::CUmemAllocationProp {
    let posix = sys::CUmemAllocationHandleType_enum(if exportable { POSIX_DESCRIPTOR } else { 0 });
    sys::CUmemAllocationProp {
        type_: sys::CUmemAllocationType_enum::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: posix,
        location: location(device),
        win32HandleMetaData: ptr::null_mut(),
        allocFlags: sys::CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: 0,
            usage: 0,
            reserved: [0; 4],
        },
    }
}

impl RealDriver {
    pub(super) fn new(table: Table) -> Self {
        Self { table }
    }
}

impl Driver for RealDriver {
    fn init(&self) -> Answer<()> {
        // SAFETY: no arguments to get wrong; may be called any number of times.
        unsafe { call!(self.init, "cuInit", 0) }
    }

    fn version(&self) -> Answer<i32> {
        let mut version = 0;
        // SAFETY: by contract.
        unsafe { call!(self.driver_version, "cuDriverGetVersion", &raw mut version) }?;
        Ok(version)
    }

    fn device_count(&self) -> Answer<i32> {
        let mut count = 0;
        // SAFETY: by contract.
        unsafe { call!(self.device_count, "cuDeviceGetCount", &raw mut count) }?;
        Ok(count)
    }

    fn device(&self, ordinal: i32) -> Answer<Dev> {
        let mut device = 0;
        // SAFETY: by contract; the driver checks the ordinal.
        unsafe { call!(self.device_get, "cuDeviceGet", &raw mut device, ordinal) }?;
        Ok(Dev(device))
    }

    fn device_name(&self, device: Dev) -> Answer<String> {
        let mut name = [0_u8; 256];
        // SAFETY: the driver writes at most the 256 bytes that it is told of, zero-terminated.
        unsafe {
            call!(self.device_name, "cuDeviceGetName", name.as_mut_ptr().cast(), 256, device.0)
        }?;
        let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
        Ok(String::from_utf8_lossy(&name[..end]).into_owned())
    }

    fn device_uuid(&self, device: Dev) -> Answer<[u8; 16]> {
        let mut uuid = [0; 16];
        // SAFETY: a CUuuid is 16 bytes.
        unsafe { call!(self.device_uuid, "cuDeviceGetUuid_v2", &raw mut uuid, device.0) }?;
        Ok(uuid)
    }

    fn device_memory(&self, device: Dev) -> Answer<u64> {
        let mut bytes = 0;
        // SAFETY: by contract.
        unsafe { call!(self.device_memory, "cuDeviceTotalMem", &raw mut bytes, device.0) }?;
        Ok(bytes as u64)
    }

    fn attribute(&self, attribute: Attribute, device: Dev) -> Answer<i32> {
        let (mut value, attribute) = (0, attribute as c_int);
        // SAFETY: by contract; the driver checks the attribute's number.
        unsafe {
            let out = &raw mut value;
            call!(self.device_attribute, "cuDeviceGetAttribute", out, attribute, device.0)
        }?;
        Ok(value)
    }

    fn can_access_peer(&self, device: Dev, peer: Dev) -> Answer<bool> {
        let mut can = 0;
        // SAFETY: by contract.
        unsafe {
            let out = &raw mut can;
            call!(self.device_can_access_peer, "cuDeviceCanAccessPeer", out, device.0, peer.0)
        }?;
        Ok(can != 0)
    }

    fn primary_retain(&self, device: Dev) -> Answer<RawContext> {
        let mut context = ptr::null_mut();
        // SAFETY: by contract; released by `primary_release`.
        unsafe {
            call!(self.primary_retain, "cuDevicePrimaryCtxRetain", &raw mut context, device.0)
        }?;
        Ok(RawContext(handle(context)))
    }

    fn primary_release(&self, device: Dev) -> Answer<()> {
        // SAFETY: by contract; balances a retain.
        unsafe { call!(self.primary_release, "cuDevicePrimaryCtxRelease", device.0) }
    }

    fn current(&self) -> Answer<RawContext> {
        let mut context = ptr::null_mut();
        // SAFETY: by contract.
        unsafe { call!(self.ctx_current, "cuCtxGetCurrent", &raw mut context) }?;
        Ok(RawContext(handle(context)))
    }

    fn push(&self, context: RawContext) -> Answer<()> {
        // SAFETY: the context is retained by the device that pushes it.
        unsafe { call!(self.ctx_push, "cuCtxPushCurrent", pointer(context.0)) }
    }

    fn pop(&self) -> Answer<()> {
        let mut context = ptr::null_mut();
        // SAFETY: by contract; balances a push on this thread.
        unsafe { call!(self.ctx_pop, "cuCtxPopCurrent", &raw mut context) }
    }

    fn exchange_capture_mode(&self, mode: u32) -> Answer<u32> {
        let mut mode = mode.min(CAPTURE_RELAXED);
        // SAFETY: the mode is one of the three; it concerns this thread only.
        unsafe {
            let out = &raw mut mode;
            call!(self.exchange_capture_mode, "cuThreadExchangeStreamCaptureMode", out)
        }?;
        Ok(mode)
    }

    fn synchronize(&self) -> Answer<()> {
        // SAFETY: a context is current, by contract.
        unsafe { call!(self.ctx_synchronize, "cuCtxSynchronize",) }
    }

    fn enable_peer(&self, peer: RawContext) -> Answer<()> {
        // SAFETY: by contract, the peer's context is retained by its device.
        unsafe { call!(self.ctx_enable_peer, "cuCtxEnablePeerAccess", pointer(peer.0), 0) }
    }

    fn memory_info(&self) -> Answer<(u64, u64)> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: by contract.
        unsafe { call!(self.mem_info, "cuMemGetInfo", &raw mut free, &raw mut total) }?;
        Ok((free as u64, total as u64))
    }

    fn alloc(&self, bytes: u64) -> Answer<u64> {
        let mut address = 0;
        // SAFETY: by contract.
        unsafe { call!(self.mem_alloc, "cuMemAlloc", &raw mut address, size(bytes)) }?;
        Ok(address)
    }

    fn free(&self, address: u64) -> Answer<()> {
        // SAFETY: by contract, from `alloc` or `managed_alloc` and freed once.
        unsafe { call!(self.mem_free, "cuMemFree", address) }
    }

    fn alloc_async(&self, bytes: u64, stream: RawStream) -> Answer<u64> {
        let (mut address, stream) = (0, pointer(stream.0));
        // SAFETY: by contract.
        unsafe {
            call!(self.mem_alloc_async, "cuMemAllocAsync", &raw mut address, size(bytes), stream)
        }?;
        Ok(address)
    }

    fn free_async(&self, address: u64, stream: RawStream) -> Answer<()> {
        // SAFETY: by contract, from `alloc_async` and freed once.
        unsafe { call!(self.mem_free_async, "cuMemFreeAsync", address, pointer(stream.0)) }
    }

    fn host_alloc(&self, bytes: u64) -> Answer<u64> {
        let mut memory = ptr::null_mut();
        // SAFETY: by contract.
        unsafe {
            let out = &raw mut memory;
            call!(self.mem_host_alloc, "cuMemHostAlloc", out, size(bytes), HOST_ALLOC_FLAGS)
        }?;
        // The host dereferences this address later, so its provenance has to be given out.
        Ok(memory.expose_provenance() as u64)
    }

    fn host_free(&self, address: u64) -> Answer<()> {
        let memory = ptr::with_exposed_provenance_mut(size(address));
        // SAFETY: by contract, from `host_alloc` and freed once.
        unsafe { call!(self.mem_free_host, "cuMemFreeHost", memory) }
    }

    fn managed_alloc(&self, bytes: u64) -> Answer<u64> {
        let mut address = 0;
        // SAFETY: by contract.
        unsafe {
            let out = &raw mut address;
            call!(self.mem_alloc_managed, "cuMemAllocManaged", out, size(bytes), MANAGED_GLOBAL)
        }?;
        Ok(address)
    }

    fn prefetch(&self, address: u64, bytes: u64, device: Dev, stream: RawStream) -> Answer<()> {
        let stream = pointer(stream.0);
        // SAFETY: by contract, a managed range.
        unsafe {
            call!(self.mem_prefetch, "cuMemPrefetchAsync", address, size(bytes), device.0, stream)
        }
    }

    fn advise(&self, address: u64, bytes: u64, advice: u32, device: Dev) -> Answer<()> {
        // SAFETY: by contract, a managed range; the driver checks the advice's number.
        unsafe { call!(self.mem_advise, "cuMemAdvise", address, size(bytes), advice, device.0) }
    }

    fn granularity(&self, device: Dev) -> Answer<u64> {
        let (mut bytes, prop) = (0, properties(device, false));
        // SAFETY: by contract; 0 asks for the minimum.
        unsafe {
            let out = &raw mut bytes;
            call!(self.mem_granularity, "cuMemGetAllocationGranularity", out, &raw const prop, 0)
        }?;
        Ok(bytes as u64)
    }

    fn reserve(&self, bytes: u64, align: u64) -> Answer<u64> {
        let (mut at, bytes, align) = (0, size(bytes), size(align));
        // SAFETY: by contract; the driver chooses the address.
        unsafe {
            call!(self.mem_address_reserve, "cuMemAddressReserve", &raw mut at, bytes, align, 0, 0)
        }?;
        Ok(at)
    }

    fn unreserve(&self, address: u64, bytes: u64) -> Answer<()> {
        // SAFETY: by contract, exactly a reservation with nothing mapped.
        unsafe { call!(self.mem_address_free, "cuMemAddressFree", address, size(bytes)) }
    }

    fn create(&self, bytes: u64, device: Dev, exportable: bool) -> Answer<RawMemory> {
        let (mut memory, prop) = (0, properties(device, exportable));
        // SAFETY: by contract.
        unsafe {
            let out = &raw mut memory;
            call!(self.mem_create, "cuMemCreate", out, size(bytes), &raw const prop, 0)
        }?;
        Ok(RawMemory(memory))
    }

    fn release(&self, memory: RawMemory) -> Answer<()> {
        // SAFETY: by contract, from `create` or `import` and released once.
        unsafe { call!(self.mem_release, "cuMemRelease", memory.0) }
    }

    fn map(&self, address: u64, bytes: u64, memory: RawMemory) -> Answer<()> {
        // SAFETY: by contract, inside a reservation where nothing is mapped.
        unsafe { call!(self.mem_map, "cuMemMap", address, size(bytes), 0, memory.0, 0) }
    }

    fn unmap(&self, address: u64, bytes: u64) -> Answer<()> {
        // SAFETY: by contract, exactly an earlier mapping, unused by work.
        unsafe { call!(self.mem_unmap, "cuMemUnmap", address, size(bytes)) }
    }

    fn set_access(&self, address: u64, bytes: u64, devices: &[Dev]) -> Answer<()> {
        let access: Vec<_> = devices
            .iter()
            .map(|&device| sys::CUmemAccessDesc {
                location: location(device),
                flags: sys::CUmemAccess_flags_enum::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
            })
            .collect();
        let (list, count) = (access.as_ptr(), access.len());
        // SAFETY: by contract, a mapped range; the list outlives the call.
        unsafe { call!(self.mem_set_access, "cuMemSetAccess", address, size(bytes), list, count) }
    }

    fn export(&self, memory: RawMemory) -> Answer<i32> {
        let mut descriptor: c_int = -1;
        // SAFETY: by contract; for this handle type the driver writes one int.
        unsafe {
            let out = (&raw mut descriptor).cast();
            let call = "cuMemExportToShareableHandle";
            check(call, || (self.table.mem_export)(out, memory.0, POSIX_DESCRIPTOR, 0))
        }?;
        Ok(descriptor)
    }

    fn import(&self, descriptor: i32) -> Answer<RawMemory> {
        // For this handle type the descriptor itself travels in the pointer argument.
        let (mut memory, descriptor) = (0, pointer(descriptor as u64));
        // SAFETY: by contract; the driver checks the descriptor.
        unsafe {
            let (out, call) = (&raw mut memory, "cuMemImportFromShareableHandle");
            check(call, || (self.table.mem_import)(out, descriptor, POSIX_DESCRIPTOR))
        }?;
        Ok(RawMemory(memory))
    }

    fn stream_create(&self, high_priority: bool) -> Answer<RawStream> {
        let (mut least, mut greatest, mut stream) = (0, 0, ptr::null_mut());
        // SAFETY: by contract.
        unsafe {
            let (low, high) = (&raw mut least, &raw mut greatest);
            call!(self.stream_priorities, "cuCtxGetStreamPriorityRange", low, high)
        }?;
        let priority = if high_priority { greatest } else { least };
        // SAFETY: by contract; destroyed by `stream_destroy`.
        unsafe {
            let (out, call) = (&raw mut stream, "cuStreamCreateWithPriority");
            check(call, || (self.table.stream_create)(out, STREAM_NON_BLOCKING, priority))
        }?;
        Ok(RawStream(handle(stream)))
    }

    fn stream_destroy(&self, stream: RawStream) -> Answer<()> {
        // SAFETY: by contract, from `stream_create` and destroyed once.
        unsafe { call!(self.stream_destroy, "cuStreamDestroy", pointer(stream.0)) }
    }

    fn stream_context(&self, stream: RawStream) -> Answer<RawContext> {
        let mut context = ptr::null_mut();
        // SAFETY: by contract.
        unsafe {
            call!(self.stream_context, "cuStreamGetCtx", pointer(stream.0), &raw mut context)
        }?;
        Ok(RawContext(handle(context)))
    }

    fn stream_synchronize(&self, stream: RawStream) -> Answer<()> {
        // SAFETY: by contract.
        unsafe { call!(self.stream_synchronize, "cuStreamSynchronize", pointer(stream.0)) }
    }

    fn stream_wait(&self, stream: RawStream, event: RawEvent) -> Answer<()> {
        let (stream, event) = (pointer(stream.0), pointer(event.0));
        // SAFETY: by contract.
        unsafe { call!(self.stream_wait, "cuStreamWaitEvent", stream, event, 0) }
    }

    fn capture_state(&self, stream: RawStream) -> Answer<CaptureState> {
        let (mut status, mut id) = (0, 0);
        let (graph, nodes, count) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        // SAFETY: by contract; the driver allows null for results that are not wanted.
        unsafe {
            let (stream, status, id) = (pointer(stream.0), &raw mut status, &raw mut id);
            let info = self.table.stream_capture_info;
            check("cuStreamGetCaptureInfo", || info(stream, status, id, graph, nodes, count))
        }?;
        Ok(if status == 0 { CaptureState::None } else { CaptureState::Active(id) })
    }

    fn event_create(&self, timed: bool) -> Answer<RawEvent> {
        let (mut event, flags) = (ptr::null_mut(), if timed { 0 } else { EVENT_DISABLE_TIMING });
        // SAFETY: by contract; destroyed by `event_destroy`.
        unsafe { call!(self.event_create, "cuEventCreate", &raw mut event, flags) }?;
        Ok(RawEvent(handle(event)))
    }

    fn event_destroy(&self, event: RawEvent) -> Answer<()> {
        // SAFETY: by contract, from `event_create` and destroyed once.
        unsafe { call!(self.event_destroy, "cuEventDestroy", pointer(event.0)) }
    }

    fn event_record(&self, event: RawEvent, stream: RawStream) -> Answer<()> {
        // SAFETY: by contract.
        unsafe { call!(self.event_record, "cuEventRecord", pointer(event.0), pointer(stream.0)) }
    }

    fn event_record_all(&self, event: RawEvent, context: RawContext) -> Answer<()> {
        let Some(record) = self.table.ctx_record_event else {
            return self.event_record(event, RawStream::LEGACY);
        };
        // SAFETY: by contract.
        let record = || unsafe { record(pointer(context.0), pointer(event.0)) };
        // Not every kind of context can do that; the legacy stream covers all but streams that
        // were made not to wait for it.
        check("cuCtxRecordEvent", record).or_else(|_| self.event_record(event, RawStream::LEGACY))
    }

    fn event_query(&self, event: RawEvent) -> Answer<bool> {
        // SAFETY: by contract.
        let answer = unsafe { call!(self.event_query, "cuEventQuery", pointer(event.0)) };
        let not_ready =
            |fault: Fault| (fault.code == code::NOT_READY).then_some(false).ok_or(fault);
        answer.map(|()| true).or_else(not_ready)
    }

    fn event_elapsed(&self, start: RawEvent, end: RawEvent) -> Answer<f32> {
        let (mut ms, start, end) = (0.0, pointer(start.0), pointer(end.0));
        // SAFETY: by contract, both recorded and done.
        unsafe { call!(self.event_elapsed, "cuEventElapsedTime", &raw mut ms, start, end) }?;
        Ok(ms)
    }

    fn copy(&self, to: u64, from: u64, bytes: u64, stream: RawStream) -> Answer<()> {
        let stream = pointer(stream.0);
        // SAFETY: by contract, both ranges are memory of this driver that stays until the work
        // is done.
        unsafe { call!(self.memcpy_async, "cuMemcpyAsync", to, from, size(bytes), stream) }
    }

    fn fill(&self, to: u64, word: u32, words: u64, stream: RawStream) -> Answer<()> {
        let stream = pointer(stream.0);
        // SAFETY: by contract, as for `copy`.
        unsafe { call!(self.memset_async, "cuMemsetD32Async", to, word, size(words), stream) }
    }

    fn module_load(&self, image: &[u8]) -> Answer<RawModule> {
        let (mut module, image) = (ptr::null_mut(), image.as_ptr().cast());
        let mut log = vec![0_u8; JIT_LOG_BYTES];
        let mut options = [JIT_ERROR_LOG, JIT_ERROR_LOG_SIZE];
        let mut values = [log.as_mut_ptr().cast(), pointer(JIT_LOG_BYTES as u64)];
        // SAFETY: the image ends in a zero byte where it is text, and tells its own length where
        // it is a cubin; who loads it promised that it is well formed. The log is as long as the
        // option says, and two options are given.
        let loaded = unsafe {
            let (load, out, values) = (self.table.module_load, &raw mut module, &raw mut values);
            let (count, options) = (2, options.as_mut_ptr());
            check("cuModuleLoadDataEx", || load(out, image, count, options, values.cast()))
        };
        loaded.inspect_err(|fault| {
            let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
            let text = String::from_utf8_lossy(&log[..end]);
            tracing::error!(code = fault.code, "a kernel does not load: {text}");
        })?;
        Ok(RawModule(handle(module)))
    }

    fn module_unload(&self, module: RawModule) -> Answer<()> {
        // SAFETY: by contract, loaded once and with no work in flight.
        unsafe { call!(self.module_unload, "cuModuleUnload", pointer(module.0)) }
    }

    fn function(&self, module: RawModule, name: &str) -> Answer<RawFunction> {
        let call = "cuModuleGetFunction";
        let name = CString::new(name).map_err(|_| Fault { call, code: code::NOT_FOUND })?;
        let mut function = ptr::null_mut();
        // SAFETY: by contract; the name is zero-terminated.
        unsafe {
            let (out, module) = (&raw mut function, pointer(module.0));
            check(call, || (self.table.module_function)(out, module, name.as_ptr()))
        }?;
        Ok(RawFunction(handle(function)))
    }

    fn allow_shared(&self, function: RawFunction, bytes: u32) -> Answer<()> {
        let (function, bytes) = (pointer(function.0), bytes.cast_signed());
        // SAFETY: by contract; the driver checks the value.
        unsafe {
            let set = self.table.function_set_attribute;
            check("cuFuncSetAttribute", || set(function, FUNC_MAX_DYNAMIC_SHARED, bytes))
        }
    }

    fn launch(&self, launch: &Launch<'_>, stream: RawStream) -> Answer<()> {
        let mut bytes = launch.params.len();
        let mut extra = [
            pointer(LAUNCH_BUFFER as u64),
            launch.params.as_ptr().cast_mut().cast(),
            pointer(LAUNCH_BUFFER_SIZE as u64),
            (&raw mut bytes).cast(),
            pointer(LAUNCH_END as u64),
        ];
        let ([gx, gy, gz], [tx, ty, tz]) = (launch.groups, launch.threads);
        let (function, shared) = (pointer(launch.function.0), launch.shared_bytes);
        // SAFETY: by contract; the driver copies the parameters before it returns, and the kernel
        // keeps to them as its loader promised.
        unsafe {
            let (start, stream, none) = (self.table.launch, pointer(stream.0), ptr::null_mut());
            let extra = extra.as_mut_ptr();
            let run = || start(function, gx, gy, gz, tx, ty, tz, shared, stream, none, extra);
            check("cuLaunchKernel", run)
        }
    }
}

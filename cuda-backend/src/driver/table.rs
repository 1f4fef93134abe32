//! The driver's functions as pointers, looked up once.
//!
//! cudarc finds the library and knows the layout of the driver's structs. Its own wrappers are
//! not called: they panic when a symbol is missing, and they return a Rust enum, which a newer
//! driver could answer with a code that the enum does not know.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use cudarc::driver::sys;

use crate::CudaUnavailable;

/// Handles travel as pointers or 64-bit numbers, as the driver declares them.
type Ptr = *mut c_void;
/// Where the driver writes a handle.
type Out = *mut *mut c_void;

fn symbol<F: Copy>(name: &'static str) -> Option<F> {
    // SAFETY: the caller saw that the library is present, so this does not panic.
    let library = unsafe { sys::culib() };
    // SAFETY: F is the function's type as the driver's header declares it; the library is never
    // unloaded, so the pointer may outlive the borrow.
    unsafe { library.get::<F>(name.as_bytes()) }.ok().map(|symbol| *symbol)
}

macro_rules! table {
    ($($field:ident = $name:literal ($($arg:ty),*);)*) => {
        /// Pointers to the driver's functions; each returns a result code.
        #[derive(Clone, Copy)]
        pub(super) struct Table {
            $(pub(super) $field: unsafe extern "C" fn($($arg),*) -> c_int,)*
            /// Only in drivers of CUDA 12.5 and later.
            pub(super) ctx_record_event: Option<unsafe extern "C" fn(Ptr, Ptr) -> c_int>,
        }

        impl Table {
            /// Looks every function up. Pre: the library is present.
            pub(super) fn load() -> Result<Self, CudaUnavailable> {
                Ok(Self {
                    $($field: symbol($name).ok_or(CudaUnavailable::MissingSymbol($name))?,)*
                    ctx_record_event: symbol("cuCtxRecordEvent"),
                })
            }
        }
    };
}

table! {
    init = "cuInit" (c_uint);
    driver_version = "cuDriverGetVersion" (*mut c_int);
    device_count = "cuDeviceGetCount" (*mut c_int);
    device_get = "cuDeviceGet" (*mut c_int, c_int);
    device_name = "cuDeviceGetName" (*mut c_char, c_int, c_int);
    device_uuid = "cuDeviceGetUuid_v2" (*mut [u8; 16], c_int);
    device_memory = "cuDeviceTotalMem_v2" (*mut usize, c_int);
    device_attribute = "cuDeviceGetAttribute" (*mut c_int, c_int, c_int);
    device_can_access_peer = "cuDeviceCanAccessPeer" (*mut c_int, c_int, c_int);
    primary_retain = "cuDevicePrimaryCtxRetain" (Out, c_int);
    primary_release = "cuDevicePrimaryCtxRelease_v2" (c_int);
    ctx_current = "cuCtxGetCurrent" (Out);
    ctx_push = "cuCtxPushCurrent_v2" (Ptr);
    ctx_pop = "cuCtxPopCurrent_v2" (Out);
    ctx_synchronize = "cuCtxSynchronize" ();
    ctx_enable_peer = "cuCtxEnablePeerAccess" (Ptr, c_uint);
    exchange_capture_mode = "cuThreadExchangeStreamCaptureMode" (*mut c_uint);
    mem_info = "cuMemGetInfo_v2" (*mut usize, *mut usize);
    mem_alloc = "cuMemAlloc_v2" (*mut c_ulonglong, usize);
    mem_free = "cuMemFree_v2" (c_ulonglong);
    mem_alloc_async = "cuMemAllocAsync" (*mut c_ulonglong, usize, Ptr);
    mem_free_async = "cuMemFreeAsync" (c_ulonglong, Ptr);
    mem_host_alloc = "cuMemHostAlloc" (Out, usize, c_uint);
    mem_free_host = "cuMemFreeHost" (Ptr);
    mem_alloc_managed = "cuMemAllocManaged" (*mut c_ulonglong, usize, c_uint);
    mem_prefetch = "cuMemPrefetchAsync" (c_ulonglong, usize, c_int, Ptr);
    mem_advise = "cuMemAdvise" (c_ulonglong, usize, c_uint, c_int);
    mem_granularity = "cuMemGetAllocationGranularity"
        (*mut usize, *const sys::CUmemAllocationProp, c_uint);
    mem_address_reserve = "cuMemAddressReserve"
        (*mut c_ulonglong, usize, usize, c_ulonglong, c_ulonglong);
    mem_address_free = "cuMemAddressFree" (c_ulonglong, usize);
    mem_create = "cuMemCreate"
        (*mut c_ulonglong, usize, *const sys::CUmemAllocationProp, c_ulonglong);
    mem_release = "cuMemRelease" (c_ulonglong);
    mem_map = "cuMemMap" (c_ulonglong, usize, usize, c_ulonglong, c_ulonglong);
    mem_unmap = "cuMemUnmap" (c_ulonglong, usize);
    mem_set_access = "cuMemSetAccess" (c_ulonglong, usize, *const sys::CUmemAccessDesc, usize);
    mem_export = "cuMemExportToShareableHandle" (*mut c_void, c_ulonglong, c_uint, c_ulonglong);
    mem_import = "cuMemImportFromShareableHandle" (*mut c_ulonglong, Ptr, c_uint);
    stream_create = "cuStreamCreateWithPriority" (Out, c_uint, c_int);
    stream_priorities = "cuCtxGetStreamPriorityRange" (*mut c_int, *mut c_int);
    stream_destroy = "cuStreamDestroy_v2" (Ptr);
    stream_context = "cuStreamGetCtx" (Ptr, Out);
    stream_synchronize = "cuStreamSynchronize" (Ptr);
    stream_wait = "cuStreamWaitEvent" (Ptr, Ptr, c_uint);
    stream_capture_info = "cuStreamGetCaptureInfo_v2"
        (Ptr, *mut c_uint, *mut u64, Out, *mut *const Ptr, *mut usize);
    event_create = "cuEventCreate" (Out, c_uint);
    event_destroy = "cuEventDestroy_v2" (Ptr);
    event_record = "cuEventRecord" (Ptr, Ptr);
    event_query = "cuEventQuery" (Ptr);
    event_elapsed = "cuEventElapsedTime" (*mut f32, Ptr, Ptr);
    memcpy_async = "cuMemcpyAsync" (c_ulonglong, c_ulonglong, usize, Ptr);
    memset_async = "cuMemsetD32Async" (c_ulonglong, c_uint, usize, Ptr);
    module_load = "cuModuleLoadDataEx" (Out, *const c_void, c_uint, *mut c_uint, Out);
    module_unload = "cuModuleUnload" (Ptr);
    module_function = "cuModuleGetFunction" (Out, Ptr, *const c_char);
    function_set_attribute = "cuFuncSetAttribute" (Ptr, c_int, c_int);
    launch = "cuLaunchKernel"
        (Ptr, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Ptr, Out, Out);
}

//! The driver's library, and its calls.

use std::{
    ffi::{OsStr, c_char, c_void},
    sync::{Arc, atomic::AtomicUsize},
};

use binpool_allocators::Error;
#[cfg(not(miri))]
use libloading::Library;
use parking_lot::RwLock;

use super::{
    kept::OfEndedGraphs,
    status::{CudaError, CudaResult, NOT_FOUND, SUCCESS},
};

/// A handle of the driver (`CUcontext`, `CUstream`, `CUevent`, ...): a number that only the driver looks behind.
pub(crate) type Handle = usize;
/// The address of a byte on the device, or, with unified addressing, on the host.
pub(crate) type Address = u64;

/// `CUhostFn`.
pub(super) type Destroy = unsafe extern "C" fn(*mut c_void);

/// `CUmemLocation`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Location {
    kind: i32,
    device: i32,
}

impl Location {
    pub(super) const fn of_device(device: i32) -> Self {
        Self { kind: 1, device }
    }
}

/// The properties of pages or of a pool (`CUmemAllocationProp`, `CUmemPoolProps`). They begin alike, and what follows is 0: that of pools is
/// longer.
#[repr(C)]
pub(super) struct Properties {
    kind: i32,
    shared_handles: i32,
    location: Location,
    rest: [usize; 9],
}

impl Properties {
    /// Pinned memory of a device, which no other process can have.
    pub(super) const fn on(device: i32) -> Self {
        Self {
            kind: 1,
            shared_handles: 0,
            location: Location::of_device(device),
            rest: [0; 9],
        }
    }

    /// Pages of a device that can be shared so far.
    pub(super) const fn shared(device: i32, sharing: Sharing) -> Self {
        let mut properties = Self::on(device);
        if !matches!(sharing, Sharing::No) {
            properties.shared_handles = DESCRIPTOR;
        }
        if matches!(sharing, Sharing::DescriptorAndRdma) {
            // `allocFlags.gpuDirectRDMACapable`, the second byte after a pointer: all hosts of CUDA are little-endian.
            properties.rest[1] = 1 << 8;
        }
        properties
    }
}

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
pub(super) const DESCRIPTOR: i32 = 1;

/// How far pages can be shared with others than their own process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sharing {
    #[default]
    No,
    /// With processes that get a file descriptor.
    Descriptor,
    /// And with network cards, which read and write it themselves.
    DescriptorAndRdma,
}

/// `CUmemAccessDesc`.
#[repr(C)]
pub(super) struct Access {
    location: Location,
    rights: i32,
}

impl Access {
    pub(super) const fn read_and_write(device: i32) -> Self {
        Self {
            location: Location::of_device(device),
            rights: 3,
        }
    }
}

/// Defines the table of the driver's calls, with a method for each that returns its error.
macro_rules! calls {
    ($($name:ident: $symbol:literal as $call:literal ($($argument:ident: $type:ty),*);)*) => {
        /// The calls of a library that was loaded.
        ///
        /// # Invariants
        ///
        /// I1: Each function is the symbol of its name in `library`, which stays loaded as long as this value lives.
        pub(crate) struct Driver {
            $($name: unsafe extern "system" fn($($type),*) -> i32,)*
            /// `cuCtxRecordEvent`, which drivers before 12.5 do not have.
            context_record: Option<unsafe extern "system" fn(Handle, Handle) -> i32>,
            /// The user events that streams wait for and that are not resolved. While there are any, no call may be made that waits for a device.
            pub(super) unresolved: AtomicUsize,
            /// The streams of this crate, each with its context before it ([`super::streams`]).
            pub(super) streams: RwLock<Vec<(Handle, Handle)>>,
            /// What graphs have kept that are gone.
            pub(super) of_ended_graphs: Arc<OfEndedGraphs>,
            /// Keeps the functions loaded.
            #[cfg(not(miri))]
            _library: Library,
        }

        impl Driver {
            /// Finds the calls in `library`.
            ///
            /// # Safety
            ///
            /// The functions of the library have the signatures of the CUDA driver's.
            #[cfg(not(miri))]
            unsafe fn find(library: Library) -> Result<Self, libloading::Error> {
                Ok(Self {
                    // SAFETY: The signature is right, as the caller promises, and the function outlives the symbol by I1.
                    $($name: *unsafe { library.get($symbol.as_bytes()) }?,)*
                    // SAFETY: As above.
                    context_record: unsafe { library.get(b"cuCtxRecordEvent") }.ok().map(|call| *call),
                    unresolved: AtomicUsize::new(0),
                    streams: RwLock::default(),
                    of_ended_graphs: Arc::default(),
                    _library: library,
                })
            }

            /// Finds the calls in the program itself, which links the stand-in for the driver: Miri loads no libraries.
            #[cfg(miri)]
            fn linked() -> Self {
                // SAFETY: The stand-in defines these functions with the driver's signatures.
                unsafe extern "system" {
                    $(#[link_name = $symbol] fn $name($($argument: $type),*) -> i32;)*
                    #[link_name = "cuCtxRecordEvent"]
                    fn context_record(context: Handle, event: Handle) -> i32;
                }
                Self {
                    $($name,)*
                    context_record: Some(context_record),
                    unresolved: AtomicUsize::new(0),
                    streams: RwLock::default(),
                    of_ended_graphs: Arc::default(),
                }
            }

            /// Records in an event all that was enqueued in a context so far.
            ///
            /// # Safety
            ///
            /// The context lives, and the event is one of it.
            pub(super) unsafe fn context_record(&self, context: Handle, event: Handle) -> CudaResult<()> {
                let name = "cuCtxRecordEvent";
                let Some(call) = self.context_record else {
                    return Err(CudaError::new(name, NOT_FOUND));
                };
                // SAFETY: The function is loaded (I1), and the objects live, as the caller promises.
                let code = unsafe { call(context, event) };
                if code == SUCCESS { Ok(()) } else { Err(CudaError::new(name, code)) }
            }



            $(
                /// # Safety
                ///
                /// Pointers are good for what the driver's call does with them, until it returns, or, where it enqueues a
                /// command, until the command has ended.
                #[allow(clippy::too_many_arguments, reason = "those of the driver")]
                #[cfg_attr(not(unix), allow(dead_code, reason = "file descriptors are of Unix"))]
                pub(super) unsafe fn $name(&self, $($argument: $type),*) -> CudaResult<()> {
                    // SAFETY: The function is loaded (I1), and the pointers are good, as the caller promises.
                    let code = unsafe { (self.$name)($($argument),*) };
                    if code == SUCCESS { Ok(()) } else { Err(CudaError::new($call, code)) }
                }
            )*
        }
    };
}

calls! {
    init: "cuInit" as "cuInit" (flags: u32);
    device_count: "cuDeviceGetCount" as "cuDeviceGetCount" (count: *mut i32);
    device_get: "cuDeviceGet" as "cuDeviceGet" (device: *mut i32, ordinal: i32);
    device_name: "cuDeviceGetName" as "cuDeviceGetName" (name: *mut c_char, length: i32, device: i32);
    device_bytes: "cuDeviceTotalMem_v2" as "cuDeviceTotalMem" (bytes: *mut usize, device: i32);
    device_attribute: "cuDeviceGetAttribute" as "cuDeviceGetAttribute" (value: *mut i32, attribute: i32, device: i32);
    context_retain: "cuDevicePrimaryCtxRetain" as "cuDevicePrimaryCtxRetain" (context: *mut Handle, device: i32);
    context_release: "cuDevicePrimaryCtxRelease_v2" as "cuDevicePrimaryCtxRelease" (device: i32);
    context_get: "cuCtxGetCurrent" as "cuCtxGetCurrent" (context: *mut Handle);
    context_set: "cuCtxSetCurrent" as "cuCtxSetCurrent" (context: Handle);
    context_device: "cuCtxGetDevice" as "cuCtxGetDevice" (device: *mut i32);
    context_wait: "cuCtxSynchronize" as "cuCtxSynchronize" ();
    peer_can: "cuDeviceCanAccessPeer" as "cuDeviceCanAccessPeer" (can: *mut i32, device: i32, peer: i32);
    peer_enable: "cuCtxEnablePeerAccess" as "cuCtxEnablePeerAccess" (context: Handle, flags: u32);
    memory_info: "cuMemGetInfo_v2" as "cuMemGetInfo" (free: *mut usize, total: *mut usize);
    allocate: "cuMemAlloc_v2" as "cuMemAlloc" (address: *mut Address, bytes: usize);
    free: "cuMemFree_v2" as "cuMemFree" (address: Address);
    allocate_host: "cuMemHostAlloc" as "cuMemHostAlloc" (address: *mut usize, bytes: usize, flags: u32);
    free_host: "cuMemFreeHost" as "cuMemFreeHost" (address: usize);
    allocate_managed: "cuMemAllocManaged" as "cuMemAllocManaged" (address: *mut Address, bytes: usize, flags: u32);
    pool_create: "cuMemPoolCreate" as "cuMemPoolCreate" (pool: *mut Handle, properties: *const Properties);
    pool_destroy: "cuMemPoolDestroy" as "cuMemPoolDestroy" (pool: Handle);
    pool_set: "cuMemPoolSetAttribute" as "cuMemPoolSetAttribute" (pool: Handle, attribute: i32, value: *const u64);
    pool_get: "cuMemPoolGetAttribute" as "cuMemPoolGetAttribute" (pool: Handle, attribute: i32, value: *mut u64);
    pool_access: "cuMemPoolSetAccess" as "cuMemPoolSetAccess" (pool: Handle, access: *const Access, count: usize);
    pool_trim: "cuMemPoolTrimTo" as "cuMemPoolTrimTo" (pool: Handle, bytes: usize);
    pool_allocate: "cuMemAllocFromPoolAsync" as "cuMemAllocFromPoolAsync"
        (address: *mut Address, bytes: usize, pool: Handle, stream: Handle);
    pool_free: "cuMemFreeAsync" as "cuMemFreeAsync" (address: Address, stream: Handle);
    copy: "cuMemcpyAsync" as "cuMemcpyAsync" (to: Address, from: Address, bytes: usize, stream: Handle);
    copy_across: "cuMemcpyPeerAsync" as "cuMemcpyPeerAsync"
        (to: Address, there: Handle, from: Address, here: Handle, bytes: usize, stream: Handle);
    set_bytes: "cuMemsetD8Async" as "cuMemsetD8Async" (to: Address, value: u8, count: usize, stream: Handle);
    set_pairs: "cuMemsetD16Async" as "cuMemsetD16Async" (to: Address, value: u16, count: usize, stream: Handle);
    set_words: "cuMemsetD32Async" as "cuMemsetD32Async" (to: Address, value: u32, count: usize, stream: Handle);
    stream_create: "cuStreamCreate" as "cuStreamCreate" (stream: *mut Handle, flags: u32);
    stream_destroy: "cuStreamDestroy_v2" as "cuStreamDestroy" (stream: Handle);
    stream_wait: "cuStreamSynchronize" as "cuStreamSynchronize" (stream: Handle);
    stream_wait_event: "cuStreamWaitEvent" as "cuStreamWaitEvent" (stream: Handle, event: Handle, flags: u32);
    stream_wait_value: "cuStreamWaitValue32_v2" as "cuStreamWaitValue32"
        (stream: Handle, address: Address, value: u32, flags: u32);
    stream_context: "cuStreamGetCtx" as "cuStreamGetCtx" (stream: Handle, context: *mut Handle);
    stream_is_capturing: "cuStreamIsCapturing" as "cuStreamIsCapturing" (stream: Handle, status: *mut i32);
    stream_capture: "cuStreamGetCaptureInfo_v2" as "cuStreamGetCaptureInfo"
        (stream: Handle, status: *mut i32, number: *mut u64, graph: *mut Handle, nodes: usize, count: usize);
    object_create: "cuUserObjectCreate" as "cuUserObjectCreate"
        (object: *mut Handle, pointer: *mut c_void, destroy: Destroy, references: u32, flags: u32);
    object_release: "cuUserObjectRelease" as "cuUserObjectRelease" (object: Handle, references: u32);
    graph_retain: "cuGraphRetainUserObject" as "cuGraphRetainUserObject"
        (graph: Handle, object: Handle, references: u32, flags: u32);
    exchange_capture_mode: "cuThreadExchangeStreamCaptureMode" as "cuThreadExchangeStreamCaptureMode" (mode: *mut u32);
    event_create: "cuEventCreate" as "cuEventCreate" (event: *mut Handle, flags: u32);
    event_destroy: "cuEventDestroy_v2" as "cuEventDestroy" (event: Handle);
    event_record: "cuEventRecord" as "cuEventRecord" (event: Handle, stream: Handle);
    event_query: "cuEventQuery" as "cuEventQuery" (event: Handle);
    event_wait: "cuEventSynchronize" as "cuEventSynchronize" (event: Handle);
    module_load: "cuModuleLoadData" as "cuModuleLoadData" (module: *mut Handle, image: *const c_char);
    module_unload: "cuModuleUnload" as "cuModuleUnload" (module: Handle);
    module_function: "cuModuleGetFunction" as "cuModuleGetFunction" (function: *mut Handle, module: Handle, name: *const c_char);
    launch: "cuLaunchKernel" as "cuLaunchKernel"
        (function: Handle, blocks_x: u32, blocks_y: u32, blocks_z: u32, threads_x: u32, threads_y: u32, threads_z: u32,
        shared_bytes: u32, stream: Handle, arguments: *const *const c_void, extra: usize);
    granularity: "cuMemGetAllocationGranularity" as "cuMemGetAllocationGranularity"
        (bytes: *mut usize, properties: *const Properties, option: i32);
    reserve: "cuMemAddressReserve" as "cuMemAddressReserve"
        (address: *mut Address, bytes: usize, alignment: usize, wanted: Address, flags: u64);
    free_addresses: "cuMemAddressFree" as "cuMemAddressFree" (address: Address, bytes: usize);
    pages_create: "cuMemCreate" as "cuMemCreate"
        (pages: *mut u64, bytes: usize, properties: *const Properties, flags: u64);
    pages_retain: "cuMemRetainAllocationHandle" as "cuMemRetainAllocationHandle" (pages: *mut u64, address: Address);
    pages_export: "cuMemExportToShareableHandle" as "cuMemExportToShareableHandle"
        (handle: *mut i32, pages: u64, kind: i32, flags: u64);
    pages_import: "cuMemImportFromShareableHandle" as "cuMemImportFromShareableHandle"
        (pages: *mut u64, handle: usize, kind: i32);
    pages_release: "cuMemRelease" as "cuMemRelease" (pages: u64);
    map: "cuMemMap" as "cuMemMap" (address: Address, bytes: usize, offset: usize, pages: u64, flags: u64);
    unmap: "cuMemUnmap" as "cuMemUnmap" (address: Address, bytes: usize);
    set_access: "cuMemSetAccess" as "cuMemSetAccess" (address: Address, bytes: usize, access: *const Access, count: usize);
}

#[cfg(miri)]
impl Driver {
    /// The stand-in, which the program links.
    pub(crate) fn installed() -> Result<Self, Error> {
        let driver = Self::linked();
        // SAFETY: It takes no pointers.
        unsafe { driver.init(0) }?;
        Ok(driver)
    }

    /// Opens no file, but the stand-in, too.
    ///
    /// # Safety
    ///
    /// Nothing is asked of the caller.
    pub(crate) unsafe fn open(_path: &OsStr) -> Result<Self, Error> {
        Self::installed()
    }
}

/// The names under which the driver's library is installed.
#[cfg(not(miri))]
const NAMES: &[&str] = if cfg!(windows) {
    &["nvcuda.dll"]
} else {
    &["libcuda.so.1", "libcuda.so"]
};

#[cfg(not(miri))]
impl Driver {
    /// Loads the library that is installed.
    pub(crate) fn installed() -> Result<Self, Error> {
        let mut first = None;
        for name in NAMES {
            // SAFETY: The library of this name is NVIDIA's.
            match unsafe { Library::new(name) } {
                // SAFETY: The library of this name is NVIDIA's.
                Ok(library) => return unsafe { Self::over(library, name) },
                Err(error) => first = first.or(Some(error)),
            }
        }
        let why = first.map_or_else(|| NAMES[0].to_owned(), |error| error.to_string());
        Err(Error::unsupported(format!(
            "CUDA ({why}): install NVIDIA's driver, or use another backend"
        )))
    }

    /// Loads the library at `path`.
    ///
    /// # Safety
    ///
    /// Its functions have the signatures and the behaviour of the CUDA driver's, and loading it does no harm.
    pub(crate) unsafe fn open(path: &OsStr) -> Result<Self, Error> {
        let shown = path.to_string_lossy();
        // SAFETY: Loading it does no harm, as the caller promises.
        let library = unsafe { Library::new(path) }.map_err(|error| {
            Error::unsupported(format!(
                "CUDA by {shown}, which cannot be loaded ({error}): name the libcuda of an installed driver"
            ))
        })?;
        // SAFETY: It is a CUDA driver, as the caller promises.
        unsafe { Self::over(library, &shown) }
    }

    /// # Safety
    ///
    /// The functions of the library have the signatures of the CUDA driver's.
    unsafe fn over(library: Library, name: &str) -> Result<Self, Error> {
        // SAFETY: The signatures are right, as the caller promises.
        let driver = unsafe { Self::find(library) }.map_err(|error| {
            Error::unsupported(format!(
                "CUDA by {name}, which lacks a call ({error}): update the driver to version 11.7 or later"
            ))
        })?;
        // SAFETY: It takes no pointers.
        unsafe { driver.init(0) }?;
        Ok(driver)
    }
}

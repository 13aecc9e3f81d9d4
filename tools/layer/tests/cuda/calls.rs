//! The functions that the layer exports, as a program calls them.

use std::{
    ffi::{CString, c_char, c_int, c_void},
    ptr,
};

use binpool_layer as _;
use libloading::Library;

pub(crate) const OUT_OF_MEMORY: c_int = 2;
pub(crate) const MIB: usize = 1 << 20;
/// The handle of the default stream of the calling thread.
pub(crate) const PER_THREAD: usize = 2;

unsafe extern "C" {
    pub(crate) fn cuInit(flags: u32) -> c_int;
    pub(crate) fn cuDevicePrimaryCtxRetain(context: *mut usize, device: c_int) -> c_int;
    pub(crate) fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> c_int;
    pub(crate) fn cuDevicePrimaryCtxReset_v2(device: c_int) -> c_int;
    pub(crate) fn cuCtxSetCurrent(context: usize) -> c_int;
    pub(crate) fn cuCtxGetCurrent(context: *mut usize) -> c_int;
    pub(crate) fn cuCtxDestroy_v2(context: usize) -> c_int;
    pub(crate) fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> c_int;
    pub(crate) fn cuMemAllocPitch_v2(
        address: *mut u64,
        pitch: *mut usize,
        width: usize,
        height: usize,
        element: u32,
    ) -> c_int;
    pub(crate) fn cuMemFree_v2(address: u64) -> c_int;
    pub(crate) fn cuMemAllocManaged(address: *mut u64, bytes: usize, flags: u32) -> c_int;
    pub(crate) fn cuMemAllocAsync(address: *mut u64, bytes: usize, stream: usize) -> c_int;
    pub(crate) fn cuMemFreeAsync(address: u64, stream: usize) -> c_int;
    pub(crate) fn cuMemAllocAsync_ptsz(address: *mut u64, bytes: usize, stream: usize) -> c_int;
    pub(crate) fn cuMemFreeAsync_ptsz(address: u64, stream: usize) -> c_int;
    pub(crate) fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> c_int;
    pub(crate) fn cuMemGetAddressRange_v2(
        start: *mut u64,
        bytes: *mut usize,
        address: u64,
    ) -> c_int;
    pub(crate) fn cuPointerGetAttribute(value: *mut u64, attribute: c_int, address: u64) -> c_int;
    pub(crate) fn cuPointerGetAttributes(
        count: u32,
        attributes: *const c_int,
        values: *const *mut u64,
        address: u64,
    ) -> c_int;
    pub(crate) fn cuMemsetD8Async(to: u64, value: u8, count: usize, stream: usize) -> c_int;
    pub(crate) fn cuMemcpyDtoHAsync_v2(
        to: *mut u8,
        from: u64,
        bytes: usize,
        stream: usize,
    ) -> c_int;
    pub(crate) fn cuStreamCreate(stream: *mut usize, flags: u32) -> c_int;
    pub(crate) fn cuStreamDestroy_v2(stream: usize) -> c_int;
    pub(crate) fn cuStreamSynchronize(stream: usize) -> c_int;
    pub(crate) fn cuStreamWaitValue32_v2(
        stream: usize,
        address: u64,
        value: u32,
        flags: u32,
    ) -> c_int;
    pub(crate) fn cuStreamBeginCapture_v2(stream: usize, mode: c_int) -> c_int;
    pub(crate) fn cuStreamEndCapture(stream: usize, graph: *mut usize) -> c_int;
    pub(crate) fn cuMemHostAlloc(address: *mut usize, bytes: usize, flags: u32) -> c_int;
    pub(crate) fn cuMemCreate(
        pages: *mut u64,
        bytes: usize,
        properties: *const c_void,
        flags: u64,
    ) -> c_int;
    pub(crate) fn cuMemRelease(pages: u64) -> c_int;
    pub(crate) fn cuMemRetainAllocationHandle(pages: *mut u64, address: u64) -> c_int;
    pub(crate) fn cuMemAddressReserve(
        address: *mut u64,
        bytes: usize,
        alignment: usize,
        wanted: u64,
        flags: u64,
    ) -> c_int;
    pub(crate) fn cuMemMap(
        address: u64,
        bytes: usize,
        offset: usize,
        pages: u64,
        flags: u64,
    ) -> c_int;
    pub(crate) fn cuMemUnmap(address: u64, bytes: usize) -> c_int;
    pub(crate) fn cuDeviceGetMemPool(pool: *mut usize, device: c_int) -> c_int;
    pub(crate) fn cuDeviceGetDefaultMemPool(pool: *mut usize, device: c_int) -> c_int;
    pub(crate) fn cuMemPoolCreate(pool: *mut usize, properties: *const c_void) -> c_int;
    pub(crate) fn cuMemPoolDestroy(pool: usize) -> c_int;
    pub(crate) fn cuMemPoolTrimTo(pool: usize, bytes: usize) -> c_int;
    pub(crate) fn cuMemAllocFromPoolAsync(
        address: *mut u64,
        bytes: usize,
        pool: usize,
        stream: usize,
    ) -> c_int;
    pub(crate) fn cuMemAllocFromPoolAsync_ptsz(
        address: *mut u64,
        bytes: usize,
        pool: usize,
        stream: usize,
    ) -> c_int;
    pub(crate) fn cuMemPoolSetAccess(pool: usize, access: *const c_void, count: usize) -> c_int;
    pub(crate) fn cuCtxEnablePeerAccess(context: usize, flags: u32) -> c_int;
    pub(crate) fn cuMipmappedArrayDestroy(array: usize) -> c_int;
    pub(crate) fn cuGetProcAddress_v2(
        name: *const c_char,
        function: *mut *const c_void,
        version: c_int,
        flags: u64,
        status: *mut c_int,
    ) -> c_int;
}

unsafe extern "C" {
    /// What the driver itself calls in a program that is recorded.
    pub(crate) fn InitializeInjection() -> c_int;
}

/// Makes the primary context of device 0 current. The device has this much memory, in bytes.
pub(crate) fn begin(capacity: usize) {
    begin_on(0, capacity);
}

/// Makes the primary context of a device current, and returns it. The device has this much memory, in bytes.
pub(crate) fn begin_on(device: c_int, capacity: usize) -> usize {
    control::<extern "C" fn(c_int, usize)>("stand_in_capacity")(device, capacity);
    let mut context = 0;
    unsafe {
        assert_eq!(cuInit(0), 0);
        assert_eq!(cuDevicePrimaryCtxRetain(&raw mut context, device), 0);
    }
    make_current(context);
    context
}

/// Makes a context current, or none for 0.
pub(crate) fn make_current(context: usize) {
    assert_eq!(unsafe { cuCtxSetCurrent(context) }, 0);
}

/// A function of the stand-in itself.
pub(crate) fn control<F: Copy>(name: &str) -> F {
    let library = unsafe { Library::new(std::env::var("BINPOOL_LIBCUDA").unwrap()) }.unwrap();
    let function = *unsafe { library.get::<F>(name.as_bytes()) }.unwrap();
    std::mem::forget(library);
    function
}

/// Lets the next call of the driver fail.
pub(crate) fn fail_once(call: &str) {
    fail(1, call);
}

/// Lets this many calls of the driver fail.
pub(crate) fn fail(times: u64, call: &str) {
    type Fail = extern "C" fn(c_int, *const c_char, u64, u64, c_int);
    let call = CString::new(call).unwrap();
    control::<Fail>("stand_in_fail")(0, call.as_ptr(), 0, times, 999);
}

/// Pages that are mapped, and have no handle any more.
pub(crate) fn map_pages(bytes: usize) -> Result<u64, c_int> {
    let (mut pages, mut address) = (0, 0);
    unsafe {
        match cuMemCreate(&raw mut pages, bytes, ptr::null(), 0) {
            0 => {}
            code => return Err(code),
        }
        assert_eq!(cuMemAddressReserve(&raw mut address, bytes, 0, 0, 0), 0);
        assert_eq!(cuMemMap(address, bytes, 0, pages, 0), 0);
        assert_eq!(cuMemRelease(pages), 0);
    }
    Ok(address)
}

/// How often the driver itself was called.
pub(crate) fn count(call: &str) -> u64 {
    count_on(0, call)
}

/// How often the driver itself was called while a context of this device was current.
pub(crate) fn count_on(device: c_int, call: &str) -> u64 {
    let call = CString::new(call).unwrap();
    control::<extern "C" fn(c_int, *const c_char) -> u64>("stand_in_calls")(device, call.as_ptr())
}

/// The bytes that the driver has given.
pub(crate) fn used() -> usize {
    used_on(0)
}

/// The bytes that the driver has given of a device.
pub(crate) fn used_on(device: c_int) -> usize {
    control::<extern "C" fn(c_int) -> usize>("stand_in_used")(device)
}

pub(crate) fn allocate(bytes: usize) -> Result<u64, c_int> {
    let mut address = 0;
    match unsafe { cuMemAlloc_v2(&raw mut address, bytes) } {
        0 => Ok(address),
        code => Err(code),
    }
}

pub(crate) fn free(address: u64) {
    assert_eq!(unsafe { cuMemFree_v2(address) }, 0);
}

pub(crate) fn allocate_on(stream: usize, bytes: usize) -> Result<u64, c_int> {
    let mut address = 0;
    match unsafe { cuMemAllocAsync(&raw mut address, bytes, stream) } {
        0 => Ok(address),
        code => Err(code),
    }
}

/// The words of `CUmemPoolProps` for a pool of device 0, of pinned memory without handles.
pub(crate) const ORDINARY: [u64; 11] = [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Makes a pool of the driver.
pub(crate) fn make_pool(properties: [u64; 11]) -> usize {
    let mut pool = 0;
    let properties = ptr::from_ref(&properties).cast();
    assert_eq!(unsafe { cuMemPoolCreate(&raw mut pool, properties) }, 0);
    pool
}

pub(crate) fn allocate_from(pool: usize, stream: usize, bytes: usize) -> Result<u64, c_int> {
    let mut address = 0;
    match unsafe { cuMemAllocFromPoolAsync(&raw mut address, bytes, pool, stream) } {
        0 => Ok(address),
        code => Err(code),
    }
}

pub(crate) fn free_on(stream: usize, address: u64) {
    assert_eq!(unsafe { cuMemFreeAsync(address, stream) }, 0);
}

pub(crate) fn create_stream() -> usize {
    let mut stream = 0;
    assert_eq!(unsafe { cuStreamCreate(&raw mut stream, 1) }, 0);
    stream
}

pub(crate) fn destroy_stream(stream: usize) {
    assert_eq!(unsafe { cuStreamDestroy_v2(stream) }, 0);
}

pub(crate) fn wait(stream: usize) {
    assert_eq!(unsafe { cuStreamSynchronize(stream) }, 0);
}

/// Fills memory, and returns whether it was so.
pub(crate) fn fill(stream: usize, address: u64, value: u8, bytes: usize) {
    assert_eq!(unsafe { cuMemsetD8Async(address, value, bytes, stream) }, 0);
}

pub(crate) fn read(stream: usize, address: u64, bytes: usize) -> Vec<u8> {
    let mut data = vec![0; bytes];
    let code = unsafe { cuMemcpyDtoHAsync_v2(data.as_mut_ptr(), address, bytes, stream) };
    assert_eq!(code, 0);
    wait(stream);
    data
}

/// The free and all bytes, as the program is told.
pub(crate) fn memory() -> (usize, usize) {
    let (mut free, mut total) = (0, 0);
    assert_eq!(unsafe { cuMemGetInfo_v2(&raw mut free, &raw mut total) }, 0);
    (free, total)
}

pub(crate) fn range(address: u64) -> Result<(u64, usize), c_int> {
    let (mut start, mut bytes) = (0, 0);
    match unsafe { cuMemGetAddressRange_v2(&raw mut start, &raw mut bytes, address) } {
        0 => Ok((start, bytes)),
        code => Err(code),
    }
}

/// Holds back a stream until it is dropped.
pub(crate) struct Gate(*mut u32);

impl Gate {
    pub(crate) fn before(stream: usize) -> Self {
        let mut word = 0;
        assert_eq!(unsafe { cuMemHostAlloc(&raw mut word, 4, 1) }, 0);
        assert_eq!(
            unsafe { cuStreamWaitValue32_v2(stream, word as u64, 1, 0) },
            0
        );
        Self(ptr::with_exposed_provenance_mut(word))
    }
}

// SAFETY: a gate is the address of a word that any thread may store to.
unsafe impl Send for Gate {}

impl Drop for Gate {
    fn drop(&mut self) {
        unsafe {
            (*self.0.cast::<std::sync::atomic::AtomicU32>())
                .store(1, std::sync::atomic::Ordering::SeqCst);
        };
    }
}

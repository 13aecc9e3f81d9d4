//! A driver under the layer: its buffers are numbers.

use std::{
    ffi::c_void,
    ptr,
    sync::atomic::{AtomicUsize, Ordering},
};

use binpool_layer as _;
use opencl_sys::{
    CL_DEVICE_GLOBAL_MEM_SIZE, CL_DEVICE_NAME, CL_INVALID_VALUE, CL_QUEUE_CONTEXT,
    CL_QUEUE_PROPERTIES, CL_SUCCESS, cl_command_queue, cl_context, cl_device_id, cl_event,
    cl_icd::cl_icd_dispatch, cl_int, cl_mem, cl_mem_flags, cl_uint,
};

const CONTEXT: usize = 8;
const QUEUE: usize = 16;
const DEVICE: usize = 24;

unsafe extern "C" {
    /// What the loader calls.
    fn clInitLayer(
        count: cl_uint,
        target: *const c_void,
        count_ret: *mut cl_uint,
        layer_ret: *mut *const cl_icd_dispatch,
    ) -> cl_int;
}

unsafe extern "C" fn create(
    _: cl_context,
    _: cl_mem_flags,
    _: usize,
    _: *mut c_void,
    status: *mut cl_int,
) -> cl_mem {
    static NEXT: AtomicUsize = AtomicUsize::new(4096);
    unsafe { status.write(CL_SUCCESS) };
    ptr::without_provenance_mut(NEXT.fetch_add(64, Ordering::Relaxed))
}

unsafe extern "C" fn retain_context(_: cl_context) -> cl_int {
    CL_SUCCESS
}

unsafe extern "C" fn release(_: cl_mem) -> cl_int {
    CL_SUCCESS
}

unsafe extern "C" fn queue_info(
    _: cl_command_queue,
    name: cl_uint,
    _: usize,
    value: *mut c_void,
    _: *mut usize,
) -> cl_int {
    match name {
        CL_QUEUE_CONTEXT => unsafe { value.cast::<usize>().write(CONTEXT) },
        CL_QUEUE_PROPERTIES => unsafe { value.cast::<u64>().write(0) },
        _ => return CL_INVALID_VALUE,
    }
    CL_SUCCESS
}

/// The bytes of the device.
const MEMORY: u64 = 8 << 30;

unsafe extern "C" fn context_info(
    _: cl_context,
    _: cl_uint,
    _: usize,
    value: *mut c_void,
    bytes: *mut usize,
) -> cl_int {
    if !bytes.is_null() {
        unsafe { bytes.write(size_of::<cl_device_id>()) };
    }
    if !value.is_null() {
        unsafe { value.cast::<usize>().write(DEVICE) };
    }
    CL_SUCCESS
}

unsafe extern "C" fn device_info(
    device: cl_device_id,
    name: cl_uint,
    _: usize,
    value: *mut c_void,
    bytes: *mut usize,
) -> cl_int {
    assert_eq!(device.addr(), DEVICE);
    let answer = match name {
        CL_DEVICE_NAME => b"a device of tests\0".to_vec(),
        CL_DEVICE_GLOBAL_MEM_SIZE => MEMORY.to_ne_bytes().to_vec(),
        _ => return CL_INVALID_VALUE,
    };
    unsafe { value.cast::<u8>().copy_from(answer.as_ptr(), answer.len()) };
    if !bytes.is_null() {
        unsafe { bytes.write(answer.len()) };
    }
    CL_SUCCESS
}

unsafe extern "C" fn fill(
    _: cl_command_queue,
    _: cl_mem,
    _: *const c_void,
    _: usize,
    _: usize,
    _: usize,
    _: cl_uint,
    _: *const cl_event,
    _: *mut cl_event,
) -> cl_int {
    CL_SUCCESS
}

/// The functions of the driver.
pub(crate) fn functions() -> cl_icd_dispatch {
    let mut functions: cl_icd_dispatch = unsafe { std::mem::zeroed() };
    functions.clRetainContext = Some(retain_context);
    functions.clCreateBuffer = Some(create);
    functions.clReleaseMemObject = Some(release);
    functions.clGetCommandQueueInfo = Some(queue_info);
    functions.clEnqueueFillBuffer = Some(fill);
    functions.clGetContextInfo = Some(context_info);
    functions.clGetDeviceInfo = Some(device_info);
    functions
}

/// How many functions the layer knows.
pub(crate) const KNOWN: usize = size_of::<cl_icd_dispatch>() / size_of::<usize>();

/// Passes a table of functions to the layer, as a loader does. Returns that of the layer.
pub(crate) fn init_layer(table: &[usize]) -> &'static [usize] {
    let (mut count, mut layer) = (0, ptr::null());
    let known = cl_uint::try_from(table.len()).unwrap();
    let status =
        unsafe { clInitLayer(known, table.as_ptr().cast(), &raw mut count, &raw mut layer) };
    assert_eq!(status, CL_SUCCESS);
    // The layer prints no panics, and has seen to that by now.
    drop(std::panic::take_hook());
    unsafe { std::slice::from_raw_parts(layer.cast(), count as usize) }
}

/// The entries of a table.
pub(crate) fn entries(functions: &cl_icd_dispatch) -> Vec<usize> {
    unsafe { std::slice::from_raw_parts(ptr::from_ref(functions).cast(), KNOWN) }.to_vec()
}

/// The driver as a program has it, with the layer in front.
#[derive(Clone, Copy)]
pub(crate) struct Device {
    functions: &'static cl_icd_dispatch,
}

// SAFETY: nothing changes the table.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl Device {
    pub(crate) fn load() -> Self {
        Self::of(init_layer(&entries(&functions())))
    }

    /// The device that has a layer's table.
    pub(crate) fn of(table: &'static [usize]) -> Self {
        assert!(table.len() >= KNOWN);
        let functions: &cl_icd_dispatch = unsafe { &*table.as_ptr().cast() };
        let retain = functions.clRetainContext.unwrap();
        let status = unsafe { retain(ptr::without_provenance_mut(CONTEXT)) };
        assert_eq!(status, CL_SUCCESS);
        Self { functions }
    }

    pub(crate) fn create(self, bytes: usize) -> usize {
        self.try_create(0, bytes).unwrap()
    }

    /// Creates a buffer with flags. The error is the status.
    pub(crate) fn try_create(self, flags: cl_mem_flags, bytes: usize) -> Result<usize, cl_int> {
        let mut status = -1;
        let context = ptr::without_provenance_mut(CONTEXT);
        let create = self.functions.clCreateBuffer.unwrap();
        let buffer = unsafe { create(context, flags, bytes, ptr::null_mut(), &raw mut status) };
        if status == CL_SUCCESS {
            Ok(buffer.addr())
        } else {
            Err(status)
        }
    }

    pub(crate) fn release(self, buffer: usize) {
        let release = self.functions.clReleaseMemObject.unwrap();
        let status = unsafe { release(ptr::without_provenance_mut(buffer)) };
        assert_eq!(status, CL_SUCCESS);
    }

    /// Creates a buffer, and releases it.
    pub(crate) fn touch(self, bytes: usize) {
        self.release(self.create(bytes));
    }

    /// A command on a buffer.
    pub(crate) fn fill(self, buffer: usize) {
        let fill = self.functions.clEnqueueFillBuffer.unwrap();
        let status = unsafe {
            fill(
                ptr::without_provenance_mut(QUEUE),
                ptr::without_provenance_mut(buffer),
                ptr::null(),
                0,
                0,
                0,
                0,
                ptr::null(),
                ptr::null_mut(),
            )
        };
        assert_eq!(status, CL_SUCCESS);
    }
}

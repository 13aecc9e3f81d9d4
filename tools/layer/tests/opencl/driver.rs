//! A driver under the layer: its buffers are numbers.

use std::{
    ffi::c_void,
    ptr,
    sync::atomic::{AtomicUsize, Ordering},
};

use binpool_layer as _;
use opencl_sys::{
    CL_DEVICE_GLOBAL_MEM_SIZE, CL_DEVICE_NAME, CL_INVALID_VALUE, CL_QUEUE_CONTEXT,
    CL_QUEUE_PROPERTIES, CL_QUEUE_REFERENCE_COUNT, CL_SUCCESS, cl_command_queue,
    cl_command_queue_properties, cl_context, cl_device_id, cl_event, cl_icd::cl_icd_dispatch,
    cl_int, cl_mem, cl_mem_flags, cl_uint,
};

pub(crate) const CONTEXT: usize = 8;
const QUEUE: usize = 16;
pub(crate) const DEVICE: usize = 24;

unsafe extern "C" {
    /// What the loader calls.
    pub(crate) fn clGetLayerInfo(
        name: cl_uint,
        size: usize,
        value: *mut c_void,
        size_ret: *mut usize,
    ) -> cl_int;
    /// What newer loaders call.
    pub(crate) fn clInitLayerWithProperties(
        count: cl_uint,
        target: *const c_void,
        count_ret: *mut cl_uint,
        layer_ret: *mut *const cl_icd_dispatch,
        properties: *const c_void,
    ) -> cl_int;
    pub(crate) fn clInitLayer(
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
    pub(crate) functions: &'static cl_icd_dispatch,
    context: usize,
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
        let device = Self {
            functions,
            context: CONTEXT,
        };
        device.in_context(CONTEXT)
    }

    /// The device as the program has it in a context, which it retains.
    pub(crate) fn in_context(self, context: usize) -> Self {
        let retain = self.functions.clRetainContext.unwrap();
        let status = unsafe { retain(ptr::without_provenance_mut(context)) };
        assert_eq!(status, CL_SUCCESS);
        Self { context, ..self }
    }

    pub(crate) fn create(self, bytes: usize) -> usize {
        self.try_create(0, bytes).unwrap()
    }

    /// Creates a buffer with flags. The error is the status.
    pub(crate) fn try_create(self, flags: cl_mem_flags, bytes: usize) -> Result<usize, cl_int> {
        let mut status = -1;
        let context = ptr::without_provenance_mut(self.context);
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
        self.fill_on(QUEUE, buffer);
    }

    /// A command on a buffer, on a queue.
    pub(crate) fn fill_on(self, queue: usize, buffer: usize) {
        assert_eq!(self.try_fill_on(queue, buffer), CL_SUCCESS);
    }

    /// As [`fill_on`](Self::fill_on). Returns the status.
    pub(crate) fn try_fill_on(self, queue: usize, buffer: usize) -> cl_int {
        let fill = self.functions.clEnqueueFillBuffer.unwrap();
        unsafe {
            fill(
                ptr::without_provenance_mut(queue),
                ptr::without_provenance_mut(buffer),
                ptr::null(),
                0,
                0,
                0,
                0,
                ptr::null(),
                ptr::null_mut(),
            )
        }
    }

    pub(crate) fn create_queue(self, properties: cl_command_queue_properties) -> usize {
        let mut status = -1;
        let create = self.functions.clCreateCommandQueue.unwrap();
        let [context, device] = [self.context, DEVICE].map(ptr::without_provenance_mut);
        let queue = unsafe { create(context, device.cast(), properties, &raw mut status) };
        assert_eq!(status, CL_SUCCESS);
        queue.addr()
    }

    /// Retains a queue. Returns the status.
    pub(crate) fn retain_queue(self, queue: usize) -> cl_int {
        let retain = self.functions.clRetainCommandQueue.unwrap();
        unsafe { retain(ptr::without_provenance_mut(queue)) }
    }

    pub(crate) fn release_queue(self, queue: usize) {
        let release = self.functions.clReleaseCommandQueue.unwrap();
        let status = unsafe { release(ptr::without_provenance_mut(queue)) };
        assert_eq!(status, CL_SUCCESS);
    }

    pub(crate) fn queue_references(self, queue: usize) -> u32 {
        let info = self.functions.clGetCommandQueueInfo.unwrap();
        let mut references = 0_u32;
        let place = (&raw mut references).cast();
        let queue = ptr::without_provenance_mut(queue);
        let status = unsafe { info(queue, CL_QUEUE_REFERENCE_COUNT, 4, place, ptr::null_mut()) };
        assert_eq!(status, CL_SUCCESS);
        references
    }

    pub(crate) fn release_context(self) {
        let release = self.functions.clReleaseContext.unwrap();
        let status = unsafe { release(ptr::without_provenance_mut(self.context)) };
        assert_eq!(status, CL_SUCCESS);
    }

    pub(crate) fn create_user_event(self) -> usize {
        let mut status = -1;
        let create = self.functions.clCreateUserEvent.unwrap();
        let event = unsafe { create(ptr::without_provenance_mut(self.context), &raw mut status) };
        assert_eq!(status, CL_SUCCESS);
        event.addr()
    }

    pub(crate) fn set_user_event(self, event: usize, to: cl_int) {
        let set = self.functions.clSetUserEventStatus.unwrap();
        let status = unsafe { set(ptr::without_provenance_mut(event), to) };
        assert_eq!(status, CL_SUCCESS);
    }

    /// A part of a buffer.
    pub(crate) fn create_part(self, buffer: usize) -> usize {
        let create = self.functions.clCreateSubBuffer.unwrap();
        let (buffer, mut status) = (ptr::without_provenance_mut(buffer), -1);
        let part = unsafe { create(buffer, 0, 0, ptr::null(), &raw mut status) };
        assert_eq!(status, CL_SUCCESS);
        part.addr()
    }

    /// Lets the driver tell the program of the end of a buffer.
    pub(crate) fn ask_for_the_end(self, buffer: usize) {
        let set = self.functions.clSetMemObjectDestructorCallback.unwrap();
        let buffer = ptr::without_provenance_mut(buffer);
        assert_eq!(unsafe { set(buffer, None, ptr::null_mut()) }, CL_SUCCESS);
    }
}

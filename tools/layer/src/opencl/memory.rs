//! The functions that create and release memory.

use std::{ffi::c_void, ptr};

use opencl_sys::{
    CL_INVALID_MEM_OBJECT, CL_MEM_ALLOC_HOST_PTR, CL_MEM_HOST_NO_ACCESS, CL_MEM_HOST_READ_ONLY,
    CL_MEM_HOST_WRITE_ONLY, CL_MEM_OBJECT_ALLOCATION_FAILURE, CL_MEM_READ_ONLY, CL_MEM_READ_WRITE,
    CL_MEM_REFERENCE_COUNT, CL_MEM_SVM_ATOMICS, CL_MEM_SVM_FINE_GRAIN_BUFFER, CL_MEM_USE_HOST_PTR,
    CL_MEM_WRITE_ONLY, CL_OUT_OF_HOST_MEMORY, CL_SUCCESS, cl_buffer_create_type, cl_command_queue,
    cl_context, cl_event, cl_image_desc, cl_image_format, cl_int, cl_mem, cl_mem_flags,
    cl_mem_info, cl_mem_properties, cl_pipe_properties, cl_svm_mem_flags, cl_uint,
};

use super::{
    about,
    driver::{call, functions},
    layer::{CountedBy, Release, Source, layer},
    objects::Handle,
    pooled::{Kind, is_out_of_memory, limit},
};
use crate::recording::contained;

/// The flags of buffers that come from a pool: all that the driver keeps no memory of the program for.
const POOLED_FLAGS: cl_mem_flags = CL_MEM_READ_WRITE
    | CL_MEM_WRITE_ONLY
    | CL_MEM_READ_ONLY
    | CL_MEM_ALLOC_HOST_PTR
    | CL_MEM_HOST_WRITE_ONLY
    | CL_MEM_HOST_READ_ONLY
    | CL_MEM_HOST_NO_ACCESS;

/// Its kernels wait for each other, or for the host.
const PIPE: &str = "pipe";

/// Writes a status where the program wants it, and returns what it belongs to.
///
/// # Safety
///
/// The place is null or the program's.
pub(super) unsafe fn with_status<T>(place: *mut cl_int, (made, status): (T, cl_int)) -> T {
    // SAFETY: the caller's.
    if let Some(place) = unsafe { place.as_mut() } {
        *place = status;
    }
    made
}

/// Creates memory of the driver by `create`, which gets a place for its status. Without `bytes`, the driver tells how large it has become. Returns it
/// with the status; null after an error.
fn create(
    context: cl_context,
    kind: &'static str,
    bytes: Option<usize>,
    whole: Option<Handle>,
    create: impl Fn(*mut cl_int) -> cl_mem,
) -> (cl_mem, cl_int) {
    let context = context as Handle;
    let has_own = whole.is_none();
    let mut status = CL_SUCCESS;
    let is_granted = !has_own || bytes.is_none_or(|bytes| contained(|| layer().take(bytes)));
    let mut memory = ptr::null_mut();
    if is_granted {
        memory = create(&raw mut status);
        if memory.is_null() && contained(|| layer().is_worth_a_retry(status)) {
            memory = create(&raw mut status);
        }
    } else {
        status = CL_MEM_OBJECT_ALLOCATION_FAILURE;
    }
    let created = contained(|| {
        let layer = layer();
        if memory.is_null() {
            if is_granted && has_own {
                limit::release(bytes.unwrap_or_default());
            }
            if is_out_of_memory(status) {
                layer.refused(context, kind, bytes.unwrap_or_default());
            }
            return status;
        }
        let whole = whole.or_else(|| bytes.is_none().then(|| about::whole(memory)).flatten());
        let size = bytes.unwrap_or_else(|| about::bytes(memory));
        let is_new_size = bytes.is_none() && whole.is_none();
        if is_new_size && !layer.take(size) {
            layer.refused(context, kind, size);
            return CL_MEM_OBJECT_ALLOCATION_FAILURE;
        }
        if kind == PIPE {
            layer.may_wait_unseen();
        }
        layer.created(memory as Handle, context, kind, size, whole, None);
        // After that, which tells the recording of the context.
        if is_new_size {
            layer.passed(size, kind);
        }
        CL_SUCCESS
    });
    if created != CL_SUCCESS && !memory.is_null() {
        call!(clReleaseMemObject(memory));
        memory = ptr::null_mut();
    }
    (memory, created)
}

/// The word for a buffer of these flags.
fn kind_of(flags: cl_mem_flags) -> &'static str {
    if flags & CL_MEM_USE_HOST_PTR == 0 {
        "buffer"
    } else {
        "buffer on host memory"
    }
}

/// Creates a buffer from a pool. Returns it with its status; null after an error, and `None` if the driver is to be asked.
fn pooled_buffer(context: Handle, flags: cl_mem_flags, size: usize) -> Option<(Handle, cl_int)> {
    let layer = layer();
    match layer.allocate(context, Kind::Buffer { flags }, size) {
        Source::Pool(block) => {
            let handle = block.handle();
            layer.created(handle, context, "buffer", size, None, Some(block));
            Some((handle, CL_SUCCESS))
        }
        // Counted again by the caller.
        Source::Driver => {
            limit::release(size);
            None
        }
        Source::Failed(status) => Some((0, status)),
        Source::Refused => None,
    }
}

pub(super) unsafe extern "C" fn clCreateBuffer(
    context: cl_context,
    flags: cl_mem_flags,
    size: usize,
    host_ptr: *mut c_void,
    errcode_ret: *mut cl_int,
) -> cl_mem {
    let can_pool = host_ptr.is_null() && flags & !POOLED_FLAGS == 0;
    if can_pool && layer().is_pooled() {
        let answer = contained(|| pooled_buffer(context as Handle, flags, size));
        if let Some(answer) = answer {
            // SAFETY: the program's place for a status.
            return unsafe { with_status(errcode_ret, answer) } as cl_mem;
        }
    }
    let made = create(
        context,
        kind_of(flags),
        Some(size),
        None,
        |status| call!(clCreateBuffer(context, flags, size, host_ptr, status) or ptr::null_mut()),
    );
    if !can_pool {
        contained(|| layer().passed(size, "a buffer that begins with memory of the host"));
    }
    // SAFETY: the program's place for a status.
    unsafe { with_status(errcode_ret, made) }
}

pub(super) unsafe extern "C" fn clCreateBufferWithProperties(
    context: cl_context,
    properties: *const cl_mem_properties,
    flags: cl_mem_flags,
    size: usize,
    host_ptr: *mut c_void,
    errcode_ret: *mut cl_int,
) -> cl_mem {
    if properties.is_null() {
        // SAFETY: this is the same call.
        return unsafe { clCreateBuffer(context, flags, size, host_ptr, errcode_ret) };
    }
    let made = create(
        context,
        kind_of(flags),
        Some(size),
        None,
        |status| call!(clCreateBufferWithProperties(context, properties, flags, size, host_ptr, status) or ptr::null_mut()),
    );
    contained(|| layer().passed(size, "a buffer with properties"));
    // SAFETY: the program's place for a status.
    unsafe { with_status(errcode_ret, made) }
}

pub(super) unsafe extern "C" fn clCreateSubBuffer(
    buffer: cl_mem,
    flags: cl_mem_flags,
    kind: cl_buffer_create_type,
    info: *const c_void,
    errcode_ret: *mut cl_int,
) -> cl_mem {
    let made = create(
        ptr::null_mut(),
        "sub-buffer",
        None,
        Some(buffer as Handle),
        |status| call!(clCreateSubBuffer(buffer, flags, kind, info, status) or ptr::null_mut()),
    );
    // SAFETY: the program's place for a status.
    unsafe { with_status(errcode_ret, made) }
}

/// A function that creates an image or a pipe.
macro_rules! creates {
    ($($kind:tt $name:ident($($argument:ident: $type:ty),* $(,)?);)*) => {$(
        pub(super) unsafe extern "C" fn $name(context: cl_context, $($argument: $type,)* errcode_ret: *mut cl_int) -> cl_mem {
            let made = create(context, $kind, None, None, |status| {
                call!($name(context, $($argument,)* status) or ptr::null_mut())
            });
            // SAFETY: the program's place for a status.
            unsafe { with_status(errcode_ret, made) }
        }
    )*};
}

creates! {
    "image" clCreateImage(flags: cl_mem_flags, format: *const cl_image_format, description: *const cl_image_desc, host_ptr: *mut c_void);
    "image" clCreateImageWithProperties(
        properties: *const cl_mem_properties,
        flags: cl_mem_flags,
        format: *const cl_image_format,
        description: *const cl_image_desc,
        host_ptr: *mut c_void,
    );
    "image" clCreateImage2D(
        flags: cl_mem_flags,
        format: *const cl_image_format,
        width: usize,
        height: usize,
        row_pitch: usize,
        host_ptr: *mut c_void,
    );
    "image" clCreateImage3D(
        flags: cl_mem_flags,
        format: *const cl_image_format,
        width: usize,
        height: usize,
        depth: usize,
        row_pitch: usize,
        slice_pitch: usize,
        host_ptr: *mut c_void,
    );
    PIPE clCreatePipe(flags: cl_mem_flags, packet_size: cl_uint, max_packets: cl_uint, properties: *const cl_pipe_properties);
}

/// Answers for a reference that is retained or released: as the driver does by `call`, if it counts it.
fn counted(counted_by: Option<CountedBy>, call: impl FnOnce() -> cl_int) -> cl_int {
    match counted_by {
        Some(CountedBy::Pool) => CL_SUCCESS,
        Some(CountedBy::Released) => CL_INVALID_MEM_OBJECT,
        Some(CountedBy::Driver) | None => call(),
    }
}

pub(super) unsafe extern "C" fn clRetainMemObject(memory: cl_mem) -> cl_int {
    let counted_by = contained(|| Some(layer().retain(memory as Handle)));
    counted(counted_by, || call!(clRetainMemObject(memory)))
}

pub(super) unsafe extern "C" fn clReleaseMemObject(memory: cl_mem) -> cl_int {
    // Before the driver's call, after which another thread may be given an object of the same address.
    let release = contained(|| Some(layer().release(memory as Handle)));
    let counted_by = release.as_ref().map(|release| release.counted_by);
    let status = counted(counted_by, || call!(clReleaseMemObject(memory)));
    contained(|| release.map(Release::finish));
    status
}

pub(super) unsafe extern "C" fn clGetMemObjectInfo(
    memory: cl_mem,
    name: cl_mem_info,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> cl_int {
    let status = call!(clGetMemObjectInfo(memory, name, size, value, size_ret));
    if status == CL_SUCCESS && name == CL_MEM_REFERENCE_COUNT && !value.is_null() {
        let others = contained(|| layer().pools_references(memory as Handle));
        let place: *mut cl_uint = value.cast();
        // SAFETY: the driver has written the count there.
        let count = unsafe { place.read_unaligned() };
        // SAFETY: as above.
        unsafe { place.write_unaligned(count.saturating_sub(others)) };
    }
    status
}

functions! {
    clSetMemObjectDestructorCallback(
        memory: cl_mem,
        notify: Option<unsafe extern "C" fn(cl_mem, *mut c_void)>,
        user_data: *mut c_void,
    ) -> cl_int, before: layer().give_away(memory as Handle, "a buffer whose end is reported to the program");
}

/// Notes the driver's answer to a request for shared virtual memory, which the limit counts: an address, or null with this status.
pub(super) fn svm_of_driver(
    address: *mut c_void,
    context: Handle,
    kind: &'static str,
    bytes: usize,
    status: cl_int,
) {
    contained(|| {
        if !address.is_null() {
            layer().created_svm(address.expose_provenance(), context, kind, bytes, None);
            return;
        }
        limit::release(bytes);
        if is_out_of_memory(status) {
            layer().refused(context, kind, bytes);
        }
    });
}

pub(super) unsafe extern "C" fn clSVMAlloc(
    context: cl_context,
    flags: cl_svm_mem_flags,
    size: usize,
    alignment: cl_uint,
) -> *mut c_void {
    if flags & (CL_MEM_SVM_FINE_GRAIN_BUFFER | CL_MEM_SVM_ATOMICS) != 0 {
        contained(|| layer().may_wait_unseen());
    }
    let kind = Kind::Svm { flags, alignment };
    let pooled = contained(|| match layer().allocate(context as Handle, kind, size) {
        Source::Pool(block) => {
            let address = block.handle();
            layer().created_svm(address, context as Handle, "SVM", size, Some(block));
            Some(address)
        }
        Source::Driver => None,
        Source::Failed(_) | Source::Refused => {
            layer().refused(context as Handle, "SVM", size);
            Some(0)
        }
    });
    if let Some(address) = pooled {
        return ptr::with_exposed_provenance_mut(address);
    }
    let address = call!(clSVMAlloc(context, flags, size, alignment) or ptr::null_mut());
    // The driver gives no reason.
    svm_of_driver(
        address,
        context as Handle,
        "SVM",
        size,
        CL_OUT_OF_HOST_MEMORY,
    );
    address
}

pub(super) unsafe extern "C" fn clSVMFree(context: cl_context, address: *mut c_void) {
    // The program has waited for what uses it: the driver does not.
    if !contained(|| layer().free_svm(address.addr(), true)) {
        call!(clSVMFree(context, address) or ());
    }
}

type FreeFunction = unsafe extern "C" fn(cl_command_queue, cl_uint, *mut *mut c_void, *mut c_void);

pub(super) unsafe extern "C" fn clEnqueueSVMFree(
    queue: cl_command_queue,
    count: cl_uint,
    addresses: *mut *mut c_void,
    free: Option<FreeFunction>,
    user_data: *mut c_void,
    wait_count: cl_uint,
    wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    // A function of the program frees it by `clSVMFree`.
    if free.is_none() && !addresses.is_null() {
        // SAFETY: the program's list.
        let addresses = unsafe { std::slice::from_raw_parts(addresses, count as usize) };
        for address in addresses {
            contained(|| layer().free_svm(address.addr(), false));
        }
    }
    call!(clEnqueueSVMFree(
        queue, count, addresses, free, user_data, wait_count, wait_list, event
    ))
}

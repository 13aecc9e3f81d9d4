//! The functions that enqueue commands.

use std::ffi::c_void;

use opencl_sys::{
    cl_bool, cl_command_queue, cl_event, cl_int, cl_kernel, cl_map_flags, cl_mem,
    cl_mem_migration_flags, cl_uint,
};

use super::{
    driver::{call, functions},
    layer::layer,
    objects::Handle,
};
use crate::recording::contained;

/// Enqueues a command after it is noted. What fails for lack of memory is tried again without what the pools keep.
fn enqueue(note: impl FnOnce(), call: impl Fn() -> cl_int) -> cl_int {
    contained(note);
    let status = call();
    if contained(|| layer().is_worth_a_retry(status)) {
        return call();
    }
    status
}

/// A function that enqueues a command on memory.
macro_rules! commands {
    ($($name:ident[$($used:ident),*]($queue:ident: cl_command_queue, $($argument:ident: $type:ty),* $(,)?);)*) => {$(
        pub(super) unsafe extern "C" fn $name($queue: cl_command_queue, $($argument: $type),*) -> cl_int {
            enqueue(
                || layer().uses($queue as Handle, &[$($used as Handle),*]),
                || call!($name($queue, $($argument),*)),
            )
        }
    )*};
}

commands! {
    clEnqueueReadBuffer[buffer](queue: cl_command_queue, buffer: cl_mem, is_blocking: cl_bool, offset: usize, size: usize, to: *mut c_void, wait_count: cl_uint, wait_list: *const cl_event, event: *mut cl_event);
    clEnqueueWriteBuffer[buffer](queue: cl_command_queue, buffer: cl_mem, is_blocking: cl_bool, offset: usize, size: usize, from: *const c_void, wait_count: cl_uint, wait_list: *const cl_event, event: *mut cl_event);
    clEnqueueCopyBuffer[from, to](queue: cl_command_queue, from: cl_mem, to: cl_mem, from_offset: usize, to_offset: usize, size: usize, wait_count: cl_uint, wait_list: *const cl_event, event: *mut cl_event);
    clEnqueueReadBufferRect[buffer](queue: cl_command_queue, buffer: cl_mem, is_blocking: cl_bool, origin: *const usize, host_origin: *const usize, region: *const usize, row_pitch: usize, slice_pitch: usize, host_row_pitch: usize, host_slice_pitch: usize, to: *mut c_void, wait_count: cl_uint, wait_list: *const cl_event, event: *mut cl_event);
    clEnqueueWriteBufferRect[buffer](queue: cl_command_queue, buffer: cl_mem, is_blocking: cl_bool, origin: *const usize, host_origin: *const usize, region: *const usize, row_pitch: usize, slice_pitch: usize, host_row_pitch: usize, host_slice_pitch: usize, from: *const c_void, wait_count: cl_uint, wait_list: *const cl_event, event: *mut cl_event);
    clEnqueueCopyBufferRect[from, to](queue: cl_command_queue, from: cl_mem, to: cl_mem, from_origin: *const usize, to_origin: *const usize, region: *const usize, from_row_pitch: usize, from_slice_pitch: usize, to_row_pitch: usize, to_slice_pitch: usize, wait_count: cl_uint, wait_list: *const cl_event, event: *mut cl_event);
    clEnqueueFillBuffer[buffer](queue: cl_command_queue, buffer: cl_mem, pattern: *const c_void, pattern_size: usize, offset: usize, size: usize, wait_count: cl_uint, wait_list: *const cl_event, event: *mut cl_event);
    clEnqueueReadImage[image](queue: cl_command_queue, image: cl_mem, is_blocking: cl_bool, origin: *const usize, region: *const usize, row_pitch: usize, slice_pitch: usize, to: *mut c_void, wait_count: cl_uint, wait_list: *const cl_event, event: *mut cl_event);
    clEnqueueWriteImage[image](queue: cl_command_queue, image: cl_mem, is_blocking: cl_bool, origin: *const usize, region: *const usize, row_pitch: usize, slice_pitch: usize, from: *const c_void, wait_count: cl_uint, wait_list: *const cl_event, event: *mut cl_event);
    clEnqueueFillImage[image](queue: cl_command_queue, image: cl_mem, color: *const c_void, origin: *const usize, region: *const usize, wait_count: cl_uint, wait_list: *const cl_event, event: *mut cl_event);
    clEnqueueCopyImage[from, to](queue: cl_command_queue, from: cl_mem, to: cl_mem, from_origin: *const usize, to_origin: *const usize, region: *const usize, wait_count: cl_uint, wait_list: *const cl_event, event: *mut cl_event);
    clEnqueueCopyImageToBuffer[from, to](queue: cl_command_queue, from: cl_mem, to: cl_mem, from_origin: *const usize, region: *const usize, to_offset: usize, wait_count: cl_uint, wait_list: *const cl_event, event: *mut cl_event);
    clEnqueueCopyBufferToImage[from, to](queue: cl_command_queue, from: cl_mem, to: cl_mem, from_offset: usize, to_origin: *const usize, region: *const usize, wait_count: cl_uint, wait_list: *const cl_event, event: *mut cl_event);
    clEnqueueSVMMemcpy[to, from](queue: cl_command_queue, is_blocking: cl_bool, to: *mut c_void, from: *const c_void, size: usize, wait_count: cl_uint, wait_list: *const cl_event, event: *mut cl_event);
    clEnqueueSVMMemFill[to](queue: cl_command_queue, to: *mut c_void, pattern: *const c_void, pattern_size: usize, size: usize, wait_count: cl_uint, wait_list: *const cl_event, event: *mut cl_event);
    clEnqueueSVMMap[address](queue: cl_command_queue, is_blocking: cl_bool, flags: cl_map_flags, address: *mut c_void, size: usize, wait_count: cl_uint, wait_list: *const cl_event, event: *mut cl_event);
    clEnqueueSVMUnmap[address](queue: cl_command_queue, address: *mut c_void, wait_count: cl_uint, wait_list: *const cl_event, event: *mut cl_event);
}

/// A function that runs a kernel.
macro_rules! launches {
    ($($name:ident(queue: cl_command_queue, kernel: cl_kernel, $($argument:ident: $type:ty),* $(,)?);)*) => {$(
        pub(super) unsafe extern "C" fn $name(queue: cl_command_queue, kernel: cl_kernel, $($argument: $type),*) -> cl_int {
            enqueue(
                || layer().runs(queue as Handle, kernel as Handle),
                || call!($name(queue, kernel, $($argument),*)),
            )
        }
    )*};
}

launches! {
    clEnqueueNDRangeKernel(queue: cl_command_queue, kernel: cl_kernel, dimensions: cl_uint, offset: *const usize, size: *const usize, group: *const usize, wait_count: cl_uint, wait_list: *const cl_event, event: *mut cl_event);
    clEnqueueTask(queue: cl_command_queue, kernel: cl_kernel, wait_count: cl_uint, wait_list: *const cl_event, event: *mut cl_event);
}

/// Notes that a command on `queue` uses the memory of a list.
///
/// # Safety
///
/// The list is the program's.
unsafe fn note_list(queue: cl_command_queue, count: cl_uint, list: *const cl_mem) {
    if list.is_null() || count == 0 {
        return;
    }
    // SAFETY: the caller's.
    let list = unsafe { std::slice::from_raw_parts(list, count as usize) };
    let handles: Vec<Handle> = list.iter().map(|memory| *memory as Handle).collect();
    layer().uses(queue as Handle, &handles);
}

type NativeFunction = unsafe extern "C" fn(*mut c_void);

functions! {
    clEnqueueMigrateMemObjects(
        queue: cl_command_queue,
        count: cl_uint,
        list: *const cl_mem,
        flags: cl_mem_migration_flags,
        wait_count: cl_uint,
        wait_list: *const cl_event,
        event: *mut cl_event,
    ) -> cl_int,
        // SAFETY: the program's list.
        before: unsafe { note_list(queue, count, list) };

    clEnqueueSVMMigrateMem(
        queue: cl_command_queue,
        count: cl_uint,
        addresses: *mut *const c_void,
        sizes: *const usize,
        flags: cl_mem_migration_flags,
        wait_count: cl_uint,
        wait_list: *const cl_event,
        event: *mut cl_event,
    ) -> cl_int,
        // SAFETY: the program's list, of addresses.
        before: unsafe { note_list(queue, count, addresses.cast_const().cast()) };

    clEnqueueNativeKernel(
        queue: cl_command_queue,
        function: Option<NativeFunction>,
        arguments: *mut c_void,
        arguments_size: usize,
        count: cl_uint,
        list: *const cl_mem,
        places: *mut *const c_void,
        wait_count: cl_uint,
        wait_list: *const cl_event,
        event: *mut cl_event,
    ) -> cl_int,
        before: {
            layer().may_wait_unseen();
            // SAFETY: the program's list.
            unsafe { note_list(queue, count, list) };
        };

    clEnqueueMapBuffer(
        queue: cl_command_queue,
        buffer: cl_mem,
        is_blocking: cl_bool,
        flags: cl_map_flags,
        offset: usize,
        size: usize,
        wait_count: cl_uint,
        wait_list: *const cl_event,
        event: *mut cl_event,
        errcode_ret: *mut cl_int,
    ) -> *mut c_void,
        before: layer().uses(queue as Handle, &[buffer as Handle]),
        after: layer().mapped(buffer as Handle, true);

    clEnqueueMapImage(
        queue: cl_command_queue,
        image: cl_mem,
        is_blocking: cl_bool,
        flags: cl_map_flags,
        origin: *const usize,
        region: *const usize,
        row_pitch: *mut usize,
        slice_pitch: *mut usize,
        wait_count: cl_uint,
        wait_list: *const cl_event,
        event: *mut cl_event,
        errcode_ret: *mut cl_int,
    ) -> *mut c_void,
        before: layer().uses(queue as Handle, &[image as Handle]),
        after: layer().mapped(image as Handle, true);

    clEnqueueUnmapMemObject(
        queue: cl_command_queue,
        memory: cl_mem,
        mapped: *mut c_void,
        wait_count: cl_uint,
        wait_list: *const cl_event,
        event: *mut cl_event,
    ) -> cl_int,
        before: layer().uses(queue as Handle, &[memory as Handle]),
        after: layer().mapped(memory as Handle, false);
}

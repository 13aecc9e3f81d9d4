//! The layer of the loaders of OpenCL (`cl_loader_layers`): its functions come between those of the program and those of the driver.
#![allow(non_snake_case)] // OpenCL's names.

mod about;
mod commands;
mod driver;
mod extensions;
mod kernels;
mod layer;
mod memory;
mod objects;
mod pooled;
mod queues;
mod unified;

use std::{ffi::c_void, mem::MaybeUninit};

use opencl_sys::{
    CL_INVALID_VALUE, CL_SUCCESS,
    cl_icd::cl_icd_dispatch,
    cl_int,
    cl_layer::{
        CL_LAYER_API_VERSION, CL_LAYER_API_VERSION_100, CL_LAYER_NAME, cl_layer_info,
        cl_layer_properties,
    },
    cl_uint,
};

use crate::recording::contained;

/// The name of the layer, as loaders print it.
const NAME: &[u8] = b"binpool\0";

/// Tells the loader about the layer: the version of the interface, and the name.
///
/// # Safety
///
/// The loader calls this, as the specification says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn clGetLayerInfo(
    name: cl_layer_info,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> cl_int {
    let version = CL_LAYER_API_VERSION_100.to_ne_bytes();
    let answer = match name {
        CL_LAYER_API_VERSION => &version[..],
        CL_LAYER_NAME => NAME,
        _ => return CL_INVALID_VALUE,
    };
    if !value.is_null() {
        if size < answer.len() {
            return CL_INVALID_VALUE;
        }
        // SAFETY: the caller's place has this size.
        unsafe {
            value
                .cast::<u8>()
                .copy_from_nonoverlapping(answer.as_ptr(), answer.len());
        };
    }
    // SAFETY: null, or the caller's place for a size.
    if let Some(size_ret) = unsafe { size_ret.as_mut() } {
        *size_ret = answer.len();
    }
    CL_SUCCESS
}

/// Begins: takes the functions below, and returns those of the layer.
///
/// # Safety
///
/// The loader calls this, as the specification says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn clInitLayer(
    count: cl_uint,
    target: *const cl_icd_dispatch,
    count_ret: *mut cl_uint,
    layer_ret: *mut *const cl_icd_dispatch,
) -> cl_int {
    if target.is_null() || count_ret.is_null() || layer_ret.is_null() {
        return CL_INVALID_VALUE;
    }
    let mut next = driver::no_functions();
    // A newer loader has more functions, which the layer does not change.
    let common = (size_of::<cl_icd_dispatch>() / size_of::<usize>()).min(count as usize);
    // SAFETY: the loader's table has `count` functions, and this one no fewer than `common`.
    unsafe {
        (&raw mut next)
            .cast::<usize>()
            .copy_from_nonoverlapping(target.cast(), common);
    };
    keep_loaded(&next);
    driver::set_next(&next);
    let table = if contained(|| layer::layer().is_needed()) {
        with_layer(&next)
    } else {
        next
    };
    // One for each loader, since what the layer does not replace is the loader's own. It is never dropped: loaders use it to the end.
    let table = Box::leak(Box::new(table));
    // SAFETY: the loader's place for a count.
    unsafe { *count_ret = cl_uint::try_from(common).unwrap_or(count) };
    // SAFETY: the loader's place for a table.
    unsafe { *layer_ret = table };
    CL_SUCCESS
}

/// As `clInitLayer`. Khronos's loader calls this one instead since 2026, for layers of the same version.
///
/// # Safety
///
/// The loader calls this, as the specification says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn clInitLayerWithProperties(
    count: cl_uint,
    target: *const cl_icd_dispatch,
    count_ret: *mut cl_uint,
    layer_ret: *mut *const cl_icd_dispatch,
    _properties: *const cl_layer_properties,
) -> cl_int {
    // SAFETY: the caller's.
    unsafe { clInitLayer(count, target, count_ret, layer_ret) }
}

/// Keeps the loader in the process. A program may load it, close it and load it again, and the layer would go on to call the first one.
fn keep_loaded(loader: &cl_icd_dispatch) {
    let Some(function) = loader.clGetPlatformIDs else {
        return;
    };
    let mut found = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: the place is for a description, which the call fills in if it succeeds.
    if unsafe { libc::dladdr(function as *const c_void, found.as_mut_ptr()) } == 0 {
        return;
    }
    // SAFETY: as above.
    let name = unsafe { found.assume_init().dli_fname };
    // SAFETY: the name is that of a library that is loaded. What is returned is never closed.
    unsafe {
        libc::dlopen(
            name,
            libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE,
        )
    };
}

/// Replaces the functions that the layer has, where the loader has them, too.
fn with_layer(next: &cl_icd_dispatch) -> cl_icd_dispatch {
    let mut table = *next;
    macro_rules! replace {
        ($($module:ident: $($name:ident)*;)*) => {
            $($(table.$name = next.$name.is_some().then_some($module::$name);)*)*
        };
    }
    replace! {
        memory:
            clCreateBuffer clCreateBufferWithProperties clCreateSubBuffer clCreateImage clCreateImageWithProperties clCreateImage2D
            clCreateImage3D clCreatePipe clRetainMemObject clReleaseMemObject clGetMemObjectInfo clSetMemObjectDestructorCallback clSVMAlloc clSVMFree
            clEnqueueSVMFree;
        commands:
            clEnqueueReadBuffer clEnqueueWriteBuffer clEnqueueCopyBuffer clEnqueueReadBufferRect clEnqueueWriteBufferRect
            clEnqueueCopyBufferRect clEnqueueFillBuffer clEnqueueReadImage clEnqueueWriteImage clEnqueueFillImage clEnqueueCopyImage
            clEnqueueCopyImageToBuffer clEnqueueCopyBufferToImage clEnqueueSVMMemcpy clEnqueueSVMMemFill clEnqueueSVMMap clEnqueueSVMUnmap
            clEnqueueNDRangeKernel clEnqueueTask clEnqueueMigrateMemObjects clEnqueueSVMMigrateMem clEnqueueNativeKernel clEnqueueMapBuffer
            clEnqueueMapImage clEnqueueUnmapMemObject;
        kernels:
            clCreateKernel clCreateKernelsInProgram clCloneKernel clSetKernelArg clSetKernelArgSVMPointer clSetKernelExecInfo;
        queues:
            clCreateContext clCreateContextFromType clRetainContext clReleaseContext clGetContextInfo clCreateCommandQueue
            clCreateCommandQueueWithProperties clSetCommandQueueProperty clRetainCommandQueue clReleaseCommandQueue clGetCommandQueueInfo
            clCreateUserEvent clSetUserEventStatus;
        extensions:
            clGetExtensionFunctionAddress clGetExtensionFunctionAddressForPlatform;
    }
    table
}

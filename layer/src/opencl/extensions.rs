//! Functions that are looked up by their names.

use std::{
    ffi::{CStr, c_char, c_void},
    ptr,
};

use opencl_sys::cl_platform_id;

use super::{driver::call, layer::layer, unified::in_place_of};
use crate::recording::contained;

/// Functions that use memory in ways that the layer does not see, or leave a mark on it.
const UNSEEN: [&str; 6] = [
    "clEnqueueCopyBufferP2PAMD",
    "clEnqueueMakeBuffersResidentAMD",
    "clCreateCommandBuffer",
    "clEnqueueCommandBuffer",
    "clEnqueueMigrateMemObjectEXT",
    "clSetContentSizeBuffer",
];

/// Notes that the program looks a function up.
///
/// # Safety
///
/// The name is null or a text that ends with a zero.
unsafe fn note(name: *const c_char) {
    if name.is_null() {
        return;
    }
    // SAFETY: the caller's.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    if UNSEEN.iter().any(|unseen| name.starts_with(unseen)) {
        contained(|| layer().stop_pooling(&format!("the program asks for {name}")));
    }
}

/// Returns the layer's function in the place of the driver's, if it has one.
///
/// # Safety
///
/// The name is null or a text that ends with a zero.
unsafe fn own_or(name: *const c_char, function: *mut c_void) -> *mut c_void {
    if name.is_null() {
        return function;
    }
    // SAFETY: the caller's.
    in_place_of(unsafe { CStr::from_ptr(name) }, function)
}

pub(super) unsafe extern "C" fn clGetExtensionFunctionAddress(name: *const c_char) -> *mut c_void {
    // SAFETY: the program's name.
    unsafe { note(name) };
    let function = call!(clGetExtensionFunctionAddress(name) or ptr::null_mut());
    // SAFETY: the program's name.
    unsafe { own_or(name, function) }
}

pub(super) unsafe extern "C" fn clGetExtensionFunctionAddressForPlatform(
    platform: cl_platform_id,
    name: *const c_char,
) -> *mut c_void {
    // SAFETY: the program's name.
    unsafe { note(name) };
    let function =
        call!(clGetExtensionFunctionAddressForPlatform(platform, name) or ptr::null_mut());
    // SAFETY: the program's name.
    unsafe { own_or(name, function) }
}

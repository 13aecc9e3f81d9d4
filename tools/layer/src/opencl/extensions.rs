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

/// Looks a function up by `find` for the program. Returns the layer's in its place, if there is one.
///
/// # Safety
///
/// The name is null or a text that ends with a zero.
unsafe fn look_up(name: *const c_char, find: impl FnOnce() -> *mut c_void) -> *mut c_void {
    if name.is_null() {
        return find();
    }
    // SAFETY: the caller's.
    let name = unsafe { CStr::from_ptr(name) };
    let text = name.to_string_lossy();
    if UNSEEN.iter().any(|unseen| text.starts_with(unseen)) {
        contained(|| layer().stop_pooling(&format!("the program asks for {text}")));
    }
    in_place_of(name, find())
}

pub(super) unsafe extern "C" fn clGetExtensionFunctionAddress(name: *const c_char) -> *mut c_void {
    let find = || call!(clGetExtensionFunctionAddress(name) or ptr::null_mut());
    // SAFETY: the program's name.
    unsafe { look_up(name, find) }
}

pub(super) unsafe extern "C" fn clGetExtensionFunctionAddressForPlatform(
    platform: cl_platform_id,
    name: *const c_char,
) -> *mut c_void {
    let find =
        || call!(clGetExtensionFunctionAddressForPlatform(platform, name) or ptr::null_mut());
    // SAFETY: the program's name.
    unsafe { look_up(name, find) }
}

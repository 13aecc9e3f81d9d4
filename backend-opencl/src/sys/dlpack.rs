//! Tensors of `DLPack`, which own what they are made of.

use std::ffi::c_void;

use dlpk::{
    DLDataType, DLDevice, DLPackTensor, DLPackVersion,
    sys::{DLManagedTensorVersioned, DLTensor},
};

/// A tensor on the heap, with what it points to.
struct Exported {
    tensor: DLManagedTensorVersioned,
    shape: Box<[i64]>,
    strides: Box<[i64]>,
    /// What keeps the memory; dropped by whoever is done with the tensor.
    _owner: Box<dyn Send>,
}

/// A tensor at the start of `data`, a memory object's handle or null, that `owner` keeps. `shape` and `strides` are of one
/// length, in elements.
pub(crate) fn tensor(
    data: *mut c_void,
    device: DLDevice,
    dtype: DLDataType,
    shape: Vec<i64>,
    strides: Vec<i64>,
    owner: Box<dyn Send>,
) -> DLPackTensor {
    let mut exported = Box::new(Exported {
        tensor: DLManagedTensorVersioned {
            version: DLPackVersion::current(),
            manager_ctx: std::ptr::null_mut(),
            deleter: Some(delete),
            flags: 0,
            dl_tensor: DLTensor {
                data,
                device,
                // No device has memory for 2^31 dimensions of more than one element.
                ndim: i32::try_from(shape.len()).unwrap_or(i32::MAX),
                dtype,
                shape: std::ptr::null_mut(),
                strides: std::ptr::null_mut(),
                byte_offset: 0,
            },
        },
        shape: shape.into(),
        strides: strides.into(),
        _owner: owner,
    });
    exported.tensor.dl_tensor.shape = exported.shape.as_mut_ptr();
    exported.tensor.dl_tensor.strides = exported.strides.as_mut_ptr();
    let exported = Box::into_raw(exported);
    // SAFETY: `exported` is a live box that nobody else knows of yet.
    unsafe { (*exported).tensor.manager_ctx = exported.cast() };
    // SAFETY: likewise; no reference is made, so the pointer may be used for all of the box.
    let tensor = unsafe { &raw mut (*exported).tensor };
    // SAFETY: (1) it is a live tensor of the current version; (2) `delete` may be called from Rust, once, on any thread,
    // since the owner may be sent.
    unsafe { DLPackTensor::from_ptr(tensor) }
}

/// Frees a tensor, and drops its owner.
///
/// # Safety
///
/// `tensor` was made by [`tensor`], and is not used from here on.
unsafe extern "C" fn delete(tensor: *mut DLManagedTensorVersioned) {
    // SAFETY: the tensor lives, as the caller promises.
    let exported: *mut Exported = unsafe { (*tensor).manager_ctx }.cast();
    // SAFETY: (1) it came from `Box::into_raw`; (2) nobody uses or deletes it after this, as the caller promises.
    drop(unsafe { Box::from_raw(exported) });
}

//! Tensors of `DLPack`, which own their memory.

use std::ffi::c_void;

use dlpk::{
    DLDataType, DLDevice, DLPackTensor, DLPackVersion,
    sys::{DLManagedTensorVersioned, DLTensor},
};

/// A tensor on the heap, with everything that it points to.
struct Exported {
    tensor: DLManagedTensorVersioned,
    shape: Box<[i64]>,
    strides: Box<[i64]>,
    /// The owner of the memory, which is dropped with the tensor.
    _owner: Box<dyn Send>,
}

/// Returns a tensor that starts at byte `offset` of `data`, the handle of a memory object that `owner` keeps, or null.
/// `shape` and `strides` have the same length and count elements.
pub(crate) fn tensor(
    (data, offset): (*mut c_void, usize),
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
                byte_offset: offset as u64,
            },
        },
        shape: shape.into(),
        strides: strides.into(),
        _owner: owner,
    });
    exported.tensor.dl_tensor.shape = exported.shape.as_mut_ptr();
    exported.tensor.dl_tensor.strides = exported.strides.as_mut_ptr();
    let exported = Box::into_raw(exported);
    // SAFETY: `exported` came from `Box::into_raw` above, and nothing else has the pointer yet.
    unsafe { (*exported).tensor.manager_ctx = exported.cast() };
    // SAFETY: `exported` points to a live value, as above. This makes a pointer and no reference, so it may be used for the
    // whole box.
    let tensor = unsafe { &raw mut (*exported).tensor };
    // SAFETY: (1) `tensor` is a live tensor of the current version; (2) its `delete` frees it once, on any thread, since
    // the owner is `Send`.
    unsafe { DLPackTensor::from_ptr(tensor) }
}

/// Frees a tensor, and drops its owner.
///
/// # Safety
///
/// `tensor` was made by [`tensor`] and is alive, and is not used after this call.
unsafe extern "C" fn delete(tensor: *mut DLManagedTensorVersioned) {
    // SAFETY: The tensor was made by `tensor` and lives, as the caller promises.
    let exported: *mut Exported = unsafe { (*tensor).manager_ctx }.cast();
    // SAFETY: (1) `tensor` has put the pointer of `Box::into_raw` there; (2) nothing uses or deletes the tensor after this,
    // as the caller promises.
    drop(unsafe { Box::from_raw(exported) });
}

//! Contexts of parts of a device.

use std::{
    ffi::{c_char, c_void},
    ptr,
};

use opencl_sys::{
    CL_DEVICE_PARENT_DEVICE, CL_DEVICE_REFERENCE_COUNT, CL_INVALID_VALUE, CL_SUCCESS, cl_context,
    cl_context_properties, cl_device_id, cl_int, cl_uint,
};

use crate::{
    child::pooled,
    driver::Device,
    queue_driver::{left, load_with},
};

/// A device of its own, a part that ends with the program's reference, and one that its contexts keep.
const DEVICES: [(usize, usize, u32); 3] = [(101, 0, 1), (102, 101, 1), (103, 101, 2)];

unsafe extern "C" fn create_context(
    _: *const cl_context_properties,
    _: cl_uint,
    devices: *const cl_device_id,
    _: Option<unsafe extern "C" fn(*const c_char, *const c_void, usize, *mut c_void)>,
    _: *mut c_void,
    status: *mut cl_int,
) -> cl_context {
    unsafe { status.write(CL_SUCCESS) };
    // Of the last device.
    let last = unsafe { devices.add(1).read() };
    ptr::without_provenance_mut(1000 + last.addr())
}

unsafe extern "C" fn device_info(
    device: cl_device_id,
    name: cl_uint,
    _: usize,
    value: *mut c_void,
    _: *mut usize,
) -> cl_int {
    let of_device = DEVICES.iter().find(|(known, ..)| *known == device.addr());
    let Some((_, parent, references)) = of_device else {
        return CL_INVALID_VALUE;
    };
    match name {
        CL_DEVICE_PARENT_DEVICE => unsafe { value.cast::<usize>().write(*parent) },
        CL_DEVICE_REFERENCE_COUNT => unsafe { value.cast::<u32>().write(*references) },
        _ => return CL_INVALID_VALUE,
    }
    CL_SUCCESS
}

/// A program with a context of a device and of another one.
fn with_context_of(device: Device, other: usize) -> Device {
    let create = device.functions.clCreateContext.unwrap();
    let devices = [DEVICES[0].0, other].map(ptr::without_provenance_mut::<c_void>);
    let mut status = -1;
    let context = unsafe {
        create(
            ptr::null(),
            2,
            devices.as_ptr().cast(),
            None,
            ptr::null_mut(),
            &raw mut status,
        )
    };
    assert_eq!(status, CL_SUCCESS);
    device.in_context(context.addr())
}

#[test]
fn memory_is_the_drivers_in_a_context_that_does_not_keep_all_of_its_devices() {
    pooled(|| {
        let device = load_with(|functions| {
            functions.clCreateContext = Some(create_context);
            functions.clGetDeviceInfo = Some(device_info);
        });
        let are_kept = DEVICES.map(|(other, ..)| {
            let before = left()[2];
            with_context_of(device, other).touch(100);
            left()[2] > before
        });
        assert_eq!(are_kept, [true, false, true]);
    });
}

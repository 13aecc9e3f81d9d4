//! The functions by which kernels get their arguments.

use std::ffi::{c_char, c_void};

use opencl_sys::{
    CL_KERNEL_EXEC_INFO_SVM_FINE_GRAIN_SYSTEM, CL_KERNEL_EXEC_INFO_SVM_PTRS, CL_SUCCESS, cl_int,
    cl_kernel, cl_kernel_exec_info, cl_program, cl_uint,
};

use super::{
    driver::{call, functions},
    layer::layer,
    objects::Handle,
};
use crate::recording::contained;

functions! {
    // An older kernel may have had its address.
    clCreateKernel(program: cl_program, name: *const c_char, errcode_ret: *mut cl_int) -> cl_kernel,
        after kernel: layer().change(|known| known.begin_kernel(kernel as Handle));

    clCloneKernel(kernel: cl_kernel, errcode_ret: *mut cl_int) -> cl_kernel,
        after clone: layer().change(|known| known.copy_kernel(kernel as Handle, clone as Handle));

    clSetKernelArgSVMPointer(kernel: cl_kernel, index: cl_uint, address: *const c_void) -> cl_int, after: {
        layer().points_to(&[address.addr()]);
        layer().change(|known| known.set_argument(kernel as Handle, index, Some(address.addr())));
    };
}

pub(super) unsafe extern "C" fn clCreateKernelsInProgram(
    program: cl_program,
    count: cl_uint,
    kernels: *mut cl_kernel,
    count_ret: *mut cl_uint,
) -> cl_int {
    let mut own_count = 0;
    let place = if count_ret.is_null() {
        &raw mut own_count
    } else {
        count_ret
    };
    let status = call!(clCreateKernelsInProgram(program, count, kernels, place));
    if status != CL_SUCCESS {
        return status;
    }
    // SAFETY: the driver has written the count there.
    let made = unsafe { place.read() };
    if !kernels.is_null() {
        // SAFETY: the driver has written as many kernels, or fewer.
        let kernels = unsafe { std::slice::from_raw_parts(kernels, made.min(count) as usize) };
        for kernel in kernels {
            contained(|| layer().change(|known| known.begin_kernel(*kernel as Handle)));
        }
    }
    status
}

pub(super) unsafe extern "C" fn clSetKernelArg(
    kernel: cl_kernel,
    index: cl_uint,
    size: usize,
    value: *const c_void,
) -> cl_int {
    let status = call!(clSetKernelArg(kernel, index, size, value));
    if status == CL_SUCCESS {
        // Any argument of this size may be memory; one that has the address of memory by chance only counts as a use of it.
        let is_memory = size == size_of::<Handle>() && !value.is_null();
        // SAFETY: the program's value of this size.
        let memory = is_memory.then(|| unsafe { value.cast::<Handle>().read_unaligned() });
        contained(|| {
            layer().change(|known| known.set_argument(kernel as Handle, index, memory));
        });
    }
    status
}

pub(super) unsafe extern "C" fn clSetKernelExecInfo(
    kernel: cl_kernel,
    name: cl_kernel_exec_info,
    size: usize,
    value: *const c_void,
) -> cl_int {
    let status = call!(clSetKernelExecInfo(kernel, name, size, value));
    if status == CL_SUCCESS && name == CL_KERNEL_EXEC_INFO_SVM_PTRS && !value.is_null() {
        let mut addresses = vec![0_usize; size / size_of::<usize>()];
        // SAFETY: the program's list has this many bytes, and the copy at least the whole addresses of it.
        unsafe {
            addresses
                .as_mut_ptr()
                .cast::<u8>()
                .copy_from_nonoverlapping(value.cast(), size_of_val(&*addresses));
        };
        contained(|| {
            layer().points_to(&addresses);
            layer().change(|known| known.set_indirect(kernel as Handle, addresses));
        });
    } else if status == CL_SUCCESS && name == CL_KERNEL_EXEC_INFO_SVM_FINE_GRAIN_SYSTEM {
        contained(|| layer().may_wait_unseen());
    }
    status
}

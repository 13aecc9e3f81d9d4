//! The arguments of kernels.

use std::{
    ffi::{c_char, c_void},
    ptr,
};

use opencl_sys::{
    CL_INVALID_VALUE, CL_KERNEL_EXEC_INFO_SVM_FINE_GRAIN_SYSTEM, CL_KERNEL_EXEC_INFO_SVM_PTRS,
    CL_SUCCESS, cl_command_queue, cl_event, cl_int, cl_kernel, cl_kernel_exec_info, cl_program,
    cl_uint,
};

use crate::{
    child::pooled,
    driver::Device,
    queue_driver::{load_with, log, note},
};

/// The only kernel.
const KERNEL: usize = 500;

unsafe extern "C" fn create(_: cl_program, _: *const c_char, status: *mut cl_int) -> cl_kernel {
    unsafe { status.write(CL_SUCCESS) };
    ptr::without_provenance_mut(KERNEL)
}

unsafe extern "C" fn create_all(
    program: cl_program,
    count: cl_uint,
    kernels: *mut cl_kernel,
    count_ret: *mut cl_uint,
) -> cl_int {
    if program.is_null() {
        return CL_INVALID_VALUE;
    }
    unsafe { count_ret.write(1) };
    if count > 0 {
        unsafe { kernels.write(ptr::without_provenance_mut(KERNEL)) };
    }
    CL_SUCCESS
}

unsafe extern "C" fn set(_: cl_kernel, index: cl_uint, _: usize, _: *const c_void) -> cl_int {
    if index == 99 {
        CL_INVALID_VALUE
    } else {
        CL_SUCCESS
    }
}

unsafe extern "C" fn set_address(_: cl_kernel, _: cl_uint, _: *const c_void) -> cl_int {
    CL_SUCCESS
}

/// `clSetKernelArgMemPointerINTEL`.
unsafe extern "C" fn set_pointer(_: cl_kernel, index: cl_uint, _: *const c_void) -> cl_int {
    if index == 99 {
        CL_INVALID_VALUE
    } else {
        CL_SUCCESS
    }
}

unsafe extern "C" fn find(_: *const c_char) -> *mut c_void {
    set_pointer as *mut c_void
}

unsafe extern "C" fn set_info(
    _: cl_kernel,
    name: cl_kernel_exec_info,
    bytes: usize,
    _: *const c_void,
) -> cl_int {
    note(format_args!("info {name:x}"));
    // Three words are too many.
    if name == 99 || bytes == 24 {
        CL_INVALID_VALUE
    } else {
        CL_SUCCESS
    }
}

unsafe extern "C" fn run(
    queue: cl_command_queue,
    _: cl_kernel,
    _: cl_uint,
    _: *const usize,
    _: *const usize,
    _: *const usize,
    _: cl_uint,
    _: *const cl_event,
    _: *mut cl_event,
) -> cl_int {
    note(format_args!("run q{}", queue.addr()));
    CL_SUCCESS
}

/// A program with a kernel.
#[derive(Clone, Copy)]
struct Program(Device);

impl Program {
    fn load() -> Self {
        Self(load_with(|functions| {
            functions.clCreateKernel = Some(create);
            functions.clCreateKernelsInProgram = Some(create_all);
            functions.clSetKernelArg = Some(set);
            functions.clSetKernelArgSVMPointer = Some(set_address);
            functions.clSetKernelExecInfo = Some(set_info);
            functions.clEnqueueNDRangeKernel = Some(run);
            functions.clGetExtensionFunctionAddress = Some(find);
        }))
    }

    fn kernel() -> cl_kernel {
        ptr::without_provenance_mut(KERNEL)
    }

    /// Sets an argument to a buffer.
    fn set(self, index: cl_uint, buffer: usize) -> cl_int {
        let set = self.0.functions.clSetKernelArg.unwrap();
        let value = ptr::from_ref(&buffer).cast();
        unsafe { set(Self::kernel(), index, size_of_val(&buffer), value) }
    }

    fn set_address(self, address: usize) {
        let set = self.0.functions.clSetKernelArgSVMPointer.unwrap();
        let address = ptr::without_provenance(address);
        assert_eq!(unsafe { set(Self::kernel(), 0, address) }, CL_SUCCESS);
    }

    /// Sets an argument by the function of an extension.
    fn set_pointer(self, index: cl_uint, address: usize) -> cl_int {
        let find = self.0.functions.clGetExtensionFunctionAddress.unwrap();
        let found = unsafe { find(c"clSetKernelArgMemPointerINTEL".as_ptr()) };
        let set: unsafe extern "C" fn(cl_kernel, cl_uint, *const c_void) -> cl_int =
            unsafe { std::mem::transmute(found) };
        unsafe { set(Self::kernel(), index, ptr::without_provenance(address)) }
    }

    fn set_info(self, name: cl_kernel_exec_info, value: &[usize]) -> cl_int {
        let set = self.0.functions.clSetKernelExecInfo.unwrap();
        unsafe {
            set(
                Self::kernel(),
                name,
                size_of_val(value),
                value.as_ptr().cast(),
            )
        }
    }

    fn create_all(self, program: usize, count: cl_uint) -> cl_int {
        let create = self.0.functions.clCreateKernelsInProgram.unwrap();
        let program = ptr::without_provenance_mut(program);
        let mut kernel = ptr::null_mut();
        unsafe { create(program, count, &raw mut kernel, ptr::null_mut()) }
    }

    fn run(self, queue: usize) {
        let run = self.0.functions.clEnqueueNDRangeKernel.unwrap();
        let queue = ptr::without_provenance_mut(queue);
        let (size, nothing) = (1_usize, ptr::null());
        let status = unsafe {
            run(
                queue,
                Self::kernel(),
                1,
                nothing,
                &raw const size,
                nothing,
                0,
                ptr::null(),
                ptr::null_mut(),
            )
        };
        assert_eq!(status, CL_SUCCESS);
    }

    /// Whether the kernel uses a buffer of a queue of its own, which is made for it, on another one: the driver gets a barrier for that.
    fn uses(self, set: impl FnOnce(usize)) -> bool {
        let context = self.0.in_context(self.0.create(1) + 1000);
        let one = context.create_queue(0);
        let first = context.create(100);
        context.fill_on(one, first);
        context.release(first);
        let block = context.create(100);
        assert_eq!(block, first);
        let other = context.create_queue(0);
        set(block);
        log();
        self.run(other);
        let said = log();
        assert_eq!(said.last(), Some(&format!("run q{other}")));
        context.release(block);
        said.len() > 1
    }
}

#[test]
fn a_kernel_comes_after_the_former_uses_of_its_arguments() {
    pooled(|| {
        let program = Program::load();
        assert!(program.uses(|block| assert_eq!(program.set(0, block), CL_SUCCESS)));
        // What the driver has refused is not set.
        assert_eq!(program.set(0, 0), CL_SUCCESS);
        assert!(!program.uses(|block| assert_eq!(program.set(99, block), CL_INVALID_VALUE)));
    });
}

#[test]
fn an_argument_that_an_extension_sets_is_one() {
    pooled(|| {
        let program = Program::load();
        assert!(program.uses(|block| assert_eq!(program.set_pointer(0, block), CL_SUCCESS)));
        assert_eq!(program.set_pointer(0, 0), CL_SUCCESS);
        let refused = |block| assert_eq!(program.set_pointer(99, block), CL_INVALID_VALUE);
        assert!(!program.uses(refused));
    });
}

#[test]
fn kernels_that_a_program_makes_have_no_arguments_unless_the_driver_makes_none() {
    pooled(|| {
        let program = Program::load();
        assert!(!program.uses(|block| {
            assert_eq!(program.set(0, block), CL_SUCCESS);
            assert_eq!(program.create_all(1, 1), CL_SUCCESS);
        }));
        for (with, count) in [(0, 1), (1, 0)] {
            assert!(program.uses(|block| {
                assert_eq!(program.set(0, block), CL_SUCCESS);
                program.create_all(with, count);
            }));
        }
    });
}

#[test]
fn what_the_driver_is_told_of_a_kernel_it_gets() {
    pooled(|| {
        let program = Program::load();
        log();
        assert_eq!(program.set_info(99, &[1]), CL_INVALID_VALUE);
        assert_eq!(
            program.set_info(CL_KERNEL_EXEC_INFO_SVM_PTRS, &[1]),
            CL_SUCCESS
        );
        let expected = [99, CL_KERNEL_EXEC_INFO_SVM_PTRS].map(|name| format!("info {name:x}"));
        assert_eq!(log(), expected);
    });
}

/// Whether memory is used again before its commands have ended, after `call`.
fn is_used_at_once_after(call: impl FnOnce(Program)) -> bool {
    let program = Program::load();
    call(program);
    let queue = program.0.create_queue(0);
    let block = program.0.create(100);
    program.0.fill_on(queue, block);
    program.0.release(block);
    program.0.create(100) == block
}

#[test]
fn memory_is_used_at_once_after_a_kernel_that_cannot_wait_for_the_host() {
    pooled(|| {
        assert!(is_used_at_once_after(|program| {
            program.set_address(0);
            program.set_info(CL_KERNEL_EXEC_INFO_SVM_PTRS, &[0]);
            // These say nothing of memory, and the driver refuses the others.
            program.set_info(5, &[4096]);
            program.set_info(99, &[4096]);
            program.set_info(CL_KERNEL_EXEC_INFO_SVM_PTRS, &[4096; 3]);
            program.set_info(CL_KERNEL_EXEC_INFO_SVM_FINE_GRAIN_SYSTEM, &[1; 3]);
        }));
    });
}

#[test]
fn memory_is_not_used_at_once_after_a_kernel_that_has_an_address_of_the_host() {
    pooled(|| assert!(!is_used_at_once_after(|program| program.set_address(4096))));
}

#[test]
fn memory_is_not_used_at_once_after_a_kernel_that_finds_addresses_of_the_host() {
    pooled(|| {
        assert!(!is_used_at_once_after(|program| {
            program.set_info(CL_KERNEL_EXEC_INFO_SVM_PTRS, &[0, 4096]);
        }));
    });
}

#[test]
fn memory_is_not_used_at_once_after_a_kernel_that_may_use_all_of_the_host() {
    pooled(|| {
        assert!(!is_used_at_once_after(|program| {
            program.set_info(CL_KERNEL_EXEC_INFO_SVM_FINE_GRAIN_SYSTEM, &[1]);
        }));
    });
}

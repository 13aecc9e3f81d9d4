//! Kernels of an OpenCL device.

use std::{
    fmt, ptr,
    sync::{Mutex, PoisonError},
};

use binpool::{Error, InvalidRequest, Memory as _, ObjectKind, Region, SvmBackend as _};
use binpool_opencl::{ClMemory, ClQueue, DeviceSelector, OpenClBackend};
use opencl3::{
    context::Context, device::Device, error_codes::ClError, kernel::Kernel, program::Program,
    types::cl_int,
};

use crate::{BinaryOperation, Kernels, Operands};

const SOURCE: &str = "
#define OPERATION(name, operator)                                                                  \
    kernel void name(global const float *left, global const float *right, global float *result)     \
    {                                                                                              \
        size_t i = get_global_id(0);                                                               \
        result[i] = left[i] operator right[i];                                                     \
    }

OPERATION(add, +)
OPERATION(subtract, -)
OPERATION(multiply, *)
";

/// Element-wise kernels for OpenCL devices.
pub struct OpenClKernels {
    /// In the order of [`BinaryOperation::ALL`]. The arguments of a kernel are part of it, so setting them and
    /// enqueueing the kernel is one step.
    kernels: [Mutex<Kernel>; 3],
}

impl OpenClKernels {
    /// Builds the kernels for a context, which is the one that the backend was built from.
    ///
    /// # Errors
    ///
    /// The compiler's, with its log.
    pub fn new(context: &Context) -> Result<Self, Error> {
        let program = Program::create_and_build_from_source(context, SOURCE, "")
            .map_err(|log| Error::backend("clBuildProgram", None, log))?;
        let [add, subtract, multiply] = BinaryOperation::ALL.map(|operation| {
            Kernel::create(&program, operation.name())
                .map(Mutex::new)
                .map_err(|ClError(code)| failure("clCreateKernel", code))
        });
        Ok(Self {
            kernels: [add?, subtract?, multiply?],
        })
    }
}

impl fmt::Debug for OpenClKernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OpenClKernels")
    }
}

/// A backend over a context of `opencl3`'s, and kernels built for the same context: what a program that uses
/// `opencl3` has anyway.
///
/// # Errors
///
/// No such device, no OpenCL at all, or a failure of the runtime or its compiler.
pub fn open_opencl(selector: &DeviceSelector) -> Result<(OpenClBackend, OpenClKernels), Error> {
    let opening = |error| Error::backend("opening an OpenCL device", None, error);
    let device = OpenClBackend::open(selector).map_err(opening)?;
    let context = Context::from_device(&Device::new(device.raw_device()))
        .map_err(|ClError(code)| failure("clCreateContext", code))?;
    let backend = OpenClBackend::from_context(&context).map_err(opening)?;
    Ok((backend, OpenClKernels::new(&context)?))
}

/// The runtime's code as an error, with its name.
fn failure(operation: &'static str, code: cl_int) -> Error {
    Error::backend(operation, Some(code), ClError(code))
}

fn set_argument(
    backend: &OpenClBackend,
    kernel: &Kernel,
    index: u32,
    memory: &ClMemory,
) -> Result<(), Error> {
    if let Some(address) = backend.svm_address(memory) {
        let address = address.as_ptr().cast_const().cast();
        // SAFETY: the address is that of a live block of SVM, which the pool keeps from its next user until
        // the commands enqueued before its release have ended.
        return unsafe {
            opencl3::kernel::set_kernel_arg_svm_pointer(kernel.get(), index, address)
        }
        .map_err(|code| failure("clSetKernelArgSVMPointer", code));
    }
    let kind = ObjectKind::Memory;
    let handle = memory.raw().ok_or(InvalidRequest::ForeignObject { kind })?;
    // SAFETY: the argument is a memory object, hence its value is a handle, of a handle's size; the runtime
    // copies it before the call returns.
    unsafe {
        opencl3::kernel::set_kernel_arg(
            kernel.get(),
            index,
            size_of_val(&handle),
            ptr::from_ref(&handle).cast(),
        )
    }
    .map_err(|code| failure("clSetKernelArg", code))
}

impl Kernels<OpenClBackend> for OpenClKernels {
    fn enqueue(
        &self,
        backend: &OpenClBackend,
        queue: &ClQueue,
        operation: BinaryOperation,
        operands: &Operands<'_, OpenClBackend>,
    ) -> Result<(), Error> {
        let bytes = operands.elements.saturating_mul(size_of::<f32>());
        for memory in [operands.left, operands.right, operands.result] {
            Region::first(bytes).check_within(memory.bytes())?;
        }
        if operands.elements == 0 {
            return Err(InvalidRequest::ZeroSize.into());
        }
        let kernel = self.kernels[operation as usize]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        set_argument(backend, &kernel, 0, operands.left)?;
        set_argument(backend, &kernel, 1, operands.right)?;
        set_argument(backend, &kernel, 2, operands.result)?;
        // SAFETY: (1) the kernel has its three arguments, each a block of at least `elements` floats, checked
        // above; (2) it runs once for each element; (3) the runtime keeps the kernel and the buffers alive for
        // the command.
        let event = unsafe {
            opencl3::command_queue::enqueue_nd_range_kernel(
                queue.raw(),
                kernel.get(),
                1,
                ptr::null(),
                &raw const operands.elements,
                ptr::null(),
                0,
                ptr::null(),
            )
        }
        .map_err(|code| failure("clEnqueueNDRangeKernel", code))?;
        // SAFETY: the event was made by the call above, and this is its only reference.
        unsafe { opencl3::event::release_event(event) }
            .map_err(|code| failure("clReleaseEvent", code))
    }
}

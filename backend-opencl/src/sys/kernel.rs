//! Calls of OpenCL that make kernels, describe their parameters and set their arguments.

use std::{ffi::CStr, ptr};

use cl3::{
    error_codes::{CL_INVALID_VALUE, CL_KERNEL_ARG_INFO_NOT_AVAILABLE},
    kernel::{
        CL_KERNEL_ARG_ACCESS_QUALIFIER, CL_KERNEL_ARG_ADDRESS_QUALIFIER, CL_KERNEL_ARG_TYPE_NAME,
        CL_KERNEL_ARG_TYPE_QUALIFIER, CL_KERNEL_EXEC_INFO_SVM_PTRS, CL_KERNEL_NUM_ARGS,
    },
};
use smallvec::SmallVec;

#[cfg(feature = "images")]
use super::SamplerHandle;
pub(crate) use super::handle::KernelHandle;
use super::{
    ClError, ClResult, DeviceId, EventHandle, MemHandle, QueueHandle, SvmRange, WaitList,
    answer::Answer, enqueue::enqueue, program::ProgramHandle,
};

/// A kernel of a program that was built, with no argument set.
pub(crate) fn create_kernel(program: &ProgramHandle, name: &CStr) -> ClResult<KernelHandle> {
    let created = cl3::kernel::create_kernel(program.raw(), name);
    // SAFETY: The call above has just returned this reference, and nothing else takes it.
    unsafe { KernelHandle::own(created, "clCreateKernel") }
}

/// Returns the number of arguments of a kernel.
pub(crate) fn argument_count(kernel: &KernelHandle) -> ClResult<usize> {
    kernel.info(CL_KERNEL_NUM_ARGS)?.size()
}

/// What a kernel tells about one of its arguments.
#[derive(Debug)]
pub(crate) struct ArgumentInfo {
    /// `CL_KERNEL_ARG_ADDRESS_*`.
    pub(crate) address: u64,
    /// `CL_KERNEL_ARG_ACCESS_*`.
    pub(crate) access: u64,
    /// Bits of `CL_KERNEL_ARG_TYPE_*`.
    pub(crate) qualifiers: u64,
    /// The type, as OpenCL C has it.
    pub(crate) type_name: String,
}

/// Returns what a kernel tells about one of its arguments; `None` if the compiler has not kept that.
pub(crate) fn argument_info(kernel: &KernelHandle, index: u32) -> ClResult<Option<ArgumentInfo>> {
    let ask = |what| {
        let answered = cl3::kernel::get_kernel_arg_data(kernel.raw(), index, what);
        Answer::new(answered, "clGetKernelArgInfo")
    };
    let all = || {
        Ok(ArgumentInfo {
            address: ask(CL_KERNEL_ARG_ADDRESS_QUALIFIER)?.number()?,
            access: ask(CL_KERNEL_ARG_ACCESS_QUALIFIER)?.number()?,
            qualifiers: ask(CL_KERNEL_ARG_TYPE_QUALIFIER)?.number()?,
            type_name: ask(CL_KERNEL_ARG_TYPE_NAME)?.text(),
        })
    };
    match all() {
        Err(ClError {
            code: CL_KERNEL_ARG_INFO_NOT_AVAILABLE,
            ..
        }) => Ok(None),
        told => told.map(Some),
    }
}

/// Returns the runtime's answer to a question about a kernel on a device.
pub(crate) fn group_info(kernel: &KernelHandle, device: DeviceId, what: u32) -> ClResult<Answer> {
    let answered = cl3::kernel::get_kernel_work_group_data(kernel.raw(), device.raw(), what);
    Answer::new(answered, "clGetKernelWorkGroupInfo")
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum ArgumentValue<'a> {
    /// A buffer, or another memory object.
    Memory(&'a MemHandle),
    /// A pointer to nothing.
    NoMemory,
    /// The address of shared virtual memory.
    Svm(SvmRange<'a>),
    /// These bytes themselves.
    Bytes(&'a [u8]),
    /// That many bytes of local memory.
    Local(usize),
    /// A sampler.
    #[cfg(feature = "images")]
    Sampler(&'a SamplerHandle),
}

/// Sets an argument. The runtime copies the bytes of a value. A memory object, a block or a sampler has to live until the
/// kernel is enqueued or the argument is set again.
pub(crate) fn set_argument(
    kernel: &mut KernelHandle,
    index: u32,
    value: ArgumentValue<'_>,
) -> ClResult<()> {
    let object = match value {
        ArgumentValue::Memory(memory) => memory.raw(),
        #[cfg(feature = "images")]
        ArgumentValue::Sampler(sampler) => sampler.raw(),
        _ => ptr::null_mut(),
    };
    let (bytes, pointer) = match value {
        ArgumentValue::Svm(range) => {
            let address = range.start().as_ptr().cast_const().cast();
            // SAFETY: (1) the kernel is alive and borrowed exclusively; (2) the address lies in a block of the runtime,
            // which is not freed while a command uses it (rule 1 of `sys`).
            return unsafe {
                cl3::kernel::set_kernel_arg_svm_pointer(kernel.raw(), index, address)
            }
            .map_err(|code| ClError::new("clSetKernelArgSVMPointer", code));
        }
        ArgumentValue::Bytes(bytes) => (bytes.len(), bytes.as_ptr().cast()),
        ArgumentValue::Local(bytes) => (bytes, ptr::null()),
        // An object, by its handle, which is null for no memory.
        _ => (size_of_val(&object), (&raw const object).cast()),
    };
    // SAFETY: (1) the kernel is alive and borrowed exclusively; (2) during the call, `pointer` is readable for `bytes`
    // bytes, or null for local memory; (3) the runtime refuses a size that is not the argument's, and an object that is not
    // alive.
    unsafe { cl3::kernel::set_kernel_arg(kernel.raw(), index, bytes, pointer) }
        .map_err(|code| ClError::new("clSetKernelArg", code))
}

/// Names shared virtual memory that a kernel reaches through other memory.
pub(crate) fn set_indirect<'a>(
    kernel: &mut KernelHandle,
    blocks: impl Iterator<Item = SvmRange<'a>>,
) -> ClResult<()> {
    let addresses: SmallVec<[*const u8; 8]> = blocks
        .map(|block| block.start().as_ptr().cast_const())
        .collect();
    // SAFETY: (1) the kernel is alive and borrowed exclusively; (2) the size that is passed is that of the list, which the
    // runtime copies; (3) each address is that of a block which is not freed while a command uses it (rule 1 of `sys`).
    unsafe {
        cl3::kernel::set_kernel_exec_info(
            kernel.raw(),
            CL_KERNEL_EXEC_INFO_SVM_PTRS,
            size_of_val(addresses.as_slice()),
            addresses.as_ptr().cast(),
        )
    }
    .map_err(|code| ClError::new("clSetKernelExecInfo", code))
}

/// The work items of a launch: each list has one number for each dimension.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkItems<'a> {
    pub(crate) global: &'a [usize],
    pub(crate) offset: &'a [usize],
    /// The local size; `None` leaves it to the runtime.
    pub(crate) local: Option<&'a [usize]>,
}

/// Enqueues a kernel whose arguments are all set. The runtime checks the sizes.
pub(crate) fn enqueue_kernel(
    queue: &QueueHandle,
    kernel: &KernelHandle,
    items: WorkItems<'_>,
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    const CALL: &str = "clEnqueueNDRangeKernel";
    let dimensions = items.global.len();
    let local_dimensions = items.local.map_or(dimensions, <[usize]>::len);
    if [items.offset.len(), local_dimensions] != [dimensions; 2] {
        return Err(ClError::new(CALL, CL_INVALID_VALUE));
    }
    // SAFETY: (1) queue, kernel and events are kept alive by their handles; (2) each list has one number for each
    // dimension, as is checked above; (3) the kernel touches the declared bytes only (rule 2 of `sys`).
    enqueue!(wait; CALL, unsafe enqueue_nd_range_kernel(
        queue.raw(), kernel.raw(), u32::try_from(dimensions).unwrap_or(u32::MAX),
        items.offset.as_ptr(), items.global.as_ptr(), items.local.map_or(ptr::null(),
        <[usize]>::as_ptr)
    ))
}

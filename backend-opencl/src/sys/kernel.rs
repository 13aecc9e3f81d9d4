//! Kernels.

use std::{ffi::CStr, ptr};

use cl3::{
    error_codes::{CL_INVALID_VALUE, CL_KERNEL_ARG_INFO_NOT_AVAILABLE},
    kernel::{
        CL_KERNEL_ARG_ACCESS_QUALIFIER, CL_KERNEL_ARG_ADDRESS_QUALIFIER, CL_KERNEL_ARG_TYPE_NAME,
        CL_KERNEL_ARG_TYPE_QUALIFIER, CL_KERNEL_COMPILE_WORK_GROUP_SIZE,
        CL_KERNEL_EXEC_INFO_SVM_PTRS, CL_KERNEL_NUM_ARGS,
    },
};
use smallvec::SmallVec;

pub(crate) use super::handle::KernelHandle;
use super::{
    ClError, ClResult, DeviceId, EventHandle, MemHandle, QueueHandle, SamplerHandle, SvmRange,
    WaitList, enqueue::own_event, info, program::ProgramHandle,
};

/// A kernel of a program that was built, with no argument set.
pub(crate) fn create_kernel(program: &ProgramHandle, name: &CStr) -> ClResult<KernelHandle> {
    const CALL: &str = "clCreateKernel";
    let raw =
        cl3::kernel::create_kernel(program.raw(), name).map_err(|code| ClError::new(CALL, code))?;
    // SAFETY: The call above has just returned this reference, and nothing else takes it.
    unsafe { KernelHandle::own(raw, CALL) }
}

/// Returns the number of arguments of a kernel.
pub(crate) fn argument_count(kernel: &KernelHandle) -> ClResult<usize> {
    const CALL: &str = "clGetKernelInfo";
    let bytes = cl3::kernel::get_kernel_data(kernel.raw(), CL_KERNEL_NUM_ARGS)
        .map_err(|code| ClError::new(CALL, code))?;
    let count = info::number(&bytes).and_then(|count| usize::try_from(count).ok());
    count.ok_or(ClError::new(CALL, CL_INVALID_VALUE))
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
    const CALL: &str = "clGetKernelArgInfo";
    let ask = |what| cl3::kernel::get_kernel_arg_data(kernel.raw(), index, what);
    let number = |what| info::number(&ask(what)?).ok_or(CL_INVALID_VALUE);
    let all = || {
        Ok(ArgumentInfo {
            address: number(CL_KERNEL_ARG_ADDRESS_QUALIFIER)?,
            access: number(CL_KERNEL_ARG_ACCESS_QUALIFIER)?,
            qualifiers: number(CL_KERNEL_ARG_TYPE_QUALIFIER)?,
            type_name: info::text(&ask(CL_KERNEL_ARG_TYPE_NAME)?),
        })
    };
    match all() {
        Ok(info) => Ok(Some(info)),
        Err(CL_KERNEL_ARG_INFO_NOT_AVAILABLE) => Ok(None),
        Err(code) => Err(ClError::new(CALL, code)),
    }
}

/// A number about a kernel on a device.
pub(crate) fn group_number(kernel: &KernelHandle, device: DeviceId, what: u32) -> ClResult<u64> {
    let bytes = group_bytes(kernel, device, what)?;
    info::number(&bytes).ok_or(ClError::new("clGetKernelWorkGroupInfo", CL_INVALID_VALUE))
}

/// Returns the local size that the kernel was compiled for; zeros if for any.
pub(crate) fn required_local_size(
    kernel: &KernelHandle,
    device: DeviceId,
) -> ClResult<SmallVec<[usize; 3]>> {
    let bytes = group_bytes(kernel, device, CL_KERNEL_COMPILE_WORK_GROUP_SIZE)?;
    Ok(info::sizes(&bytes).into())
}

fn group_bytes(kernel: &KernelHandle, device: DeviceId, what: u32) -> ClResult<Vec<u8>> {
    cl3::kernel::get_kernel_work_group_data(kernel.raw(), device.raw(), what)
        .map_err(|code| ClError::new("clGetKernelWorkGroupInfo", code))
}

/// The value that an argument is set to.
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
    Sampler(&'a SamplerHandle),
}

/// Sets an argument. The runtime copies the bytes of a value. A memory object, a block or a sampler has to live until the
/// kernel is enqueued or the argument is set again.
pub(crate) fn set_argument(
    kernel: &mut KernelHandle,
    index: u32,
    value: ArgumentValue<'_>,
) -> ClResult<()> {
    let object;
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
        ArgumentValue::Memory(memory) => {
            object = memory.raw();
            (size_of_val(&object), (&raw const object).cast())
        }
        ArgumentValue::Sampler(sampler) => {
            object = sampler.raw();
            (size_of_val(&object), (&raw const object).cast())
        }
        ArgumentValue::NoMemory => {
            object = ptr::null_mut();
            (size_of_val(&object), (&raw const object).cast())
        }
        ArgumentValue::Bytes(bytes) => (bytes.len(), bytes.as_ptr().cast()),
        ArgumentValue::Local(bytes) => (bytes, ptr::null()),
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
    let event = unsafe {
        cl3::command_queue::enqueue_nd_range_kernel(
            queue.raw(),
            kernel.raw(),
            u32::try_from(dimensions).unwrap_or(u32::MAX),
            items.offset.as_ptr(),
            items.global.as_ptr(),
            items.local.map_or(ptr::null(), <[usize]>::as_ptr),
            wait.count(),
            wait.pointer(),
        )
    };
    // SAFETY: The call above has just returned this event, and nothing else takes its reference.
    unsafe { own_event(CALL, event) }
}

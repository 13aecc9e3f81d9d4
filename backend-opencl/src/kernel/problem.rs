//! What is wrong with a kernel or a launch of it.

use binpool_allocators::MemoryFlags;

use super::parameter::ParameterAccess;

/// What is wrong with a kernel or a launch, in a form that programs can act on. Printed after the name of the kernel, it says what to do.
///
/// ```
/// # use binpool_allocators::{Backend, Event, MemoryFlags, QueueOrder};
/// # use binpool_opencl::{ClProgram, Extent, OpenClBackend, Parameter};
/// use binpool_opencl::{KernelProblem, OpenClError};
///
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let source = "kernel void clear(global float *data) { data[get_global_id(0)] = 0.0f; }";
/// # let program = ClProgram::build(&backend, source, "")?;
/// # // SAFETY: each work item writes the float of its id, and touches nothing else.
/// # let clear = unsafe { program.kernel("clear", &[Parameter::output::<f32>(Extent::PerItem(1))]) }?;
/// let memory = backend.create_buffer(400, MemoryFlags::empty())?;
/// let launch = |items| clear.launch(&queue, &[items]).memory(&memory).enqueue();
/// let launched = match launch(1000) {
///     // As many items as there is room for.
///     Err(OpenClError::Kernel { problem: KernelProblem::TooFewBytes { given, .. }, .. }) => launch(given / 4),
///     launched => launched,
/// };
/// launched?.wait()?;
/// assert_eq!(*backend.map::<f32>(&queue, &memory, ..)?, [0.0; 100]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KernelProblem {
    /// An argument has fewer bytes than the work items touch.
    #[error(
        "was given {given} bytes, but this launch touches {needed}: give more, or launch fewer work items"
    )]
    TooFewBytes {
        /// The bytes of the argument.
        given: usize,
        /// The bytes that the launch touches.
        needed: usize,
    },
    /// A work group needs more local memory than the device has.
    #[error("takes {needed} bytes of local memory in a work group: this device has {available}")]
    LocalMemory {
        /// The bytes that a group takes.
        needed: usize,
        /// The bytes that the device has for one.
        available: usize,
    },
    /// The local size is larger than the device's largest in one dimension.
    #[error(
        "cannot be launched with a local size of {given} in dimension {dimension}: this device allows up to {largest}"
    )]
    LocalSize {
        /// The dimension.
        dimension: usize,
        /// The local size there.
        given: usize,
        /// The device's largest there.
        largest: usize,
    },
    /// A group has more work items than the kernel can have on the device.
    #[error(
        "cannot be launched with {given} work items in a group: this kernel can have {largest} on this device"
    )]
    GroupSize {
        /// The work items of a group.
        given: usize,
        /// The most that the kernel can have.
        largest: usize,
    },
    /// Something else is wrong with the numbers of work items, in words.
    #[error("cannot be launched with {0}")]
    WorkSize(String),
    /// Memory was made with a flag that forbids what the kernel does.
    #[error("{}", access_text(*.access, *.flag, *.indirect))]
    Access {
        /// What the kernel does with the memory.
        access: ParameterAccess,
        /// The flag that forbids it.
        flag: MemoryFlags,
        /// Whether it is memory that the kernel reaches through [other memory](crate::Launch::indirect).
        indirect: bool,
    },
    /// Memory that is written is passed twice.
    #[error(
        "shares bytes with {}, and one of them is written: pass the memory once, as read and written",
        other_text(*.other)
    )]
    Overlap {
        /// The other parameter; `None` for indirect memory.
        other: Option<usize>,
    },
    /// Anything else, in words.
    #[error("{0}")]
    Other(String),
}

fn access_text(access: ParameterAccess, flag: MemoryFlags, indirect: bool) -> String {
    let given = if indirect {
        format!("was given indirect memory that is {access}, and")
    } else {
        format!("is {access}, but was given memory")
    };
    format!("{given} that was made with {flag}: pass memory without that flag")
}

fn other_text(other: Option<usize>) -> String {
    other.map_or("indirect memory".into(), |index| {
        format!("parameter {index}")
    })
}

impl<T: Into<String>> From<T> for KernelProblem {
    fn from(problem: T) -> Self {
        Self::Other(problem.into())
    }
}

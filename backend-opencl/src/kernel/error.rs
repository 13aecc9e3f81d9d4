//! The errors of programs, kernels and launches.

use std::fmt;

use binpool_allocators::{Align, Error, MemoryFlags};

use super::{ParameterAccess, ParameterKind};
use crate::image::ImageKind;

/// The error of a program that was not built, or a kernel that was not made or launched. Nothing was enqueued.
///
/// Parameters are counted from 0.
///
/// ```
/// use binpool_opencl::{ClProgram, KernelError, OpenClBackend};
///
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// let source = "kernel void fill(global float *data) { data[get_global_id(0)] = VALUE; }";
/// match ClProgram::build(&backend, source, "-D NUMBER=2.0f") {
///     Err(KernelError::Build { options, log, .. }) => {
///         assert_eq!(options, "-D NUMBER=2.0f");
///         assert!(log.contains("VALUE")); // what the compiler does not know
///     }
///     other => panic!("{other:?}"),
/// }
///
/// let program = ClProgram::build(&backend, source, "-D VALUE=2.0f")?;
/// // SAFETY: there is no such kernel.
/// match unsafe { program.kernel("fill_all", &[]) } {
///     Err(KernelError::NoSuchKernel { available, .. }) => assert_eq!(available, ["fill"]),
///     other => panic!("{other:?}"),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// The compiler refuses the source or the options.
    #[error("the program does not build for {device} with options {options:?}:\n{log}")]
    Build {
        /// The device's name.
        device: String,
        /// The options that were passed.
        options: String,
        /// The messages of the compiler.
        log: String,
    },
    /// The source of the program is empty.
    #[error("the source of the program is empty")]
    EmptySource,
    /// Options or a name have a null byte, which a string of C cannot have.
    #[error("{text:?} has a null byte in it")]
    NullByte {
        /// The text.
        text: String,
    },
    /// The program has no kernel of that name. PoCL renames kernels that have the name of a function of OpenCL C: `mix`
    /// becomes `_cl_mix`.
    #[error("no kernel is called {name:?}; there are {}", Names(.available))]
    NoSuchKernel {
        /// The name that was asked for.
        name: String,
        /// The kernels of the program.
        available: Vec<String>,
    },
    /// The number of declared parameters differs from the number that the kernel takes.
    #[error("{kernel} has {actual} parameters, and {declared} are declared")]
    ParameterCount {
        /// The kernel's name.
        kernel: String,
        /// The number of declared parameters.
        declared: usize,
        /// The number of parameters of the kernel.
        actual: usize,
    },
    /// A parameter's declaration, or its argument, does not fit.
    #[error("parameter {index} of {kernel} {problem}")]
    Parameter {
        /// The kernel's name.
        kernel: String,
        /// The number of the parameter.
        index: usize,
        /// The reason.
        problem: ParameterProblem,
    },
    /// The parameters take more bytes than the device passes to a kernel.
    #[error("the parameters of {kernel} take {bytes} bytes: this device passes at most {largest}")]
    TooManyParameterBytes {
        /// The kernel's name.
        kernel: String,
        /// The bytes of all values, and of a pointer for each other parameter.
        bytes: usize,
        /// The device's largest number.
        largest: usize,
    },
    /// A launch has too few or too many arguments.
    #[error("a launch of {kernel} has {given} arguments, and takes {expected}")]
    ArgumentCount {
        /// The kernel's name.
        kernel: String,
        /// The number that was given.
        given: usize,
        /// The number that it takes: one for each parameter that is no length.
        expected: usize,
    },
    /// The runtime refuses the argument of a parameter.
    #[error("parameter {index} of {kernel} does not take what it was given")]
    ArgumentRefused {
        /// The kernel's name.
        kernel: String,
        /// The number of the parameter.
        index: usize,
        /// The error of the runtime.
        source: Error,
    },
    /// Bytes that the kernel writes were also passed for another parameter.
    #[error(
        "parameters {first} and {second} of {kernel} share bytes, and one of them is written: pass the memory once, \
         as read and written"
    )]
    Overlap {
        /// The kernel's name.
        kernel: String,
        /// One of the two.
        first: LaunchMemory,
        /// The other.
        second: LaunchMemory,
    },
    /// A kernel uses memory or an image in a way that the flags of the memory forbid.
    #[error(
        "parameter {parameter} of {kernel} is {access}, and was given memory that was made with {flag}: pass memory \
         without that flag"
    )]
    AccessFlag {
        /// The kernel's name.
        kernel: String,
        /// The memory.
        parameter: LaunchMemory,
        /// The declared access of the kernel.
        access: ParameterAccess,
        /// The flag that forbids this access: [`READ_ONLY`](MemoryFlags::READ_ONLY) or
        /// [`WRITE_ONLY`](MemoryFlags::WRITE_ONLY).
        flag: MemoryFlags,
    },
    /// The device cannot launch this number of work items.
    #[error("{kernel} cannot be launched with {problem}")]
    WorkSize {
        /// The kernel's name.
        kernel: String,
        /// The reason.
        problem: WorkSizeProblem,
    },
    /// The work groups take more local memory than the device has.
    #[error(
        "a work group of {kernel} takes {needed} bytes of local memory: this device has {available}"
    )]
    LocalMemory {
        /// The kernel's name.
        kernel: String,
        /// The bytes that a group takes, the kernel's own included.
        needed: usize,
        /// The bytes that the device has.
        available: usize,
    },
    /// The device, the runtime, or memory that was passed.
    #[error(transparent)]
    Memory(#[from] Error),
}

/// The reason why a parameter's declaration, or its argument, is refused, with the numbers that do not fit.
///
/// Printed, it completes the sentence "parameter 0 of fill ...".
///
/// ```
/// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
/// use binpool_opencl::{KernelError, ParameterProblem};
/// # use binpool_opencl::{ClProgram, Extent, OpenClBackend, Parameter};
///
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let source = "kernel void fill(global float *data) { data[get_global_id(0)] = 2.0f; }";
/// # let program = ClProgram::build(&backend, source, "")?;
/// # let parameters = [Parameter::output::<f32>(Extent::PerItem(1))];
/// # // SAFETY: each work item writes the float of its id, and touches nothing else.
/// # let fill = unsafe { program.kernel("fill", &parameters) }?;
/// let hundred_floats = backend.create_buffer(400, MemoryFlags::empty())?;
/// let launch = fill.launch(&queue, &[128]).memory(&hundred_floats);
/// match launch.enqueue() {
///     Err(KernelError::Parameter { index, problem, .. }) => {
///         assert_eq!((index, problem), (0, ParameterProblem::TooSmall { given: 400, needed: 512 }));
///     }
///     other => panic!("{other:?}"),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParameterProblem {
    /// A parameter is declared as another kind than it has.
    #[error("is {actual}, and is declared as {declared}")]
    Kind {
        /// The declared value.
        declared: ParameterKind,
        /// The value of the kernel.
        actual: ParameterKind,
    },
    /// The declared access of a parameter does not fit its type in the kernel.
    #[error("is declared as {declared}, and its type is {actual}")]
    Access {
        /// The declared value.
        declared: ParameterAccess,
        /// The access of its type.
        actual: ParameterAccess,
    },
    /// A parameter is declared with elements of another size than those of its type in the kernel.
    #[error("is declared with elements of {declared} bytes, and has {type_name} of {actual} bytes")]
    ElementSize {
        /// The bytes of an element as declared.
        declared: usize,
        /// The type of an element in OpenCL C.
        type_name: String,
        /// The bytes of that type.
        actual: usize,
    },
    /// A parameter is declared with elements, or a value, of a type without bytes.
    #[error("is declared with a type of 0 bytes")]
    EmptyType,
    /// The declared or given kind of image differs from that of the parameter.
    #[error("is a {actual}, and {other} was declared or given")]
    ImageKind {
        /// The kind that was declared or given.
        other: ImageKind,
        /// The value of the kernel.
        actual: ImageKind,
    },
    /// A parameter is declared as the length or the offset of one that is no memory.
    #[error("is the length or the offset of parameter {of}, which is no memory")]
    NotOfMemory {
        /// The number of the parameter that is no memory.
        of: usize,
    },
    /// A part of a buffer was given that cannot be passed to a kernel.
    #[error(
        "was given memory from byte {offset} of a buffer on, which is no multiple of {alignment}, or this device starts no \
         argument within a buffer: declare its offset (`Parameter::offset_u64`), so that the kernel takes the whole buffer"
    )]
    StartsWithin {
        /// The offset of the argument in its buffer, in bytes.
        offset: usize,
        /// The unit of such offsets, on devices that take parts of buffers at all.
        alignment: Align,
    },
    /// An argument is of another kind than its parameter takes.
    #[error("takes {expected}, and was given {given}")]
    ArgumentKind {
        /// The kind or size that was given.
        given: ParameterKind,
        /// The kind that it takes.
        expected: ParameterKind,
    },
    /// A value has another size than its parameter.
    #[error("takes a value of {expected} bytes, and was given one of {given}")]
    ValueSize {
        /// The bytes that were given.
        given: usize,
        /// The bytes that it takes.
        expected: usize,
    },
    /// A pipe has packets of another size than its parameter.
    #[error("takes packets of {expected} bytes, and was given {given}")]
    PacketSize {
        /// The bytes of a packet of the pipe that was given.
        given: usize,
        /// The bytes of a packet that it takes.
        expected: usize,
    },
    /// An argument has fewer bytes than the kernel touches.
    #[error(
        "was given {given} bytes, and this launch touches {needed}: give more, or launch fewer work items"
    )]
    TooSmall {
        /// The bytes that were given, for each group where it is local memory.
        given: usize,
        /// The bytes that are touched, by the declared extent and the number of work items; the largest number if they are
        /// more.
        needed: usize,
    },
    /// Memory starts within an element, counted from the start of its buffer.
    #[error(
        "was given memory from byte {offset} of a buffer on, which is no whole number of elements of {element} bytes"
    )]
    UnevenOffset {
        /// The offset of the argument in its buffer, in bytes.
        offset: usize,
        /// The bytes of an element.
        element: usize,
    },
    /// Memory has more elements than the type of its length can count.
    #[error("has {bytes} bytes, which cannot hold a length of {elements}")]
    LengthTooLarge {
        /// The bytes of that parameter.
        bytes: usize,
        /// The number of elements.
        elements: usize,
    },
}

/// The memory of a launch that an error is about.
///
/// ```
/// use binpool_allocators::{Backend, Event, MemoryFlags, QueueOrder};
/// use binpool_opencl::{KernelError, LaunchMemory};
/// # use binpool_opencl::{ClProgram, Extent, OpenClBackend, Parameter};
///
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let source = "kernel void add(global const float *a, global const float *b, global float *sum)
/// #     { size_t i = get_global_id(0); sum[i] = a[i] + b[i]; }";
/// # let program = ClProgram::build(&backend, source, "")?;
/// # let parameters = [
/// #     Parameter::input::<f32>(Extent::PerItem(1)),
/// #     Parameter::input::<f32>(Extent::PerItem(1)),
/// #     Parameter::output::<f32>(Extent::PerItem(1)),
/// # ];
/// # // SAFETY: each work item reads the two floats of its id and writes the one of its id, and nothing else.
/// # let add = unsafe { program.kernel("add", &parameters) }?;
/// # let [a, b] = [1.0_f32, 2.0].map(|value| backend.create_buffer_from(&[value; 4], MemoryFlags::empty()));
/// # let (a, b) = (a?, b?);
/// // kernel void add(global const float *a, global const float *b, global float *sum)
/// let launch = add.launch(&queue, &[4]).memory(&a).memory(&b).memory(&b);
/// match launch.enqueue() {
///     Err(KernelError::Overlap { first, second, .. }) => {
///         assert_eq!(first, LaunchMemory::Parameter(1));
///         assert_eq!(second, LaunchMemory::Parameter(2));
///     }
///     other => panic!("{other:?}"),
/// }
/// // What is only read may be passed twice.
/// let sum = backend.create_buffer(16, MemoryFlags::empty())?;
/// let launch = add.launch(&queue, &[4]).memory(&b).memory(&b);
/// launch.memory(&sum).enqueue()?.wait()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LaunchMemory {
    /// The memory of this parameter.
    Parameter(usize),
    /// The memory that was named as [`indirect`](crate::Launch::indirect), counted from 0.
    Indirect(usize),
}

impl fmt::Display for LaunchMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parameter(index) => write!(f, "{index}"),
            Self::Indirect(index) => write!(f, "{index} (indirect)"),
        }
    }
}

/// The reason why the work items of a launch are refused.
///
/// ```
/// use binpool_allocators::{Backend, Event, MemoryFlags, QueueOrder};
/// use binpool_opencl::{KernelError, WorkSizeProblem};
/// # use binpool_opencl::{ClProgram, Extent, OpenClBackend, Parameter};
///
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let source = "kernel void fill(global float *data) { data[get_global_id(0)] = 2.0f; }";
/// # let program = ClProgram::build(&backend, source, "")?;
/// # let parameters = [Parameter::output::<f32>(Extent::PerItem(1))];
/// # // SAFETY: each work item writes the float of its id, and touches nothing else.
/// # let fill = unsafe { program.kernel("fill", &parameters) }?;
/// # let data = backend.create_buffer(4096, MemoryFlags::empty())?;
/// let fill = |items: usize| {
///     let launch = fill.launch(&queue, &[items]).local_size(&[64]);
///     launch.memory(&data).enqueue()
/// };
/// match fill(1000) {
///     Err(KernelError::WorkSize { problem: WorkSizeProblem::Uneven { local, .. }, .. }) => {
///         fill(1000_usize.next_multiple_of(local))?.wait()?; // 1024: they have room
///     }
///     other => panic!("{other:?}"),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WorkSizeProblem {
    /// Too many dimensions, or none.
    #[error("{given} dimensions: use 1 to {largest}")]
    Dimensions {
        /// The number that was given.
        given: usize,
        /// The most that the device has.
        largest: usize,
    },
    /// More dimensions than the kernel was promised to be for.
    #[error(
        "{given} dimensions of a kernel for {promised}: make it with `ClKernel::in_dimensions({given})` if it is for as many"
    )]
    NotPromised {
        /// The number that was given.
        given: usize,
        /// The number that the kernel is for.
        promised: usize,
    },
    /// Offset or local size have other dimensions than the global size.
    #[error("{given} dimensions of {what} and {expected} of the global size")]
    OtherDimensions {
        /// The list that has them.
        what: &'static str,
        /// The number that was given.
        given: usize,
        /// The number of dimensions of the global size.
        expected: usize,
    },
    /// A size is 0.
    #[error("a {what} of 0 in dimension {dimension}")]
    Zero {
        /// The size that is 0.
        what: &'static str,
        /// The dimension, counted from 0.
        dimension: usize,
    },
    /// The ids of work items are larger than the device, or this system, can count.
    #[error(
        "global size {size} from offset {offset} on in dimension {dimension}: this device counts to {largest}"
    )]
    TooManyItems {
        /// The dimension, counted from 0.
        dimension: usize,
        /// The global size.
        size: usize,
        /// The offset.
        offset: usize,
        /// The largest number.
        largest: usize,
    },
    /// A local size is larger than the device's.
    #[error("a local size of {given} in dimension {dimension}: this device's largest is {largest}")]
    LocalTooLarge {
        /// The dimension, counted from 0.
        dimension: usize,
        /// The kind or size that was given.
        given: usize,
        /// The largest.
        largest: usize,
    },
    /// A work group has more work items than this kernel can have on this device.
    #[error("{given} work items in a group: this kernel can have {largest} on this device")]
    GroupTooLarge {
        /// The number that was given.
        given: usize,
        /// The most that the kernel can have.
        largest: usize,
    },
    /// The global size is no multiple of the local size.
    #[error(
        "global size {global} and local size {local} in dimension {dimension}: it has to be a multiple on this device, \
         or for programs that are not built with -cl-std=CL2.0 or later"
    )]
    Uneven {
        /// The dimension, counted from 0.
        dimension: usize,
        /// The global size.
        global: usize,
        /// The local size.
        local: usize,
    },
    /// The kernel was compiled for another local size.
    #[error("local size {given:?}: the kernel is compiled for {required:?}")]
    NotAsCompiled {
        /// The kind or size that was given.
        given: Vec<usize>,
        /// What the kernel's source requires.
        required: Vec<usize>,
    },
    /// Local memory is counted by work item, and the launch has no local size.
    #[error("no local size, by which local memory is counted: say it")]
    NoLocalSize,
}

struct Names<'a>(&'a [String]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none at all");
        }
        f.write_str(&self.0.join(", "))
    }
}

impl KernelError {
    /// Returns the error of a launch that failed, while the argument of parameter `setting` was being set if that is given.
    pub(super) fn of_launch(kernel: &str, setting: Option<usize>, error: Error) -> Self {
        match (setting, error) {
            (Some(index), source @ Error::Backend(_)) => Self::ArgumentRefused {
                kernel: kernel.to_owned(),
                index,
                source,
            },
            // Exhausted memory and a lost device are not the argument's fault.
            (_, error) => Self::Memory(error),
        }
    }
}

impl From<KernelError> for Error {
    /// Returns an error of memory as it is, and any other as a failure of the backend with this one as its source.
    fn from(error: KernelError) -> Self {
        match error {
            KernelError::Memory(error) => error,
            error => Self::backend("building or launching a kernel", None, error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_with_a_parameter_is_told_as_one_sentence() {
        let error = KernelError::Parameter {
            kernel: "blur".into(),
            index: 2,
            problem: ParameterProblem::Kind {
                declared: ParameterKind::Value,
                actual: ParameterKind::Image,
            },
        };
        let text = "parameter 2 of blur is an image, and is declared as a value";
        assert_eq!(error.to_string(), text);
    }

    // `PoCL` refuses none of the arguments that pass this crate's checks, so the error is made here.
    #[test]
    fn a_refused_argument_is_named_and_exhausted_memory_is_not_put_down_to_it() {
        let refused = || Error::backend("clSetKernelArg", Some(-50), "CL_INVALID_ARG_VALUE");
        let error = KernelError::of_launch("scale", Some(1), refused());
        let text = "parameter 1 of scale does not take what it was given";
        assert_eq!(error.to_string(), text);
        let elsewhere = KernelError::of_launch("scale", None, refused());
        assert!(matches!(elsewhere, KernelError::Memory(Error::Backend(_))));
        let full = Error::device_out_of_memory(64, "full");
        let full = KernelError::of_launch("scale", Some(1), full);
        assert!(matches!(full, KernelError::Memory(error) if error.is_out_of_memory()));
    }
}

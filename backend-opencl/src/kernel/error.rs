//! Why a kernel was not built, made or launched.

use std::fmt;

use binpool_allocators::Error;

use super::{ParameterAccess, ParameterKind};
use crate::image::ImageKind;

/// Why a program was not built, or a kernel not made or launched. Nothing was enqueued then.
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
///
/// What a launch is refused for names the parameter, with the numbers that do not fit:
///
/// ```
/// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
/// # use binpool_opencl::{ClProgram, Extent, KernelError, OpenClBackend, Parameter};
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
///     Err(KernelError::TooSmall { index, given, needed, .. }) => {
///         assert_eq!((index, given, needed), (0, 400, 512));
///     }
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
        /// All that the compiler said.
        log: String,
    },
    /// A program of no text.
    #[error("the source of the program is empty")]
    EmptySource,
    /// Options or a name that C cannot express.
    #[error("{text:?} has a null byte in it")]
    NullByte {
        /// The text.
        text: String,
    },
    /// The program has no kernel of that name. PoCL calls kernels otherwise that are called like a function of OpenCL C:
    /// `mix` is `_cl_mix`.
    #[error("no kernel is called {name:?}; there are {}", Names(.available))]
    NoSuchKernel {
        /// What was asked for.
        name: String,
        /// The kernels of the program.
        available: Vec<String>,
    },
    /// As many parameters are declared as the kernel does not have.
    #[error("{kernel} has {actual} parameters, and {declared} are declared")]
    ParameterCount {
        /// The kernel's name.
        kernel: String,
        /// How many are declared.
        declared: usize,
        /// How many the kernel has.
        actual: usize,
    },
    /// A parameter is declared as what it is not.
    #[error("parameter {index} of {kernel} is {actual}, and is declared as {declared}")]
    ParameterKind {
        /// The kernel's name.
        kernel: String,
        /// Which parameter.
        index: usize,
        /// What it is declared as.
        declared: ParameterKind,
        /// What it is.
        actual: ParameterKind,
    },
    /// A parameter is declared as used in another way than its type in the kernel allows.
    #[error("parameter {index} of {kernel} is declared as {declared}, and its type is {actual}")]
    ParameterAccess {
        /// The kernel's name.
        kernel: String,
        /// Which parameter.
        index: usize,
        /// What it is declared as.
        declared: ParameterAccess,
        /// What its type is.
        actual: ParameterAccess,
    },
    /// A parameter is declared with elements of another size than those of its type in the kernel.
    #[error(
        "parameter {index} of {kernel} is declared with elements of {declared} bytes, and has {type_name} \
         of {actual} bytes"
    )]
    ElementSize {
        /// The kernel's name.
        kernel: String,
        /// Which parameter.
        index: usize,
        /// The bytes of an element as declared.
        declared: usize,
        /// The type of an element, as OpenCL C has it.
        type_name: String,
        /// The bytes of that type.
        actual: usize,
    },
    /// A parameter is declared with elements, or a value, of a type without bytes.
    #[error("parameter {index} of {kernel} is declared with a type of 0 bytes")]
    EmptyType {
        /// The kernel's name.
        kernel: String,
        /// Which parameter.
        index: usize,
    },
    /// A parameter is an image of another kind than it is declared as, or than it was given.
    #[error("parameter {index} of {kernel} is a {actual}, and {other} was declared or given")]
    ImageKind {
        /// The kernel's name.
        kernel: String,
        /// Which parameter.
        index: usize,
        /// What it is declared as, or was given.
        other: ImageKind,
        /// What it is.
        actual: ImageKind,
    },
    /// A length is declared of a parameter that is no memory.
    #[error("parameter {index} of {kernel} is the length of parameter {of}, which is no memory")]
    LengthOfNothing {
        /// The kernel's name.
        kernel: String,
        /// Which parameter.
        index: usize,
        /// Whose length it is declared as.
        of: usize,
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
        /// How many were given.
        given: usize,
        /// How many it takes: one for each parameter that is no length.
        expected: usize,
    },
    /// An argument is not what its parameter takes.
    #[error("parameter {index} of {kernel} takes {expected}, and was given {given}")]
    ArgumentKind {
        /// The kernel's name.
        kernel: String,
        /// Which parameter.
        index: usize,
        /// What was given.
        given: ParameterKind,
        /// What it takes.
        expected: ParameterKind,
    },
    /// A value has another size than its parameter.
    #[error(
        "parameter {index} of {kernel} takes a value of {expected} bytes, and was given one of {given}"
    )]
    ValueSize {
        /// The kernel's name.
        kernel: String,
        /// Which parameter.
        index: usize,
        /// The bytes that were given.
        given: usize,
        /// The bytes that it takes.
        expected: usize,
    },
    /// A pipe has packets of another size than its parameter.
    #[error(
        "parameter {index} of {kernel} takes packets of {expected} bytes, and was given {given}"
    )]
    PacketSize {
        /// The kernel's name.
        kernel: String,
        /// Which parameter.
        index: usize,
        /// The bytes of a packet of the pipe that was given.
        given: usize,
        /// The bytes of a packet that it takes.
        expected: usize,
    },
    /// An argument has fewer bytes than the kernel touches.
    #[error(
        "parameter {index} of {kernel} was given {given} bytes, and this launch touches {needed}: give more, or \
         launch fewer work items"
    )]
    TooSmall {
        /// The kernel's name.
        kernel: String,
        /// Which parameter.
        index: usize,
        /// The bytes that were given, for each group where it is local memory.
        given: usize,
        /// The bytes that are touched, by the declared extent and the number of work items; the largest number where
        /// none holds them.
        needed: usize,
    },
    /// Memory has more elements than its length's type holds.
    #[error(
        "parameter {index} of {kernel} has {bytes} bytes, which cannot hold a length of {elements}"
    )]
    LengthTooLarge {
        /// The kernel's name.
        kernel: String,
        /// The parameter that is the length.
        index: usize,
        /// The bytes of that parameter.
        bytes: usize,
        /// The number of elements.
        elements: usize,
    },
    /// Bytes that the kernel writes were passed for another parameter too.
    #[error(
        "parameters {first} and {second} of {kernel} share bytes, and one of them is written: pass the memory once, \
         as read and written"
    )]
    Overlap {
        /// The kernel's name.
        kernel: String,
        /// The one.
        first: LaunchMemory,
        /// The other.
        second: LaunchMemory,
    },
    /// The number of work items is none that the device can launch.
    #[error("{kernel} cannot be launched with {problem}")]
    WorkSize {
        /// The kernel's name.
        kernel: String,
        /// What is wrong.
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
        /// The bytes that there are.
        available: usize,
    },
    /// The device, the runtime, or memory that was passed.
    #[error(transparent)]
    Memory(#[from] Error),
}

/// Which memory of a launch.
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
    /// That of this parameter.
    Parameter(usize),
    /// The one that was named as this [`indirect`](crate::Launch::indirect) one, counted from 0.
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

/// What is wrong with the work items of a launch.
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
        /// How many were given.
        given: usize,
        /// The most that the device has.
        largest: usize,
    },
    /// More dimensions than its maker promised that the kernel is for.
    #[error(
        "{given} dimensions of a kernel for {promised}: make it with `ClKernel::in_dimensions({given})` if it is for as many"
    )]
    NotPromised {
        /// How many were given.
        given: usize,
        /// For how many the kernel is.
        promised: usize,
    },
    /// Offset or local size have other dimensions than the global size.
    #[error("{given} dimensions of {what} and {expected} of the global size")]
    OtherDimensions {
        /// What has them.
        what: &'static str,
        /// How many were given.
        given: usize,
        /// How many the global size has.
        expected: usize,
    },
    /// A size is 0.
    #[error("a {what} of 0 in dimension {dimension}")]
    Zero {
        /// Which size.
        what: &'static str,
        /// In which dimension, counted from 0.
        dimension: usize,
    },
    /// The ids of work items are more than the device, or this system, can count.
    #[error(
        "global size {size} from offset {offset} on in dimension {dimension}: this device counts to {largest}"
    )]
    TooManyItems {
        /// In which dimension, counted from 0.
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
        /// In which dimension, counted from 0.
        dimension: usize,
        /// What was given.
        given: usize,
        /// The largest.
        largest: usize,
    },
    /// A work group has more work items than this kernel can have on this device.
    #[error("{given} work items in a group: this kernel can have {largest} on this device")]
    GroupTooLarge {
        /// How many were given.
        given: usize,
        /// The most that there can be.
        largest: usize,
    },
    /// The global size is no multiple of the local size.
    #[error(
        "global size {global} and local size {local} in dimension {dimension}: it has to be a multiple on this device, \
         or for programs that are not built with -cl-std=CL2.0 or later"
    )]
    Uneven {
        /// In which dimension, counted from 0.
        dimension: usize,
        /// The global size.
        global: usize,
        /// The local size.
        local: usize,
    },
    /// The kernel was compiled for another local size.
    #[error("local size {given:?}: the kernel is compiled for {required:?}")]
    NotAsCompiled {
        /// What was given.
        given: Vec<usize>,
        /// What the kernel's source requires.
        required: Vec<usize>,
    },
    /// Local memory is counted by work item, and nobody has said how many there are.
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

impl From<KernelError> for Error {
    /// The memory's own error, or else a failure of the backend with this one as its source.
    fn from(error: KernelError) -> Self {
        match error {
            KernelError::Memory(error) => error,
            error => Self::backend("launching a kernel", None, error),
        }
    }
}

//! The launch of a kernel: its arguments, work sizes and waits.

use binpool_allocators::{AsMemory, MemoryFlags, On};
use bytemuck::Pod;
use smallvec::SmallVec;

use super::{
    argument::{Argument, LocalMemory},
    kernel::ClKernel,
    parameter::ParameterAccess,
    problem::KernelProblem,
    work_size::Sizes,
};
use crate::{
    backend::OpenClBackend,
    error::OpenClError,
    event::{ClEvent, ClOn},
    queue::ClQueue,
};

/// A launch of a kernel that is being put together; made by [`ClKernel::launch`].
///
/// Arguments are given in the order of the parameters, without the lengths. Everything is checked before the kernel is
/// enqueued: it touches only the bytes that it was declared to touch, so a launch whose arguments have those bytes is safe.
///
/// ```
/// use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
/// use binpool_opencl::LocalMemory;
/// # use binpool_opencl::{ClProgram, Extent, OpenClBackend, Parameter};
///
/// # let source = "kernel void sum(global const uint *data, uint length, global uint *sums, local uint *scratch)
/// #     {
/// #         size_t item = get_local_id(0), id = get_global_id(0);
/// #         scratch[item] = id < length ? data[id] : 0;
/// #         barrier(CLK_LOCAL_MEM_FENCE);
/// #         if (item == 0) {
/// #             uint sum = 0;
/// #             for (size_t i = 0; i < get_local_size(0); ++i) sum += scratch[i];
/// #             sums[get_group_id(0)] = sum;
/// #         }
/// #     }";
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let program = ClProgram::build(&backend, source, "")?;
/// # let parameters = [
/// #     Parameter::input::<u32>(Extent::Whole),
/// #     Parameter::length_u32(0),
/// #     Parameter::output::<u32>(Extent::PerGroup(1)),
/// #     Parameter::local::<u32>(Extent::PerItem(1)),
/// # ];
/// # // SAFETY: it reads no more words than there are, and each group writes the one of its id.
/// # let sum = unsafe { program.kernel("sum", &parameters) }?;
/// // kernel void sum(global const uint *data, uint length, global uint *sums, local uint *scratch)
/// let data = backend.create_buffer_from(&[1_u32; 100], MemoryFlags::empty())?;
/// let sums = backend.create_buffer(8, MemoryFlags::empty())?;
/// sum.launch(&queue, &[128])
///     .local_size(&[64])
///     .memory(&data) // and the length
///     .memory(&sums)
///     .local(LocalMemory::per_item::<u32>(1))
///     .enqueue()?;
/// assert_eq!(*backend.map::<u32>(&queue, &sums, 0..8)?, [64, 36]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "a launch does nothing until it is enqueued"]
pub struct Launch<'a> {
    pub(super) kernel: &'a ClKernel,
    pub(super) queue: &'a ClQueue,
    pub(super) global: Sizes,
    pub(super) local: Option<Sizes>,
    pub(super) offset: Option<Sizes>,
    pub(super) arguments: SmallVec<[Argument<'a>; 8]>,
    pub(super) indirect: SmallVec<[(Argument<'a>, ParameterAccess); 1]>,
    pub(super) wait_for: &'a [ClEvent],
}

impl<'a> Launch<'a> {
    pub(super) fn new(kernel: &'a ClKernel, on: ClOn<'a>, global_size: &[usize]) -> Self {
        let On { queue, wait_for } = on;
        Self {
            kernel,
            queue,
            global: global_size.into(),
            local: None,
            offset: None,
            arguments: SmallVec::new(),
            indirect: SmallVec::new(),
            wait_for,
        }
    }

    /// Sets the number of work items of a group, in as many dimensions as the global size. Without this call the runtime
    /// chooses it.
    pub fn local_size(mut self, local_size: &[usize]) -> Self {
        self.local = Some(local_size.into());
        self
    }

    /// Sets the id of the first work item, in as many dimensions as the global size. Without this call it is 0.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::{ClProgram, Extent, OpenClBackend, Parameter};
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let source = "kernel void count(global uint *data) { data[get_global_id(0)] = get_global_id(0); }";
    /// # let program = ClProgram::build(&backend, source, "")?;
    /// # let parameters = [Parameter::output::<u32>(Extent::PerItem(1))];
    /// # // SAFETY: each work item writes the word of its id, and touches nothing else.
    /// # let count = unsafe { program.kernel("count", &parameters) }?;
    /// let data = backend.create_buffer_from(&[0_u32; 8], MemoryFlags::empty())?;
    /// // The middle half only.
    /// let launch = count.launch(&queue, &[4]).offset(&[2]);
    /// launch.memory(&data).enqueue()?;
    /// let data = backend.map::<u32>(&queue, &data, 0..32)?;
    /// assert_eq!(*data, [0, 0, 2, 3, 4, 5, 0, 0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn offset(mut self, offset: &[usize]) -> Self {
        self.offset = Some(offset.into());
        self
    }

    /// Passes memory for the next parameter.
    pub fn memory(self, memory: &'a dyn AsMemory<OpenClBackend>) -> Self {
        self.argument(Argument::Memory(memory))
    }

    /// Passes a value for the next parameter.
    ///
    /// Vectors of OpenCL C are arrays here. The value has the size of the parameter:
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::{ClProgram, Extent, OpenClBackend, Parameter};
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let source = "kernel void fill(global float2 *data, float2 value)
    ///     { data[get_global_id(0)] = value; }";
    /// # let program = ClProgram::build(&backend, source, "")?;
    /// # let parameters = [
    /// #     Parameter::output::<[f32; 2]>(Extent::PerItem(1)),
    /// #     Parameter::value::<[f32; 2]>(),
    /// # ];
    /// # // SAFETY: each work item writes the pair of its id, and touches nothing else.
    /// # let fill = unsafe { program.kernel("fill", &parameters) }?;
    /// # let data = backend.create_buffer(24, MemoryFlags::empty())?;
    /// let launch = || fill.launch(&queue, &[3]).memory(&data);
    /// launch().value(&[0.5_f32, 2.0]).enqueue()?;
    /// let pairs = backend.map::<[f32; 2]>(&queue, &data, 0..24)?;
    /// assert_eq!(*pairs, [[0.5, 2.0]; 3]);
    /// # drop(pairs);
    ///
    /// let refused = launch().value(&0.5_f32).enqueue().unwrap_err();
    /// let problem = "parameter 1 of fill takes a value of 8 bytes, but was given one of 4";
    /// assert_eq!(refused.to_string(), problem);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn value<T: Pod>(self, value: &T) -> Self {
        self.argument(Argument::value(value))
    }

    /// Passes local memory for the next parameter.
    pub fn local(self, local: LocalMemory) -> Self {
        self.argument(Argument::Local(local))
    }

    /// Passes an argument of any kind for the next parameter.
    ///
    /// For code that passes on arguments without knowing their kinds:
    ///
    /// ```
    /// use binpool_opencl::{Argument, ClEvent, ClKernel, ClQueue, OpenClError};
    ///
    /// /// Launches a kernel over `items` items of each of `arrays`, with `last` as its last argument.
    /// fn over(
    ///     kernel: &ClKernel,
    ///     queue: &ClQueue,
    ///     items: usize,
    ///     arrays: &[Argument<'_>],
    ///     last: Argument<'_>,
    /// ) -> Result<ClEvent, OpenClError> {
    ///     let launch = kernel.launch(queue, &[items]);
    ///     let launch = launch.arguments(arrays.iter().cloned());
    ///     launch.argument(last).enqueue()
    /// }
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::{ClProgram, Extent, OpenClBackend, Parameter};
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let source = "kernel void scale(global float *data, float factor) { data[get_global_id(0)] *= factor; }";
    /// # let program = ClProgram::build(&backend, source, "")?;
    /// # let parameters = [Parameter::in_out::<f32>(Extent::PerItem(1)), Parameter::value::<f32>()];
    /// # // SAFETY: each work item reads and writes the float of its id, and nothing else.
    /// # let scale = unsafe { program.kernel("scale", &parameters) }?;
    /// # let data = backend.create_buffer_from(&[1.0_f32, 2.0], MemoryFlags::empty())?;
    ///
    /// let (array, factor) = (Argument::Memory(&data), Argument::value(&3.0_f32));
    /// over(&scale, &queue, 2, &[array], factor)?;
    /// assert_eq!(*backend.map::<f32>(&queue, &data, 0..8)?, [3.0, 6.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn argument(mut self, argument: Argument<'a>) -> Self {
        self.arguments.push(argument);
        self
    }

    /// Passes several arguments, for as many parameters.
    pub fn arguments(mut self, arguments: impl IntoIterator<Item = Argument<'a>>) -> Self {
        self.arguments.extend(arguments);
        self
    }

    /// Names shared virtual memory that the kernel reaches through addresses in other memory, and how it uses it, for this
    /// launch (`CL_KERNEL_EXEC_INFO_SVM_PTRS`, OpenCL 3.0, section 5.9.2).
    ///
    /// ```
    /// # use binpool_opencl::SvmOptions;
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::{
    /// #     ClProgram, Extent, OpenClBackend, Parameter, ParameterAccess, SvmPointer,
    /// # };
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let source = "kernel void follow(global const ulong *addresses, global uint *words)
    ///     { words[get_global_id(0)] = *(global const uint *) addresses[get_global_id(0)]; }";
    /// # let program = ClProgram::build(&backend, source, "")?;
    /// # let parameters = [
    /// #     Parameter::input::<u64>(Extent::PerItem(1)),
    /// #     Parameter::output::<u32>(Extent::PerItem(1)),
    /// # ];
    /// // SAFETY: it follows addresses of words in blocks that the launch names, and no others.
    /// let follow = unsafe { program.kernel("follow", &parameters) }?;
    /// let seven = backend.svm_empty::<u32>(1, &SvmOptions::coarse())?;
    /// seven.write(&queue, 0, &[7])?;
    /// let address = seven.address()?.addr().get() as u64;
    /// let addresses = backend.create_buffer_from(&[address; 2], MemoryFlags::empty())?;
    /// let words = backend.create_buffer(8, MemoryFlags::empty())?;
    ///
    /// follow
    ///     .launch(&queue, &[2])
    ///     .memory(&addresses)
    ///     .memory(&words)
    ///     .indirect(&seven, ParameterAccess::Input)
    ///     .enqueue()?;
    /// assert_eq!(*backend.map::<u32>(&queue, &words, 0..8)?, [7, 7]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn indirect(
        mut self,
        memory: &'a dyn AsMemory<OpenClBackend>,
        access: ParameterAccess,
    ) -> Self {
        self.indirect.push((Argument::Memory(memory), access));
        self
    }

    /// Checks that memory with those `flags` may be used as the kernel is declared to.
    pub(super) fn check_flags(
        &self,
        parameter: Option<usize>,
        access: ParameterAccess,
        flags: MemoryFlags,
    ) -> Result<(), OpenClError> {
        let Some(flag) = access.ruled_out_by(flags) else {
            return Ok(());
        };
        let indirect = parameter.is_none();
        let problem = KernelProblem::Access {
            access,
            flag,
            indirect,
        };
        Err(self.refused(parameter, problem))
    }

    /// Returns why the launch is refused: for what a parameter was given, or for the launch as a whole.
    pub(super) fn refused(
        &self,
        parameter: impl Into<Option<usize>>,
        problem: impl Into<KernelProblem>,
    ) -> OpenClError {
        OpenClError::kernel(self.kernel.name(), parameter.into(), problem)
    }
}

impl ClKernel {
    /// Begins a launch of that many work items, with one number for each dimension: one dimension, or the number that the kernel
    /// is for ([`in_dimensions`](Self::in_dimensions)).
    ///
    /// ```
    /// use binpool_allocators::{Backend, Event, EventStatus, MemoryFlags, Outcome, Queue, QueueOrder};
    /// # use binpool_opencl::{ClProgram, Extent, OpenClBackend, Parameter};
    ///
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let source = "kernel void fill(global uint *data) { data[get_global_id(0)] = 7; }";
    /// # let program = ClProgram::build(&backend, source, "")?;
    /// # // SAFETY: each work item writes the word of its id, and touches nothing else.
    /// # let fill = unsafe { program.kernel("fill", &[Parameter::output::<u32>(Extent::PerItem(1))]) }?;
    /// # let data = backend.create_buffer(16, MemoryFlags::empty())?;
    /// let go = backend.create_user_event()?;
    /// let filled = fill.launch(queue.after(&[go.clone()]), &[4]).memory(&data).enqueue()?;
    /// assert_eq!(filled.status()?, EventStatus::Pending);
    /// backend.resolve_user_event(&go, Outcome::Complete)?;
    /// fill.launch(&queue, &[4]).memory(&data).enqueue()?.wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn launch<'a>(&'a self, on: impl Into<ClOn<'a>>, global_size: &[usize]) -> Launch<'a> {
        Launch::new(self, on.into(), global_size)
    }
}

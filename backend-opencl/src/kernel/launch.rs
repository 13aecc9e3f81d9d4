//! Launches of kernels.

use binpool_allocators::{AsMemory, ObjectKind};
use bytemuck::Pod;
use smallvec::SmallVec;

use super::{
    Argument, ClKernel, KernelError, LocalMemory, ParameterAccess, WorkSizeProblem,
    bound::foreign,
    work_size::{Sizes, WorkSize},
};
use crate::{
    backend::OpenClBackend, cl_error::Purpose, event::ClEvent, image::ClImage, order::access::Use,
    pipe::ClPipe, queue::ClQueue, sampler::ClSampler,
};

/// A launch of a kernel that is being put together; made by [`ClKernel::launch`].
///
/// Arguments are given in the order of the parameters, lengths left out. All is checked before anything is enqueued:
/// a kernel touches what it was declared to touch, so a launch whose arguments have those bytes touches no others.
///
/// ```no_run
/// use binpool_opencl::{ClKernel, ClQueue, KernelError, ClMemory, LocalMemory};
///
/// fn sum(
///     kernel: &ClKernel,
///     queue: &ClQueue,
///     data: &ClMemory,
///     sums: &ClMemory,
/// ) -> Result<(), KernelError> {
///     kernel
///         .launch(queue, &[1 << 20])
///         .local_size(&[64])
///         .memory(data)
///         .memory(sums)
///         .local(LocalMemory::per_item::<f32>(1))
///         .enqueue()?;
///     Ok(())
/// }
/// ```
#[derive(Debug)]
#[must_use = "a launch does nothing until it is enqueued"]
pub struct Launch<'a> {
    pub(super) kernel: &'a ClKernel,
    pub(super) queue: &'a ClQueue,
    global: Sizes,
    local: Option<Sizes>,
    offset: Option<Sizes>,
    pub(super) arguments: SmallVec<[Argument<'a>; 8]>,
    pub(super) indirect: SmallVec<[(Argument<'a>, ParameterAccess); 1]>,
    wait_for: &'a [ClEvent],
}

impl<'a> Launch<'a> {
    pub(super) fn new(kernel: &'a ClKernel, queue: &'a ClQueue, global_size: &[usize]) -> Self {
        Self {
            kernel,
            queue,
            global: global_size.into(),
            local: None,
            offset: None,
            arguments: SmallVec::new(),
            indirect: SmallVec::new(),
            wait_for: &[],
        }
    }

    /// How many work items a group has, in as many dimensions as the global size. The runtime chooses where it is not
    /// said.
    pub fn local_size(mut self, local_size: &[usize]) -> Self {
        self.local = Some(local_size.into());
        self
    }

    /// The id of the first work item, in as many dimensions as the global size; zeros where it is not said.
    pub fn offset(mut self, offset: &[usize]) -> Self {
        self.offset = Some(offset.into());
        self
    }

    /// Memory, for the next parameter.
    pub fn memory(self, memory: &'a dyn AsMemory<OpenClBackend>) -> Self {
        self.argument(Argument::memory(memory))
    }

    /// A value, for the next parameter.
    pub fn value<T: Pod>(self, value: &T) -> Self {
        self.argument(Argument::value(value))
    }

    /// Local memory, for the next parameter.
    pub fn local(self, local: LocalMemory) -> Self {
        self.argument(Argument::local(local))
    }

    /// An image, for the next parameter.
    pub fn image(self, image: &'a ClImage) -> Self {
        self.argument(Argument::image(image))
    }

    /// A sampler, for the next parameter.
    pub fn sampler(self, sampler: &'a ClSampler) -> Self {
        self.argument(Argument::sampler(sampler))
    }

    /// A pipe, for the next parameter.
    pub fn pipe(self, pipe: &'a ClPipe) -> Self {
        self.argument(Argument::pipe(pipe))
    }

    /// Whatever it is, for the next parameter.
    pub fn argument(mut self, argument: Argument<'a>) -> Self {
        self.arguments.push(argument);
        self
    }

    /// Several of them, for as many parameters.
    pub fn arguments(mut self, arguments: impl IntoIterator<Item = Argument<'a>>) -> Self {
        self.arguments.extend(arguments);
        self
    }

    /// Shared virtual memory that the kernel reaches through addresses in other memory (`CL_KERNEL_EXEC_INFO_SVM_PTRS`,
    /// OpenCL 3.0, section 5.9.2), and how it uses it. For this launch only.
    pub fn indirect(
        mut self,
        memory: &'a dyn AsMemory<OpenClBackend>,
        access: ParameterAccess,
    ) -> Self {
        self.indirect.push((Argument::memory(memory), access));
        self
    }

    /// Commands that the kernel waits for, besides those that use the same memory.
    pub fn wait_for(mut self, events: &'a [ClEvent]) -> Self {
        self.wait_for = events;
        self
    }

    /// Enqueues the launch.
    ///
    /// # Errors
    ///
    /// [`WorkSize`](KernelError::WorkSize); [`ArgumentCount`](KernelError::ArgumentCount),
    /// [`ArgumentKind`](KernelError::ArgumentKind), [`ValueSize`](KernelError::ValueSize),
    /// [`ImageKind`](KernelError::ImageKind), [`PacketSize`](KernelError::PacketSize),
    /// [`TooSmall`](KernelError::TooSmall), [`LengthTooLarge`](KernelError::LengthTooLarge) and
    /// [`LocalMemory`](KernelError::LocalMemory) for what the arguments are; [`Overlap`](KernelError::Overlap) for what
    /// they share; [`Memory`](KernelError::Memory) for a queue, an event or memory of another backend, indirect
    /// memory that is no SVM, bytes that the host has mapped, or a failure of the runtime.
    pub fn enqueue(self) -> Result<ClEvent, KernelError> {
        if !self.kernel.is_for(self.queue) {
            return Err(foreign(ObjectKind::Queue));
        }
        let work = WorkSize::new(
            self.kernel.limits(),
            &self.global,
            self.offset.as_ref(),
            self.local.as_ref(),
        )
        .map_err(|problem| self.work_size(problem))?;
        let touched = self.touched(&work)?;
        let bound = self.bound(&touched)?;
        bound.check_overlaps(self.kernel)?;
        let uses: SmallVec<[Use<'_>; 8]> = bound.uses.iter().map(|(_, used)| *used).collect();
        let backend = OpenClBackend::of_context(self.queue.context());
        let event = backend.submit(self.queue, Purpose::Control, &uses, self.wait_for, |wait| {
            bound.enqueue(self.kernel, self.queue, &work, wait)
        })?;
        Ok(event)
    }

    pub(super) fn name(&self) -> String {
        self.kernel.name().to_owned()
    }

    pub(super) fn work_size(&self, problem: WorkSizeProblem) -> KernelError {
        KernelError::WorkSize {
            kernel: self.name(),
            problem,
        }
    }
}

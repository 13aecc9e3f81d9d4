//! Launches of kernels.

use binpool_allocators::{AsMemory, InvalidRequest, Memory, ObjectKind, Region};
use bytemuck::Pod;
use smallvec::SmallVec;

use super::{
    Argument, ClKernel, KernelError, LaunchMemory, LocalMemory, Parameter, ParameterAccess,
    WorkSizeProblem,
    argument::{Body, ObjectArgument},
    parameter::Role,
    work_size::{Sizes, WorkSize},
};
use crate::{
    access::{Access, Use},
    backend::OpenClBackend,
    cl_error::{ClResult, Purpose},
    event::ClEvent,
    memory::ClMemory,
    queue::ClQueue,
    sys::{
        EventHandle, Place, SvmRange, WaitList,
        kernel::{self, ArgumentValue, KernelHandle},
    },
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
    kernel: &'a ClKernel,
    queue: &'a ClQueue,
    global: Sizes,
    local: Option<Sizes>,
    offset: Option<Sizes>,
    arguments: SmallVec<[Argument<'a>; 8]>,
    indirect: SmallVec<[(Argument<'a>, ParameterAccess); 1]>,
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

    fn name(&self) -> String {
        self.kernel.name().to_owned()
    }

    fn work_size(&self, problem: WorkSizeProblem) -> KernelError {
        KernelError::WorkSize {
            kernel: self.name(),
            problem,
        }
    }

    /// What the kernel touches of each parameter's argument, after all checks that need sizes only.
    fn touched(&self, work: &WorkSize) -> Result<SmallVec<[Touched<'_>; 8]>, KernelError> {
        let parameters = self.kernel.parameters();
        let expected = parameters
            .iter()
            .filter(|parameter| parameter.takes_argument())
            .count();
        if expected != self.arguments.len() {
            return Err(KernelError::ArgumentCount {
                kernel: self.name(),
                given: self.arguments.len(),
                expected,
            });
        }
        let mut arguments = self.arguments.iter();
        let mut touched = SmallVec::new();
        for (index, parameter) in parameters.iter().enumerate() {
            touched.push(if !parameter.takes_argument() {
                Touched::Length
            } else if let Some(argument) = arguments.next() {
                self.touched_of(index, parameter, argument, work)?
            } else {
                continue;
            });
        }
        self.check_local_memory(&touched)?;
        self.fill_lengths(&mut touched)?;
        Ok(touched)
    }

    fn touched_of<'s>(
        &self,
        index: usize,
        parameter: &Parameter,
        argument: &'s Argument<'a>,
        work: &WorkSize,
    ) -> Result<Touched<'s>, KernelError> {
        let (expected, given) = (parameter.kind(), argument.kind());
        if expected != given {
            return Err(KernelError::ArgumentKind {
                kernel: self.name(),
                index,
                given,
                expected,
            });
        }
        let check = |given, needed: Option<usize>| match needed {
            Some(needed) if needed > given => Err(KernelError::TooSmall {
                kernel: self.name(),
                index,
                given,
                needed,
            }),
            needed => Ok(needed.unwrap_or(given)),
        };
        match (parameter.role, &argument.body) {
            (
                Role::Memory {
                    access,
                    element,
                    extent,
                },
                Body::Memory(memory),
            ) => {
                let size = memory.size();
                let bytes = check(size, extent.bytes(element, work.items(), work.groups()))?;
                Ok(Touched::Memory {
                    memory: *memory,
                    size,
                    bytes,
                    access,
                })
            }
            (Role::Value { bytes }, Body::Value(value)) if value.len() != bytes => {
                Err(KernelError::ValueSize {
                    kernel: self.name(),
                    index,
                    given: value.len(),
                    expected: bytes,
                })
            }
            (_, Body::Value(value)) => Ok(Touched::Value(value)),
            (Role::Local { element, extent }, Body::Local(local)) => {
                let items = work.group_items();
                let is_per_item = matches!(extent, super::Extent::PerItem(_));
                let size = local
                    .for_group_of(items)
                    .filter(|_| !is_per_item || items.is_some());
                let size = size.ok_or_else(|| self.work_size(WorkSizeProblem::NoLocalSize))?;
                // No runtime has local memory of no bytes.
                let needed = extent
                    .bytes(element, items.unwrap_or(0), 1)
                    .unwrap_or(1)
                    .max(1);
                check(size, Some(needed))?;
                Ok(Touched::Local(size))
            }
            (Role::Image(access) | Role::Pipe(access), Body::Object(object)) => {
                Ok(Touched::Object(*object, access))
            }
            // Only a sampler is left: kinds are equal.
            (_, Body::Object(object)) => Ok(Touched::Object(*object, ParameterAccess::Input)),
            (_, Body::Memory(_) | Body::Local(_)) => Err(KernelError::ArgumentKind {
                kernel: self.name(),
                index,
                given,
                expected,
            }),
        }
    }

    fn check_local_memory(&self, touched: &[Touched<'_>]) -> Result<(), KernelError> {
        let limits = self.kernel.limits();
        let own = limits.own_local_bytes;
        let needed = touched.iter().fold(own, |sum, touched| match touched {
            Touched::Local(bytes) => sum.saturating_add(*bytes),
            _ => sum,
        });
        if needed > limits.local_bytes {
            return Err(KernelError::LocalMemory {
                kernel: self.name(),
                needed,
                available: limits.local_bytes,
            });
        }
        Ok(())
    }

    /// Puts the numbers of elements where lengths are declared.
    fn fill_lengths(&self, touched: &mut [Touched<'_>]) -> Result<(), KernelError> {
        for (index, parameter) in self.kernel.parameters().iter().enumerate() {
            let Role::Length { of, bytes } = parameter.role else {
                continue;
            };
            let size = match touched.get(of) {
                Some(Touched::Memory { size, .. }) => *size,
                _ => 0,
            };
            let element = self
                .kernel
                .parameters()
                .get(of)
                .map_or(1, Parameter::element_bytes);
            let elements = size / element.max(1);
            let too_large = || KernelError::LengthTooLarge {
                kernel: self.name(),
                index,
                bytes,
                elements,
            };
            let value = if bytes == size_of::<u32>() {
                let length = u32::try_from(elements).map_err(|_| too_large())?;
                SmallVec::from_slice(&length.to_ne_bytes())
            } else {
                let length = u64::try_from(elements).map_err(|_| too_large())?;
                SmallVec::from_slice(&length.to_ne_bytes())
            };
            touched[index] = Touched::Filled(value);
        }
        Ok(())
    }

    /// The runtime's side of the arguments. The pools of their memory learn of the use.
    fn bound<'s>(&'s self, touched: &'s [Touched<'s>]) -> Result<Bound<'s>, KernelError> {
        let mut bound = Bound::default();
        for (index, touched) in touched.iter().enumerate() {
            let at = LaunchMemory::Parameter(index);
            let value = match touched {
                Touched::Memory {
                    memory,
                    bytes,
                    access,
                    ..
                } => {
                    let memory = self.own_memory(*memory, *bytes)?;
                    let region = Region::first(*bytes);
                    bound.add_use(
                        at,
                        memory.map(|memory| memory.used(region, (*access).into())),
                    );
                    match memory.and_then(|memory| memory.place(region)) {
                        Some(Place::Buffer(buffer, _)) => ArgumentValue::Memory(buffer),
                        Some(Place::Svm(range)) => ArgumentValue::Svm(range),
                        None => ArgumentValue::NoMemory,
                    }
                }
                Touched::Object(object, access) => {
                    if object.context != self.queue.context().handle.raw().addr() {
                        return Err(foreign(ObjectKind::Memory));
                    }
                    let access = (*access).into();
                    let used = object.used.map(|used| Use { access, ..used });
                    bound.add_use(at, used);
                    object.value
                }
                Touched::Value(value) => ArgumentValue::Bytes(value),
                Touched::Filled(value) => ArgumentValue::Bytes(value),
                Touched::Local(bytes) => ArgumentValue::Local(*bytes),
                Touched::Length => ArgumentValue::Bytes(&[]),
            };
            bound.values.push(value);
        }
        for (index, (argument, access)) in self.indirect.iter().enumerate() {
            let Body::Memory(memory) = argument.body else {
                continue;
            };
            let region = Region::first(memory.size());
            let Some(memory) = self.own_memory(memory, region.bytes)? else {
                continue;
            };
            let Some(Place::Svm(range)) = memory.place(region) else {
                return Err(KernelError::Memory(InvalidRequest::NotSvm.into()));
            };
            let used = memory.used(region, (*access).into());
            bound.add_use(LaunchMemory::Indirect(index), Some(used));
            bound.indirect.push(range);
        }
        Ok(bound)
    }

    /// The memory for this launch's queue, which has that many bytes; `None` for the block of 0 bytes.
    fn own_memory<'s>(
        &self,
        memory: &'s dyn AsMemory<OpenClBackend>,
        bytes: usize,
    ) -> Result<Option<&'s ClMemory>, KernelError> {
        let Some(own) = memory.memory_on(self.queue) else {
            Region::first(bytes).check_within(0)?;
            return Ok(None);
        };
        if !own.context().is_same(self.queue.context()) {
            return Err(foreign(ObjectKind::Memory));
        }
        // Whoever tells a size may be mistaken, and the runtime does not look.
        Region::first(bytes).check_within(own.bytes())?;
        Ok(Some(own))
    }
}

/// What a kernel touches of an argument.
enum Touched<'a> {
    Memory {
        memory: &'a dyn AsMemory<OpenClBackend>,
        size: usize,
        /// The first bytes of it.
        bytes: usize,
        access: ParameterAccess,
    },
    Value(&'a [u8]),
    /// A length that is not filled in yet.
    Length,
    Filled(SmallVec<[u8; 8]>),
    Local(usize),
    Object(ObjectArgument<'a>, ParameterAccess),
}

/// Arguments as the runtime takes them, and what they use.
#[derive(Default)]
struct Bound<'a> {
    values: SmallVec<[ArgumentValue<'a>; 8]>,
    uses: SmallVec<[(LaunchMemory, Use<'a>); 8]>,
    indirect: SmallVec<[SvmRange<'a>; 1]>,
}

impl<'a> Bound<'a> {
    fn add_use(&mut self, at: LaunchMemory, used: Option<Use<'a>>) {
        let used = used.filter(|used| used.region.bytes > 0);
        self.uses.extend(used.map(|used| (at, used)));
    }

    /// Checks that what is written is used by one argument only.
    fn check_overlaps(&self, kernel: &ClKernel) -> Result<(), KernelError> {
        for (place, (second, this)) in self.uses.iter().enumerate() {
            let shared = self.uses[..place].iter().find(|(_, other)| {
                std::ptr::eq(this.log, other.log)
                    && this.region.overlaps(other.region)
                    && [this.access, other.access].contains(&Access::Write)
            });
            if let Some((first, _)) = shared {
                return Err(KernelError::Overlap {
                    kernel: kernel.name().to_owned(),
                    first: *first,
                    second: *second,
                });
            }
        }
        Ok(())
    }

    fn enqueue(
        &self,
        kernel: &ClKernel,
        queue: &ClQueue,
        work: &WorkSize,
        wait: &WaitList<'_>,
    ) -> ClResult<EventHandle> {
        let enqueue = |handle: &mut KernelHandle| {
            for (index, value) in (0..).zip(&self.values) {
                kernel::set_argument(handle, index, *value)?;
            }
            kernel::enqueue_kernel(queue.handle(), handle, work.as_items(), wait)
        };
        if self.indirect.is_empty() {
            return kernel.with_handle(enqueue);
        }
        // A list of addresses stays with a kernel, and no runtime takes an empty one: it goes with the kernel.
        kernel.with_fresh_handle(|handle| {
            kernel::set_indirect(handle, self.indirect.iter().copied())?;
            enqueue(handle)
        })
    }
}

impl From<ParameterAccess> for Access {
    fn from(access: ParameterAccess) -> Self {
        match access {
            ParameterAccess::Input => Self::Read,
            ParameterAccess::Output | ParameterAccess::InOut => Self::Write,
        }
    }
}

fn foreign(kind: ObjectKind) -> KernelError {
    KernelError::Memory(InvalidRequest::ForeignObject { kind }.into())
}

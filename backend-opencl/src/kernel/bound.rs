//! The arguments of a launch as the runtime takes them, and the memory that it uses through them.

use binpool_allocators::{AsMemory, Error, InvalidRequest, ObjectKind, Region};
use smallvec::SmallVec;

use super::{
    argument::ArgumentBody, kernel::ClKernel, launch::Launch, touched::Touched, work_size::WorkSize,
};
use crate::{
    backend::OpenClBackend,
    error::OpenClError,
    event::ClEvent,
    memory::cl_memory::ClMemory,
    order::{access::Access, memory_use::MemoryUse},
    queue::ClQueue,
    sys::{
        ClResult, EventHandle, Purpose, SvmRange, WaitList,
        kernel::{self, ArgumentValue, KernelHandle},
    },
};

/// The arguments of a launch as the runtime takes them, and the memory that it uses through them.
#[derive(Default)]
pub(super) struct Bound<'a> {
    values: SmallVec<[ArgumentValue<'a>; 8]>,
    pub(super) uses: SmallVec<[LaunchUse<'a>; 8]>,
    indirect: SmallVec<[SvmRange<'a>; 1]>,
}

/// Memory that a launch uses.
pub(super) struct LaunchUse<'a> {
    /// The parameter, if it is not indirect.
    parameter: Option<usize>,
    pub(super) used: MemoryUse<'a>,
}

impl<'a> Bound<'a> {
    fn add_use(&mut self, parameter: Option<usize>, used: Option<MemoryUse<'a>>) {
        let used = used.filter(|used| used.region.bytes > 0);
        self.uses
            .extend(used.map(|used| LaunchUse { parameter, used }));
    }

    /// Checks that memory which the kernel writes is used by one argument only.
    pub(super) fn check_overlaps(&self, kernel: &ClKernel) -> Result<(), OpenClError> {
        for (index, second) in self.uses.iter().enumerate() {
            for first in &self.uses[..index] {
                let is_written = [first.used.access, second.used.access].contains(&Access::Write);
                if is_written && first.used.shares_bytes_with(&second.used) {
                    let other = second.parameter.map(|index| format!("parameter {index}"));
                    let problem = format!(
                        "shares bytes with {}, and one of them is written: pass the memory once, as read and written",
                        other.as_deref().unwrap_or("indirect memory")
                    );
                    return Err(OpenClError::kernel(kernel.name(), first.parameter, problem));
                }
            }
        }
        Ok(())
    }

    /// Sets the arguments and enqueues the kernel. `setting` is the parameter whose argument is being set: if the call
    /// fails, the runtime has refused that argument.
    pub(super) fn enqueue(
        &self,
        kernel: &ClKernel,
        queue: &ClQueue,
        work: &WorkSize,
        wait: &WaitList<'_>,
        setting: &mut Option<usize>,
    ) -> ClResult<EventHandle> {
        let mut enqueue = |handle: &mut KernelHandle| {
            for (index, value) in (0..).zip(&self.values) {
                *setting = usize::try_from(index).ok();
                kernel::set_argument(handle, index, *value)?;
            }
            *setting = None;
            kernel::enqueue_kernel(queue.handle(), handle, work.as_items(), wait)
        };
        if self.indirect.is_empty() {
            return kernel.with_handle(&self.values, enqueue);
        }
        // A list of addresses stays with the runtime's kernel, and no runtime takes an empty list: so a kernel with a list
        // is used once.
        kernel.with_fresh_handle(|handle| {
            kernel::set_indirect(handle, self.indirect.iter().copied())?;
            enqueue(handle)
        })
    }
}

impl Launch<'_> {
    /// Returns views for the arguments that start within a buffer, by their parameters, for [`bound`](Self::bound).
    pub(super) fn views(
        &self,
        touched: &[Touched<'_>],
    ) -> Result<SmallVec<[(usize, ClMemory); 1]>, OpenClError> {
        let mut views = SmallVec::new();
        for (index, touched) in touched.iter().enumerate() {
            let Touched::Memory {
                memory,
                bytes,
                is_whole: false,
                ..
            } = touched
            else {
                continue;
            };
            if memory.start() == 0 {
                continue;
            }
            let found = self.own_memory(*memory, *bytes)?;
            let within = |(memory, region): &(&ClMemory, Region)| {
                memory.svm().is_none() && region.offset > 0 && region.bytes > 0
            };
            let Some((memory, region)) = found.filter(within) else {
                continue;
            };
            let limits = &memory.context().limits;
            let offset = memory.offset().saturating_add(region.offset);
            if !limits.alignment.divides(offset) {
                let problem = format!(
                    "was given memory from byte {offset} of a buffer on, which is no multiple of {}: declare its offset \
                     (`Parameter::offset_u64`), so that the kernel takes the whole buffer",
                    limits.alignment
                );
                return Err(self.refused(index, problem));
            }
            views.push((index, memory.view(region)?));
        }
        Ok(views)
    }

    /// Returns the arguments as the runtime takes them. The pools of their memory note the use.
    pub(super) fn bound<'s>(
        &'s self,
        touched: &'s [Touched<'s>],
        views: &'s [(usize, ClMemory)],
    ) -> Result<Bound<'s>, OpenClError> {
        let mut bound = Bound::default();
        for (index, touched) in touched.iter().enumerate() {
            let at = Some(index);
            let value = match touched {
                Touched::Memory {
                    memory,
                    bytes,
                    access,
                    is_whole,
                    ..
                } => {
                    let view = views.iter().find(|(of, _)| *of == index);
                    let found = match view {
                        Some((_, view)) => Some((view, Region::first(*bytes))),
                        None => self.own_memory(*memory, *bytes)?,
                    };
                    match found {
                        Some((memory, region)) => {
                            self.check_flags(at, *access, memory.flags())?;
                            bound.add_use(at, Some(memory.used(region, (*access).into())));
                            let buffer = if *is_whole {
                                memory.root().map(|(root, _)| &root.handle)
                            } else {
                                memory.for_kernels()?
                            };
                            match (buffer, memory.svm_range(region)) {
                                (Some(buffer), _) => ArgumentValue::Memory(buffer),
                                (None, Some(range)) => ArgumentValue::Svm(range),
                                (None, None) => ArgumentValue::NoMemory,
                            }
                        }
                        None => ArgumentValue::NoMemory,
                    }
                }
                Touched::Object {
                    value,
                    context,
                    used,
                } => {
                    if !context.is_same(self.queue.context()) {
                        return Err(foreign(ObjectKind::Memory));
                    }
                    bound.add_use(at, *used);
                    *value
                }
                Touched::Value(value) => ArgumentValue::Bytes(value),
                Touched::Filled(value) => ArgumentValue::Bytes(value),
                Touched::Local(bytes) => ArgumentValue::Local(*bytes),
                Touched::Unfilled => ArgumentValue::Bytes(&[]),
            };
            bound.values.push(value);
        }
        for (argument, access) in &self.indirect {
            let ArgumentBody::Memory(memory) = argument.0 else {
                continue;
            };
            let Some((memory, region)) = self.own_memory(memory, memory.size())? else {
                continue;
            };
            let Some(range) = memory.svm_range(region) else {
                return Err(InvalidRequest::NotSvm.into());
            };
            self.check_flags(None, *access, memory.flags())?;
            bound.add_use(None, Some(memory.used(region, (*access).into())));
            bound.indirect.push(range);
        }
        Ok(bound)
    }

    /// Returns the memory for this launch's queue, and the region of the first `bytes` bytes of the argument in it; `None`
    /// for the block of 0 bytes.
    pub(super) fn own_memory<'s>(
        &self,
        memory: &'s dyn AsMemory<OpenClBackend>,
        bytes: usize,
    ) -> Result<Option<(&'s ClMemory, Region)>, OpenClError> {
        let backend = OpenClBackend::of_context(self.queue.context());
        Ok(backend.bytes_on(self.queue, memory, Region::first(bytes))?)
    }
}

fn foreign(kind: ObjectKind) -> OpenClError {
    InvalidRequest::ForeignObject { kind }.into()
}

impl Launch<'_> {
    /// Enqueues the launch. The program should wait for its last launches before it ends: otherwise PoCL may crash.
    ///
    /// # Errors
    ///
    /// [`Kernel`](OpenClError::Kernel) for a work size that the kernel cannot have, for arguments that do not fit, that share
    /// memory which is written, or whose flags forbid what this kernel does, and for an argument that the runtime refuses;
    /// [`Device`](OpenClError::Device) for a queue, an event or memory of another backend, indirect memory that is no SVM,
    /// bytes that the host has mapped, or a failure of the runtime.
    pub fn enqueue(self) -> Result<ClEvent, OpenClError> {
        if !self.kernel.is_for(self.queue) {
            return Err(foreign(ObjectKind::Queue));
        }
        let (offset, local) = (self.offset.as_ref(), self.local.as_ref());
        let work = WorkSize::new(self.kernel.limits(), &self.global, offset, local)
            .map_err(|problem| self.refused(None, format!("cannot be launched with {problem}")))?;
        let mut touched = self.touched(&work)?;
        self.fill_offsets(&mut touched)?;
        // The runtime keeps the views until the kernel has ended.
        let views = self.views(&touched)?;
        let bound = self.bound(&touched, &views)?;
        bound.check_overlaps(self.kernel)?;
        let uses: SmallVec<[MemoryUse<'_>; 8]> = bound.uses.iter().map(|each| each.used).collect();
        let backend = OpenClBackend::of_context(self.queue.context());
        let mut setting = None;
        let event = backend.submit(self.queue, Purpose::Control, &uses, self.wait_for, |wait| {
            bound.enqueue(self.kernel, self.queue, &work, wait, &mut setting)
        });
        event.map_err(|error| match (setting, error) {
            (Some(index), Error::Backend(failure)) => {
                let cause = failure
                    .source
                    .as_ref()
                    .map_or(String::new(), ToString::to_string);
                self.refused(index, format!("does not take what it was given: {cause}"))
            }
            (_, error) => error.into(),
        })
    }
}

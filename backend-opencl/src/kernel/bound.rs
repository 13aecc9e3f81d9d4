//! The arguments of a launch as the runtime takes them, and the memory that it uses through them.

use binpool_allocators::{Error, InvalidRequest, ObjectKind, runtime::Access};
use smallvec::SmallVec;

use super::{
    argument::Argument, kernel::ClKernel, launch::Launch, problem::KernelProblem, taken::Taken,
    work_size::WorkSize,
};
use crate::{
    backend::OpenClBackend,
    error::OpenClError,
    event::ClEvent,
    order::memory_use::MemoryUse,
    queue::ClQueue,
    submit::foreign_unless,
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
                    let other = second.parameter;
                    let problem = KernelProblem::Overlap { other };
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
        let mut handle = kernel.fresh_handle()?;
        kernel::set_indirect(&mut handle, self.indirect.iter().copied())?;
        enqueue(&mut handle)
    }
}

impl Launch<'_> {
    /// Returns the arguments as the runtime takes them. The pools of indirect memory note the use.
    pub(super) fn bound<'s>(&'s self, taken: &'s [Taken<'s>]) -> Result<Bound<'s>, OpenClError> {
        let mut bound = Bound::default();
        for (index, taken) in taken.iter().enumerate() {
            let (value, used) = match taken {
                Taken::Memory { bytes: None, .. } => (ArgumentValue::NoMemory, None),
                Taken::Memory {
                    bytes: Some((memory, region)),
                    access,
                    is_whole,
                    view,
                    ..
                } => {
                    self.check_alignment(index, memory.address(*region))?;
                    let buffer = if *is_whole {
                        memory.root().map(|(root, _)| &root.handle)
                    } else {
                        view.as_ref().unwrap_or(memory).for_kernels()?
                    };
                    let value = match (buffer, memory.svm_range(*region)) {
                        (Some(buffer), _) => ArgumentValue::Memory(buffer),
                        (None, Some(range)) => ArgumentValue::Svm(range),
                        (None, None) => ArgumentValue::NoMemory,
                    };
                    (value, Some(memory.used(*region, (*access).into())))
                }
                Taken::Number(bytes) => (ArgumentValue::Bytes(bytes), None),
                Taken::Value(value, used) => (*value, *used),
            };
            bound.add_use(Some(index), used);
            bound.values.push(value);
        }
        for (argument, access) in &self.indirect {
            let Argument::Memory(memory) = argument else {
                continue;
            };
            let Some((memory, region)) = self.own_memory(*memory, memory.size())? else {
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
        foreign_unless(self.kernel.is_for(self.queue), ObjectKind::Queue)?;
        let (offset, local) = (self.offset.as_ref(), self.local.as_ref());
        let work = WorkSize::new(self.kernel.limits(), &self.global, offset, local)
            .map_err(|problem| self.refused(None, problem))?;
        let taken = self.taken(&work)?;
        let bound = self.bound(&taken)?;
        bound.check_overlaps(self.kernel)?;
        let uses: SmallVec<[MemoryUse<'_>; 8]> = bound.uses.iter().map(|each| each.used).collect();
        let backend = OpenClBackend::of_context(self.queue.context());
        let mut setting = None;
        let event = backend.submit(self.queue, Purpose::Control, &uses, self.wait_for, |wait| {
            bound.enqueue(self.kernel, self.queue, &work, wait, &mut setting)
        });
        event.map_err(|error| match (setting, error) {
            (Some(index), Error::Backend(failure)) => {
                let source = failure.source.as_ref();
                let cause = source.map_or(String::new(), ToString::to_string);
                self.refused(index, format!("was refused by the runtime: {cause}"))
            }
            (_, error) => error.into(),
        })
    }
}

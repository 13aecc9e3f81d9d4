//! The arguments of a launch as the runtime takes them, and the memory that it uses through them.

use binpool_allocators::{AsMemory, InvalidRequest, Memory, ObjectKind, Region};
use smallvec::SmallVec;

use super::{
    ClKernel, KernelError, Launch, LaunchMemory, argument::Body, touched::Touched,
    work_size::WorkSize,
};
use crate::{
    backend::OpenClBackend,
    cl_error::ClResult,
    memory::cl_memory::ClMemory,
    order::access::{Access, Use},
    queue::ClQueue,
    sys::{
        EventHandle, Place, SvmRange, WaitList,
        kernel::{self, ArgumentValue, KernelHandle},
    },
};

/// Arguments as the runtime takes them, and what they use.
#[derive(Default)]
pub(super) struct Bound<'a> {
    values: SmallVec<[ArgumentValue<'a>; 8]>,
    pub(super) uses: SmallVec<[(LaunchMemory, Use<'a>); 8]>,
    indirect: SmallVec<[SvmRange<'a>; 1]>,
}

impl<'a> Bound<'a> {
    fn add_use(&mut self, at: LaunchMemory, used: Option<Use<'a>>) {
        let used = used.filter(|used| used.region.bytes > 0);
        self.uses.extend(used.map(|used| (at, used)));
    }

    /// Checks that what is written is used by one argument only.
    pub(super) fn check_overlaps(&self, kernel: &ClKernel) -> Result<(), KernelError> {
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

    pub(super) fn enqueue(
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
            return kernel.with_handle(&self.values, enqueue);
        }
        // A list of addresses stays with a kernel, and no runtime takes an empty one: it goes with the kernel.
        kernel.with_fresh_handle(|handle| {
            kernel::set_indirect(handle, self.indirect.iter().copied())?;
            enqueue(handle)
        })
    }
}

impl Launch<'_> {
    /// The runtime's side of the arguments. The pools of their memory learn of the use.
    pub(super) fn bound<'s>(
        &'s self,
        touched: &'s [Touched<'s>],
    ) -> Result<Bound<'s>, KernelError> {
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

pub(super) fn foreign(kind: ObjectKind) -> KernelError {
    KernelError::Memory(InvalidRequest::ForeignObject { kind }.into())
}

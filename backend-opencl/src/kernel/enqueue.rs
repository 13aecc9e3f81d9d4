//! The way of a launch to the runtime.

use binpool_allocators::ObjectKind;
use smallvec::SmallVec;

use super::{KernelError, Launch, bound::foreign, work_size::WorkSize};
use crate::{backend::OpenClBackend, event::ClEvent, order::memory_use::MemoryUse, sys::Purpose};

impl Launch<'_> {
    /// Enqueues the launch. The program should wait for its last launches before it ends: otherwise PoCL may crash.
    ///
    /// # Errors
    ///
    /// [`WorkSize`](KernelError::WorkSize); [`ArgumentCount`](KernelError::ArgumentCount),
    /// [`LocalMemory`](KernelError::LocalMemory), and [`Parameter`](KernelError::Parameter) with
    /// [`ArgumentKind`](super::ParameterProblem::ArgumentKind), [`ValueSize`](super::ParameterProblem::ValueSize),
    /// [`ImageKind`](super::ParameterProblem::ImageKind), [`PacketSize`](super::ParameterProblem::PacketSize),
    /// [`TooSmall`](super::ParameterProblem::TooSmall), [`LengthTooLarge`](super::ParameterProblem::LengthTooLarge),
    /// [`UnevenOffset`](super::ParameterProblem::UnevenOffset) or
    /// [`StartsWithin`](super::ParameterProblem::StartsWithin) for arguments that do not fit; [`Overlap`](KernelError::Overlap)
    /// for arguments that share memory; [`AccessFlag`](KernelError::AccessFlag) for memory and images whose flags forbid
    /// what this kernel does; [`ArgumentRefused`](KernelError::ArgumentRefused) for an argument that the runtime refuses;
    /// [`Memory`](KernelError::Memory) for a queue, an event or memory of another backend, indirect memory that is no SVM,
    /// bytes that the host has mapped, or a failure of the runtime.
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
        event.map_err(|error| KernelError::of_launch(self.kernel.name(), setting, error))
    }
}

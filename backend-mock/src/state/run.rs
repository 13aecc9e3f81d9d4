//! How the mock runs a command. Kernels run without the lock of the device.

use std::{
    any::Any,
    borrow::Cow,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use binpool_allocators::{MemoryId, contained::discard};

use smallvec::SmallVec;

use super::{
    State,
    records::{Access, Accesses},
};
use crate::{
    CommandId, Violation,
    cause::Cause,
    effect::{Effect, KernelBody},
    storage::{Bytes, Claim, Operands, Refused, Span, Storage},
    sync::thread,
};

/// The result of starting a command.
pub(crate) enum Started {
    /// It has ended.
    Ended,
    /// A kernel that runs on another thread has a claim on some of its memory.
    Busy,
    /// It is a kernel, which the caller must run without the lock.
    Kernel(Box<Kernel>),
}

/// A kernel that has a claim on its memory and is about to run.
pub(crate) struct Kernel {
    pub(crate) id: CommandId,
    name: Cow<'static, str>,
    body: KernelBody,
    claim: Claim,
}

impl Kernel {
    /// Runs the kernel, and drops its claim.
    pub(crate) fn run(self) -> Result<(), Cause> {
        let Self {
            id,
            name,
            body,
            claim,
        } = self;
        // A kernel that panics leaves bytes half written, like one that faults on a device, but
        // nothing else: unwinding drops the claim, and no lock is held.
        catch_unwind(AssertUnwindSafe(|| claim.touch(body))).map_err(|panic| {
            let message = message(&*panic);
            discard(panic);
            Cause::KernelPanicked {
                command: id,
                name,
                message,
            }
        })
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text.clone()
    } else {
        "no text".to_owned()
    }
}

impl State {
    /// Runs a command that is ready, or returns a kernel to be run without the lock.
    pub(crate) fn start(&mut self, id: CommandId) -> Started {
        let Some(command) = self.commands.get(&id) else {
            return Started::Ended;
        };
        let (reads, writes) = (command.reads.clone(), command.writes.clone());
        if matches!(command.effect, Effect::Nothing) {
            let mut accesses = reads.iter().chain(&writes);
            let result = accesses.try_for_each(|access| {
                self.check_mapped(id, access.block, access.memory, access.region)
            });
            self.end_command(id, result);
            return Started::Ended;
        }
        // Different views of a block can overlap. The result is as if all bytes had been read first.
        let mut pairs = reads.iter().zip(&writes);
        let within = matches!(command.effect, Effect::Copy)
            && pairs.any(|(read, write)| read.block == write.block);
        let claim = self
            .operands(id, &reads, within)
            .and_then(|reads| Ok((reads, self.operands(id, &writes, false)?)))
            .map(|(reads, writes)| Claim::new(reads, writes));
        let claim = match claim {
            Ok(Ok(claim)) => claim,
            Ok(Err(Refused::Busy)) => return Started::Busy,
            Ok(Err(Refused::Malformed)) => {
                debug_assert!(false, "spans are checked when a command is enqueued");
                self.end_command(id, Ok(()));
                return Started::Ended;
            }
            Err(error) => {
                self.end_command(id, Err(error));
                return Started::Ended;
            }
        };
        let Some(command) = self.commands.get_mut(&id) else {
            return Started::Ended;
        };
        match std::mem::replace(&mut command.effect, Effect::Nothing) {
            Effect::Kernel(body) => {
                let name = command.name.clone();
                self.ready.remove(&id);
                self.running.push((id, thread::current().id()));
                Started::Kernel(Box::new(Kernel {
                    id,
                    name,
                    body,
                    claim,
                }))
            }
            work => {
                claim.touch(|reads, writes| work.perform(reads, writes));
                self.end_command(id, Ok(()));
                Started::Ended
            }
        }
    }

    /// Ends the command of a kernel that has run.
    pub(crate) fn kernel_ended(&mut self, id: CommandId, result: Result<(), Cause>) {
        self.running.retain(|(running, _)| *running != id);
        self.end_command(id, result);
    }

    /// The bytes of these ranges; copies of them if `copied`.
    fn operands(
        &mut self,
        command: CommandId,
        accesses: &Accesses,
        copied: bool,
    ) -> Result<Operands, Cause> {
        let mut operands = Operands::new();
        for access in accesses {
            let (memory, region) = (access.memory, access.region);
            self.check_mapped(command, access.block, memory, region)?;
            let Some(block) = self.blocks.get(access.block) else {
                return Err(self.used_after_free(command, memory, region.bytes));
            };
            let copied = copied || block.mappings.is_some();
            let parts = self.parts_of(*access).into_iter().rev();
            let spans = parts.map(|part| {
                let (storage, region) = (self.storage_of(part)?, part.region);
                Ok(Span { storage, region })
            });
            let spans = spans.collect::<Result<SmallVec<[Span; 1]>, Cause>>()?;
            if copied {
                operands.push(Bytes::Copied(spans));
            } else {
                operands.extend(spans.into_iter().map(Bytes::Whole));
            }
        }
        Ok(operands)
    }

    /// The contents of a block, which are allocated when they are first touched.
    fn storage_of(&mut self, access: Access) -> Result<Arc<Storage>, Cause> {
        let alignment = self.config.limits.alignment;
        let memory = access.memory;
        let Some(block) = self.blocks.get_mut(access.block) else {
            return Err(Cause::UseAfterFree { memory });
        };
        if let Some(storage) = &block.storage {
            return Ok(Arc::clone(storage));
        }
        let (memory, bytes) = (block.id, block.bytes);
        let storage = Storage::zeroed(bytes, alignment).map(Arc::new);
        let storage = storage.ok_or(Cause::OutOfHostMemory { memory, bytes })?;
        Ok(Arc::clone(block.storage.insert(storage)))
    }

    /// Reports that a command is about to use memory whose address was freed by hand.
    pub(super) fn used_after_free(
        &mut self,
        id: CommandId,
        memory: MemoryId,
        bytes: usize,
    ) -> Cause {
        if let Some(command) = self.commands.get(&id) {
            let violation = Violation::UseAfterFree {
                memory,
                bytes,
                call: command.kind,
                command: command.name.clone(),
            };
            self.violations.push(violation);
        }
        Cause::UseAfterFree { memory }
    }
}

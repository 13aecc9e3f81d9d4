//! The way of every command to its stream.

use std::sync::Arc;

use binpool_allocators::{Queue, Result};

use crate::{
    backend::CudaBackend,
    event::CudaEvent,
    graveyard::End,
    memory::CudaMemory,
    queue::CudaQueue,
    sys::{CudaResult, Mark, Staging, Stream},
};

impl CudaBackend {
    /// Checks the objects of a command.
    pub(crate) fn check_command(
        &self,
        queue: &CudaQueue,
        memory: &[&CudaMemory],
        wait_for: &[CudaEvent],
    ) -> Result<()> {
        self.shared.check_queue(queue)?;
        queue.check_thread()?;
        for memory in memory {
            memory.check_belongs(&self.shared)?;
            memory.check_queue(queue)?;
        }
        self.shared.check_events(wait_for)
    }

    /// Enqueues a command whose objects are checked: `work`, behind `wait_for`. What `work` uses is kept until it has ended.
    pub(crate) fn submit(
        &self,
        queue: &CudaQueue,
        memory: &[&CudaMemory],
        wait_for: &[CudaEvent],
        work: impl FnOnce(&Stream) -> CudaResult<Option<Arc<Staging>>>,
    ) -> Result<CudaEvent> {
        self.shared.graveyard.reap_some();
        let mark = Arc::new(Mark::new(&self.shared.context)?);
        let stream = queue.stream();
        let mut commands = queue.commands().lock();
        hold_back(stream, wait_for)?;
        let staging = work(stream).inspect_err(|_| self.abandon(memory, None))?;
        if let Err(error) = stream.record(&mark) {
            self.abandon(memory, staging);
            return Err(error.into());
        }
        *commands += 1;
        let number = *commands;
        drop(commands);
        for memory in memory {
            memory.root().note_use(queue.id(), number, &mark);
        }
        if let Some(staging) = staging {
            let after = vec![End::Mark(Arc::clone(&mark))];
            self.shared.graveyard.bury(staging, after, false);
        }
        Ok(CudaEvent::of_command(mark))
    }

    /// Sees to it that a command of which no event tells the end, since a call has failed, ends before what it uses is freed.
    fn abandon(&self, memory: &[&CudaMemory], staging: Option<Arc<Staging>>) {
        let everything = || End::Everything(Arc::clone(&self.shared.context));
        if everything().has_come() {
            return;
        }
        for memory in memory {
            memory.root().free_after(std::iter::once(everything()));
        }
        if let Some(staging) = staging {
            self.shared
                .graveyard
                .bury(staging, vec![everything()], false);
        }
    }

    /// Runs a command of the host, whose objects are checked, behind `wait_for`: `work` waits until it has ended.
    pub(crate) fn run(
        &self,
        queue: &CudaQueue,
        wait_for: &[CudaEvent],
        work: impl FnOnce(&Stream, &Mark) -> CudaResult<()>,
    ) -> Result<()> {
        self.shared.graveyard.reap_some();
        let mark = Mark::new(&self.shared.context)?;
        hold_back(queue.stream(), wait_for)?;
        Ok(work(queue.stream(), &mark)?)
    }
}

fn hold_back(stream: &Stream, wait_for: &[CudaEvent]) -> CudaResult<()> {
    wait_for
        .iter()
        .try_for_each(|event| event.hold_back(stream))
}

//! The way of every command to its stream.

use std::sync::Arc;

use binpool_allocators::{Error, ObjectKind, Queue, Result};

use crate::{
    backend::CudaBackend,
    event::CudaEvent,
    graveyard::{Conditions, End},
    memory::{CudaMemory, Part},
    queue::{Commands, CudaQueue},
    sys::{Context, CudaResult, Mark, Staging, Stream},
};

/// What a command uses besides memory. It is kept until the command has ended.
pub(crate) struct Held {
    pub(crate) staging: Option<Arc<Staging>>,
    /// Those of the events that it waits for, where they are not the queue's.
    contexts: Vec<Arc<Context>>,
}

impl Held {
    fn of(stream: &Stream, wait_for: &[CudaEvent]) -> Self {
        let contexts = wait_for.iter().map(CudaEvent::context);
        let others = contexts.filter(|context| !context.is_same(stream.context()));
        Self {
            staging: None,
            contexts: others.map(Arc::clone).collect(),
        }
    }

    fn is_empty(&self) -> bool {
        self.staging.is_none() && self.contexts.is_empty()
    }
}

impl CudaBackend {
    /// Checks the objects of a command on memory of this device.
    pub(crate) fn check_command(
        &self,
        queue: &CudaQueue,
        memory: &[&CudaMemory],
        wait_for: &[CudaEvent],
    ) -> Result<()> {
        for memory in memory {
            memory.check_belongs(&self.shared)?;
        }
        self.check_command_of_devices(queue, memory, wait_for)
    }

    /// Checks the objects of a command on memory of all devices of the driver.
    pub(crate) fn check_command_of_devices(
        &self,
        queue: &CudaQueue,
        memory: &[&CudaMemory],
        wait_for: &[CudaEvent],
    ) -> Result<()> {
        self.shared.check_queue(queue)?;
        queue.check_thread()?;
        for memory in memory {
            let context = &memory.root().shared().context;
            self.shared.check(context, ObjectKind::Memory)?;
            memory.check_queue(queue)?;
        }
        self.shared.check_events(wait_for)
    }

    /// Enqueues a command whose objects are checked: `work`, behind `wait_for`, on the queue or on a side stream of the memory's device. What
    /// `work` uses is kept until it has ended.
    pub(crate) fn submit(
        &self,
        queue: &CudaQueue,
        parts: &[Part<'_>],
        wait_for: &[CudaEvent],
        work: impl FnOnce(&Stream, &mut Held) -> CudaResult<()>,
    ) -> Result<CudaEvent> {
        self.enqueue(queue, parts, parts, wait_for, work)
    }

    /// Enqueues a command as [`submit`](Self::submit) does, but always on the queue itself.
    pub(crate) fn submit_here(
        &self,
        queue: &CudaQueue,
        parts: &[Part<'_>],
        wait_for: &[CudaEvent],
        work: impl FnOnce(&Stream, &mut Held) -> CudaResult<()>,
    ) -> Result<CudaEvent> {
        self.enqueue(queue, parts, &[], wait_for, work)
    }

    /// Enqueues a command that uses `parts`, where the memory of `beside` is.
    fn enqueue(
        &self,
        queue: &CudaQueue,
        parts: &[Part<'_>],
        beside: &[Part<'_>],
        wait_for: &[CudaEvent],
        work: impl FnOnce(&Stream, &mut Held) -> CudaResult<()>,
    ) -> Result<CudaEvent> {
        let stream = queue.stream();
        if stream.is_capturing()? {
            return self.capture(queue, beside, wait_for, work);
        }
        check_waits(queue, wait_for)?;
        self.shared.graveyard.reap_some();
        let mark = Arc::new(Mark::new(stream.context())?);
        let mut held = Held::of(stream, wait_for);
        let mut commands = queue.commands().lock();
        let side = side_stream(stream, &mut commands, beside)?;
        let enqueued = hold_back(stream, wait_for)
            .and_then(|()| match &side {
                None => work(stream, &mut held),
                Some(side) => {
                    follow(side, stream)?;
                    work(side, &mut held)?;
                    follow(stream, side)
                }
            })
            .and_then(|()| stream.record(&mark));
        if let Err(error) = enqueued {
            // What follows may wait for the device, and so for a thread that enqueues on this queue.
            drop(commands);
            self.abandon(parts, held, stream, side.as_deref());
            return Err(error.into());
        }
        commands.count += 1;
        let number = commands.count;
        drop(commands);
        for part in parts {
            part.note_use(queue.id(), number, &mark);
        }
        if !held.is_empty() {
            let after = vec![End::Mark(Arc::clone(&mark))];
            self.shared
                .graveyard
                .bury(held, after, Conditions::default());
        }
        Ok(CudaEvent::of_command(mark))
    }

    /// Lets `work` enqueue a command on a stream that is captured: it goes into a graph, and runs at each launch. No event tells when, so the
    /// program keeps what the graph uses.
    fn capture(
        &self,
        queue: &CudaQueue,
        beside: &[Part<'_>],
        wait_for: &[CudaEvent],
        work: impl FnOnce(&Stream, &mut Held) -> CudaResult<()>,
    ) -> Result<CudaEvent> {
        let stream = queue.stream();
        if device_elsewhere(stream, beside).is_some() {
            return Err(Error::unsupported(
                "a captured command on memory of another device only: capture it on a queue of that device",
            ));
        }
        wait_for
            .iter()
            .try_for_each(|event| event.check_captured_wait(queue.id()))?;
        let mut held = Held::of(stream, &[]);
        let commands = queue.commands().lock();
        let captured = work(stream, &mut held);
        drop(commands);
        // Even if a call has failed: the graph may have a copy.
        self.shared.captured.lock().extend(held.staging);
        captured?;
        Ok(CudaEvent::of_captured(queue.id(), stream.context()))
    }

    /// Sees to it that a command of which no event tells the end, since a call has failed, ends before what it uses is freed.
    fn abandon(&self, parts: &[Part<'_>], held: Held, stream: &Stream, side: Option<&Stream>) {
        let contexts = || std::iter::once(stream).chain(side).map(Stream::context);
        if contexts().all(|context| context.has_all_ended()) {
            return;
        }
        for context in contexts() {
            for part in parts {
                part.note_unknown_use(context);
            }
        }
        if !held.is_empty() {
            let after = contexts().map(Arc::clone).map(End::Everything).collect();
            self.shared
                .graveyard
                .bury(held, after, Conditions::default());
        }
    }

    /// Runs a command of the host, whose objects are checked, behind `wait_for`: `work` waits until it has ended.
    pub(crate) fn run(
        &self,
        queue: &CudaQueue,
        wait_for: &[CudaEvent],
        work: impl FnOnce(&Stream, &Mark) -> CudaResult<()>,
    ) -> Result<()> {
        check_waits(queue, wait_for)?;
        self.shared.graveyard.reap_some();
        let stream = queue.stream();
        let mark = Mark::new(stream.context())?;
        let ended = hold_back(stream, wait_for).and_then(|()| work(stream, &mark));
        if let Err(error) = ended {
            self.abandon(&[], Held::of(stream, wait_for), stream, None);
            return Err(error.into());
        }
        Ok(())
    }
}

/// Returns the stream of another device that a command runs on.
fn side_stream(
    stream: &Stream,
    commands: &mut Commands,
    parts: &[Part<'_>],
) -> CudaResult<Option<Arc<Stream>>> {
    device_elsewhere(stream, parts)
        .map(|context| commands.side_stream(context))
        .transpose()
}

/// Returns another device, where a command uses memory of other devices only, which the stream's device may be unable to use.
fn device_elsewhere<'a>(stream: &Stream, parts: &'a [Part<'_>]) -> Option<&'a Arc<Context>> {
    let mut other = None;
    for part in parts {
        match part.device_context() {
            Some(context) if context.is_same(stream.context()) => return None,
            context => other = other.or(context),
        }
    }
    other
}

fn check_waits(queue: &CudaQueue, wait_for: &[CudaEvent]) -> Result<()> {
    wait_for
        .iter()
        .try_for_each(|event| event.check_wait(queue.id()))
}

/// Lets later commands of a stream wait for everything that was enqueued on another so far.
fn follow(later: &Stream, earlier: &Stream) -> CudaResult<()> {
    let mark = Mark::new(earlier.context())?;
    earlier.record(&mark)?;
    later.wait_for_mark(&mark)
}

fn hold_back(stream: &Stream, wait_for: &[CudaEvent]) -> CudaResult<()> {
    wait_for
        .iter()
        .try_for_each(|event| event.hold_back(stream))
}

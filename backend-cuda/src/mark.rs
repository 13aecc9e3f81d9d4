//! How far commands have come.

use std::sync::Arc;

use binpool_allocators::{Error, EventStatus, Result, debug_by};

use crate::sys::{Context, Gate, Handle, Mark, Stream};

/// How far a command has come, or a user event.
///
/// ```no_run
/// use binpool_allocators::{Backend, EventStatus, QueueOrder, runtime::Objects};
/// use binpool_cuda::{CudaBackend, CudaMark};
///
/// let backend = CudaBackend::open(0)?;
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let event = backend.enqueue_marker(&queue)?;
/// let mark: &CudaMark = event.mark();
/// CudaBackend::wait(mark)?; // What `event.wait()` does.
/// assert_eq!(CudaBackend::status(mark)?, EventStatus::Complete);
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone)]
pub struct CudaMark(pub(crate) Kind);

#[derive(Clone)]
pub(crate) enum Kind {
    Command(Arc<Mark>),
    User(Arc<Gate>),
    /// A command that became part of a graph: it runs with each launch of that, and its end is not the graph's. With the stream that is
    /// captured.
    Captured(Handle, Arc<Context>),
    /// Everything in these contexts.
    Everything(Vec<Arc<Context>>),
}

impl CudaMark {
    pub(crate) fn context(&self) -> Option<&Arc<Context>> {
        match &self.0 {
            Kind::Command(mark) => Some(mark.context()),
            Kind::User(gate) => Some(gate.context()),
            Kind::Captured(_, context) => Some(context),
            Kind::Everything(contexts) => contexts.first(),
        }
    }

    /// Makes later commands on the stream wait.
    pub(crate) fn hold_back(&self, stream: &Stream) -> Result<()> {
        match &self.0 {
            Kind::Command(mark) => stream.wait_for_mark(mark)?,
            Kind::User(gate) => stream.wait_for_gate(gate)?,
            Kind::Captured(..) => {}
            Kind::Everything(_) => self.wait()?,
        }
        Ok(())
    }

    /// Checks that a command that is not captured, on this stream, may wait for this.
    pub(crate) fn check_wait(&self, stream: &Stream) -> Result<()> {
        match self.0 {
            Kind::Captured(own, _) if own != stream.raw() => Err(Error::unsupported(
                "waiting on another queue for a command that is captured into a graph: order the streams of a capture by events of the \
                 driver, or wait for the launch of the graph",
            )),
            _ => Ok(()),
        }
    }

    /// Checks that a captured command may wait for this: it has ended, or is captured on the same stream.
    pub(crate) fn check_captured_wait(&self, stream: &Stream) -> Result<()> {
        self.check_wait(stream)?;
        if self.status().is_ok_and(EventStatus::has_ended) {
            return Ok(());
        }
        Err(Error::unsupported(
            "a captured command that waits for one before the capture, or for a user event: wait for it, on the host, before the capture \
             begins",
        ))
    }

    pub(crate) fn status(&self) -> Result<EventStatus> {
        let has_ended = match &self.0 {
            Kind::Command(mark) => mark.has_ended(),
            Kind::User(gate) => Ok(gate.is_open()),
            Kind::Captured(..) => Ok(true),
            Kind::Everything(contexts) => Ok(contexts.iter().all(|it| it.has_all_ended())),
        };
        match has_ended {
            Ok(false) => Ok(EventStatus::Pending),
            Ok(true) => Ok(EventStatus::Complete),
            Err(error) if error.is_sticky() => Ok(EventStatus::Failed),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn wait(&self) -> Result<()> {
        match &self.0 {
            Kind::Command(mark) => mark.wait()?,
            Kind::User(gate) => gate.wait(),
            Kind::Captured(..) => {}
            Kind::Everything(contexts) => {
                for context in contexts {
                    context.synchronize()?;
                }
            }
        }
        Ok(())
    }

    /// Waits, unless that might never end.
    pub(crate) fn wait_at_end(&self) -> bool {
        match &self.0 {
            Kind::Command(mark) if !mark.context().has_unresolved() => {
                mark.wait().is_ok() || mark.context().has_all_ended()
            }
            _ => self.status().is_ok_and(EventStatus::has_ended),
        }
    }
}

debug_by!(CudaMark);

//! The trait that a backend implements.

use std::{fmt, sync::Arc};

use super::{Core, Objects, Part};
use crate::{Error, MemoryFlags, QueueOrder, Result, Work};

/// A device runtime: what one device does, without checks or bookkeeping.
///
/// A type that implements this is a [`Backend`](crate::Backend). Its values are cheap handles, such as an `Arc` of what
/// clones share, with a [`Core`] in it. All methods may be called from any thread.
///
/// Only the core calls the methods that are `unsafe`, and checks every argument before: memory, queues and events
/// belong to this device or to one of its [family](Core::of_family), parts lie inside their blocks, patterns fit, and
/// flags allow the access. The core keeps what the command uses until it has ended. Programs may call the other methods, too, but can only
/// drop what these return.
///
/// A call that fails has no effect. If you cannot ensure that, see [`after_failure`](Self::after_failure).
///
/// The example `own_backend` of `binpool` is a whole backend over threads of the host. This one finishes each command before `submit` returns,
/// so it has nothing to wait for:
///
/// ```
/// use std::sync::{Arc, Mutex};
///
/// use binpool_allocators::{
///     Align, Backend, DeviceLimits, Error, EventStatus, MemoryFlags, QueueOrder, Result, Work,
///     runtime::{Core, Objects, Part, Runtime},
/// };
///
/// #[derive(Clone, Debug)]
/// struct AtOnce(Arc<Core<Self>>);
///
/// impl Objects for AtOnce {
///     type Block = Mutex<Vec<u8>>;
///     type Stream = ();
///     type Mark = ();
///
///     fn status((): &()) -> Result<EventStatus> {
///         Ok(EventStatus::Complete)
///     }
///     fn wait((): &()) -> Result<()> {
///         Ok(())
///     }
/// }
///
/// impl Runtime for AtOnce {
///     fn core(&self) -> &Arc<Core<Self>> {
///         &self.0
///     }
///     fn allocate(&self, bytes: usize, _flags: MemoryFlags) -> Result<Mutex<Vec<u8>>> {
///         Ok(Mutex::new(vec![0; bytes]))
///     }
///     fn create_stream(&self, _order: QueueOrder) -> Result<()> {
///         Ok(())
///     }
///     unsafe fn submit(&self, (): &(), _after: &[()], work: Work<'_, &Part<'_, Self>>) -> Result<()> {
///         let bytes = |part: &Part<'_, Self>| part.region().offset..part.region().offset + part.region().bytes;
///         match work {
///             Work::Write(to, data) => to.block().lock().unwrap()[bytes(to)].copy_from_slice(&data),
///             Work::Read(from, sink) => {
///                 let data = from.block().lock().unwrap()[bytes(from)].to_vec();
///                 sink.put(move || data);
///             }
///             Work::Marker | Work::Barrier => {}
///             _ => return Err(Error::unsupported("fills and copies in this example")),
///         }
///         Ok(())
///     }
///     // These have defaults that are right here.
///     unsafe fn flush(&self, (): &()) -> Result<()> {
///         Ok(())
///     }
///     unsafe fn finish(&self, (): &()) -> Result<()> {
///         Ok(())
///     }
///     unsafe fn commit(&self, (): &(), _all: &Part<'_, Self>) -> Result<()> {
///         Ok(())
///     }
///     unsafe fn write(&self, (): &(), _after: &[()], _to: &Part<'_, Self>, _data: &[u8]) -> Result<bool> {
///         Ok(false)
///     }
///     unsafe fn read(&self, (): &(), _after: &[()], _from: &Part<'_, Self>, _data: &mut [u8]) -> Result<bool> {
///         Ok(false)
///     }
///     fn create_user_mark(&self) -> Result<()> {
///         Err(Error::unsupported("user events"))
///     }
///     fn free_bytes(&self) -> Option<u64> {
///         None
///     }
///     unsafe fn after_failure(&self, (): &(), _parts: &[&Part<'_, Self>]) -> Option<()> {
///         None
///     }
/// }
///
/// let limits = DeviceLimits::new("at once", 1 << 30, 1 << 28, Align::new(64).unwrap());
/// let backend = AtOnce(Arc::new(Core::new(limits)));
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let memory = backend.create_buffer(64, MemoryFlags::empty())?;
/// Backend::write(&backend, &queue, &memory, 60, &[1_u8, 2, 3, 4])?;
/// assert_eq!(backend.enqueue_read(&queue, &memory, 61..)?.wait()?, [2, 3, 4]);
/// # Ok::<(), Error>(())
/// ```
pub trait Runtime: Objects + Clone + fmt::Debug + Send + Sync {
    /// The part of the backend that is the same on every device, which all clones share.
    fn core(&self) -> &Arc<Core<Self>>;

    /// Allocates `bytes` bytes: at least 1, at most the largest block. The contents are undefined.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`](Error::OutOfMemory), after which the core frees what it can and asks again, or a failure of the runtime.
    fn allocate(&self, bytes: usize, flags: MemoryFlags) -> Result<Self::Block>;

    /// Makes a queue. Out-of-order queues are requested only if the device's limits say that it has them.
    ///
    /// # Errors
    ///
    /// A failure of the runtime.
    fn create_stream(&self, order: QueueOrder) -> Result<Self::Stream>;

    /// Enqueues a command that begins once everything in `after` has ended, and the queue's order allows. Does not wait.
    ///
    /// A command that waits for one that fails does not run, and fails.
    ///
    /// # Errors
    ///
    /// A failure of the runtime. Nothing is enqueued then, or [`after_failure`](Self::after_failure) tells when it has ended.
    ///
    /// # Safety
    ///
    /// All arguments have been checked, as [above](Self).
    unsafe fn submit(
        &self,
        stream: &Self::Stream,
        after: &[Self::Mark],
        work: Work<'_, &Part<'_, Self>>,
    ) -> Result<Self::Mark>;

    /// Makes sure that the runtime starts the commands of a queue. Most do so by themselves.
    ///
    /// # Errors
    ///
    /// A failure of the runtime.
    ///
    /// # Safety
    ///
    /// All arguments have been checked, as [above](Self).
    unsafe fn flush(&self, _stream: &Self::Stream) -> Result<()> {
        Ok(())
    }

    /// Waits until all commands of a queue have ended, with or without an error. The default is correct if a failed command ends after those before it
    /// ([`FailureOrder::Kept`](crate::FailureOrder::Kept)).
    ///
    /// # Errors
    ///
    /// A failure of the runtime to wait.
    ///
    /// # Safety
    ///
    /// All arguments have been checked, as [above](Self).
    unsafe fn finish(&self, stream: &Self::Stream) -> Result<()> {
        // SAFETY: the stream has been checked; a marker uses no memory, and waits for nothing.
        let last = unsafe { self.submit(stream, &[], Work::Marker)? };
        match Self::wait(&last) {
            Err(_) if Self::status(&last)?.has_ended() => Ok(()),
            waited => waited,
        }
    }

    /// Commits memory, and waits for that. Most runtimes commit memory when they allocate it.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`](Error::OutOfMemory); the block is as before.
    ///
    /// # Safety
    ///
    /// All arguments have been checked, as [above](Self).
    unsafe fn commit(&self, _stream: &Self::Stream, _all: &Part<'_, Self>) -> Result<()> {
        Ok(())
    }

    /// Writes `data` to `to`, which may be empty, and waits until it is there, if the runtime can do so without a copy of the bytes. Otherwise
    /// it returns false, and the core writes a copy by [`submit`](Self::submit).
    ///
    /// # Errors
    ///
    /// The failure of the command, which does not use `data` any more.
    ///
    /// # Safety
    ///
    /// All arguments have been checked, as [above](Self).
    unsafe fn write(
        &self,
        _stream: &Self::Stream,
        _after: &[Self::Mark],
        _to: &Part<'_, Self>,
        _data: &[u8],
    ) -> Result<bool> {
        Ok(false)
    }

    /// Reads `from`, which may be empty, into `data`, and waits until it is there, if the runtime can do so without a copy of the bytes. Otherwise
    /// it returns false, and the core reads a copy by [`submit`](Self::submit).
    ///
    /// # Errors
    ///
    /// The failure of the command, which does not use `data` any more.
    ///
    /// # Safety
    ///
    /// All arguments have been checked, as [above](Self).
    unsafe fn read(
        &self,
        _stream: &Self::Stream,
        _after: &[Self::Mark],
        _from: &Part<'_, Self>,
        _data: &mut [u8],
    ) -> Result<bool> {
        Ok(false)
    }

    /// Makes a mark that the host resolves. Unsupported by default.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](Error::Unsupported), or a failure of the runtime.
    fn create_user_mark(&self) -> Result<Self::Mark> {
        Err(Error::unsupported("user events on this backend"))
    }

    /// The bytes of the device that are free now, if the runtime reports them.
    fn free_bytes(&self) -> Option<u64> {
        None
    }

    /// The mark that ends once everything that a failed call may have enqueued, on `stream` or elsewhere, has ended. `None`
    /// if it enqueued nothing, as usual.
    ///
    /// # Safety
    ///
    /// All arguments have been checked, as [above](Self).
    unsafe fn after_failure(
        &self,
        _stream: &Self::Stream,
        _parts: &[&Part<'_, Self>],
    ) -> Option<Self::Mark> {
        None
    }
}

//! A runtime's objects, and what they can do without the backend.

use crate::{EventStatus, InvalidRequest, Outcome, Result};

/// The objects of a runtime: memory, queues, and marks for how far commands have come. Their functions take no backend, since the core asks
/// while the backend is being dropped, too.
///
/// Blocks, streams and marks must not keep a clone of the backend alive: its core keeps them.
///
/// ```
/// use std::sync::{Arc, atomic::{AtomicBool, Ordering::SeqCst}};
///
/// use binpool_allocators::{EventStatus, Outcome, Result, runtime::Objects};
///
/// /// A device that has ended each command before `submit` returns. What is pending is a user event.
/// struct AtOnce;
///
/// impl Objects for AtOnce {
///     type Block = Vec<u8>;
///     type Stream = ();
///     type Mark = Arc<AtomicBool>;
///
///     fn status(mark: &Self::Mark) -> Result<EventStatus> {
///         Ok(if mark.load(SeqCst) { EventStatus::Complete } else { EventStatus::Pending })
///     }
///     fn wait(mark: &Self::Mark) -> Result<()> {
///         while !mark.load(SeqCst) {
///             std::thread::yield_now();
///         }
///         Ok(())
///     }
///     unsafe fn resolve(mark: &Self::Mark, _outcome: Outcome) -> Result<()> {
///         mark.store(true, SeqCst);
///         Ok(())
///     }
///     fn address(block: &Vec<u8>) -> Option<u64> {
///         Some(block.as_ptr().addr() as u64)
///     }
/// }
///
/// let mark = Arc::new(AtomicBool::new(false));
/// assert!(!AtOnce::has_ended(&mark));
/// // SAFETY: it is a user's mark, and not resolved yet.
/// unsafe { AtOnce::resolve(&mark, Outcome::Complete)? };
/// assert!(AtOnce::has_ended(&mark) && AtOnce::wait_at_end(&mark));
/// // What most runtimes need not say.
/// assert!(!AtOnce::is_captured(&mark) && !AtOnce::is_freed_in_order(&vec![0]));
/// assert!(AtOnce::may_free(&vec![0]).is_ok());
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
pub trait Objects: Sized + 'static {
    /// Memory of the device. Dropping it frees it; no command uses it any more by then.
    type Block: Send + Sync + 'static;
    /// A queue of the device. Dropping it destroys it, after its commands.
    type Stream: Send + Sync + 'static;
    /// How far a command has come. Clones are the same mark.
    type Mark: Clone + Send + Sync + 'static;

    /// Returns how far a command has come, without waiting.
    ///
    /// # Errors
    ///
    /// A failure of the runtime.
    fn status(mark: &Self::Mark) -> Result<EventStatus>;

    /// Waits until a command has ended.
    ///
    /// # Errors
    ///
    /// The failure of the command, which has ended in any case.
    fn wait(mark: &Self::Mark) -> Result<()>;

    /// Resolves a mark of [`create_user_mark`](super::Runtime::create_user_mark) that is not resolved yet.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](crate::Error::Unsupported) if it cannot have this outcome; then it is not resolved.
    ///
    /// # Safety
    ///
    /// Only the core calls this, for such a mark.
    unsafe fn resolve(_mark: &Self::Mark, _outcome: Outcome) -> Result<()> {
        Err(InvalidRequest::NotAUserEvent.into())
    }

    /// The address of a block for kernels, if memory has one.
    fn address(_block: &Self::Block) -> Option<u64> {
        None
    }

    /// Returns whether the command of a mark was recorded for later, as into a CUDA graph, and does not count as a use.
    fn is_captured(_mark: &Self::Mark) -> bool {
        false
    }

    /// Returns whether dropping a block enqueues its release after all commands that use it, so that it can be dropped at once.
    fn is_freed_in_order(_block: &Self::Block) -> bool {
        false
    }

    /// Checks that dropping a block would not wait for something that only the program can make happen.
    ///
    /// # Errors
    ///
    /// What the program has to do first. The block is kept until then.
    fn may_free(_block: &Self::Block) -> Result<(), &'static str> {
        Ok(())
    }

    /// Waits for a command as the backend ends. Returns false if that would wait forever: then memory is leaked.
    fn wait_at_end(mark: &Self::Mark) -> bool {
        Self::wait(mark).is_ok() || Self::has_ended(mark)
    }

    /// Returns whether a command is known to have ended.
    fn has_ended(mark: &Self::Mark) -> bool {
        Self::status(mark).is_ok_and(EventStatus::has_ended)
    }
}

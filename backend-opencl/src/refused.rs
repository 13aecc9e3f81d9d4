//! Errors that return the value which was passed to the call.

use std::{error::Error as StdError, fmt};

use binpool_allocators::Error;

/// The error of a call that failed, with the value that it was to consume.
///
/// `?` drops the value and passes on the plain error.
///
/// ```
/// use binpool_allocators::{Backend, Error, InvalidRequest, MemoryFlags, QueueOrder};
/// use binpool_opencl::{OpenClBackend, Refused};
///
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let memory = backend.create_buffer(8, MemoryFlags::empty())?;
/// let numbers = vec![1_u32, 2, 3];
/// let enqueued = backend.enqueue_write_owned(&queue, &memory, 0, numbers);
/// let Err(Refused { error, value }) = enqueued else {
///     panic!("8 bytes have no room for 12");
/// };
/// let beyond = InvalidRequest::OutOfBounds { offset: 0, bytes: 12, size: 8 };
/// assert!(matches!(error, Error::InvalidRequest(request) if request == beyond));
/// assert_eq!(value, [1, 2, 3]); // Not lost: for another try, with what fits.
/// backend.enqueue_write_owned(&queue, &memory, 0, value[..2].to_vec())?.wait()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Refused<T> {
    /// The error.
    pub error: Error,
    /// The value that was passed to the call, unchanged unless the call says otherwise.
    pub value: T,
}

impl<T> From<Refused<T>> for Error {
    fn from(refused: Refused<T>) -> Self {
        refused.error
    }
}

impl<T> fmt::Debug for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused")
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

impl<T> fmt::Display for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T> StdError for Refused<T> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.error.source()
    }
}

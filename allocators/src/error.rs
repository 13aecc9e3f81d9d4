//! Errors, grouped by what can be done about them.

use std::{convert::Infallible, error::Error as StdError, fmt};

use crate::{Align, MemoryFlags, SvmGrain, words};

/// A backend's own error, kept as the source of ours.
pub type Source = Box<dyn StdError + Send + Sync + 'static>;

/// The result of an operation on a device.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation on a device failed.
///
/// The variants say what to do: free memory ([`OutOfMemory`](Self::OutOfMemory)), correct the call
/// ([`InvalidRequest`](Self::InvalidRequest)), or use another device or method ([`Unsupported`](Self::Unsupported)).
/// [`Backend`](Self::Backend) and [`DeviceLost`](Self::DeviceLost) mean that the runtime itself has failed.
///
/// ```
/// use binpool_allocators::{Allocator, Error, ImmediateAllocator};
/// use binpool_mock::MockDevice;
///
/// let backend = MockDevice::builder().capacity_bytes(1 << 20).build().backend();
/// let allocator = ImmediateAllocator::new(&backend)?;
/// let _block = allocator.allocate(900_000)?;
/// match allocator.allocate(500_000) {
///     Err(Error::OutOfMemory(shortage)) => assert_eq!(shortage.requested, 500_000), // Free something, try again.
///     other => panic!("{other:?}"),
/// }
/// // Larger than the device's largest block: freeing does not help, and the error says so.
/// assert!(matches!(allocator.allocate(2 << 20), Err(Error::InvalidRequest(_))));
/// # Ok::<(), Error>(())
/// ```
///
/// A backend maps the error codes of its runtime like this; these are OpenCL's:
///
/// ```
/// use binpool_allocators::Error;
///
/// fn failure(call: &'static str, code: i32, bytes: usize) -> Error {
///     let source = format!("{call} returned {code}");
///     match code {
///         -4 => Error::device_out_of_memory(bytes, source),
///         -10 => Error::unsupported(format!("this image format, in {call}")),
///         _ => Error::backend(call, Some(code), source),
///     }
/// }
///
/// let full = failure("clEnqueueWriteBuffer", -4, 4096);
/// assert!(full.is_out_of_memory());
/// assert_eq!(full.to_string(), "out of device memory: 4.0 KiB requested");
/// assert_eq!(failure("clFinish", -36, 0).to_string(), "clFinish failed with code -36");
/// ```
///
/// A whole program can use this one error type: the errors of pools, of kernels and images, and of opening a device
/// convert to it by `?`.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device, the host or a limit has no memory left for the request. Freeing memory may help.
    #[error(transparent)]
    OutOfMemory(Box<OutOfMemory>),
    /// The call itself is wrong, in any state of the device.
    #[error("invalid request: {0}")]
    InvalidRequest(InvalidRequest),
    /// This device or backend does not support the request.
    #[error("unsupported: {what}")]
    Unsupported {
        /// What is missing, and the alternative.
        what: String,
    },
    /// A call of the runtime failed, for a reason other than memory.
    #[error(transparent)]
    Backend(Box<BackendFailure>),
    /// The device is lost, with everything on it.
    #[error("the device is lost ({operation})")]
    DeviceLost {
        /// The call that failed.
        operation: &'static str,
        /// The runtime's own error.
        source: Option<Source>,
    },
}

impl Error {
    /// An out-of-memory error of the device, with the runtime's own error as its source.
    pub fn device_out_of_memory(requested: usize, source: impl Into<Source>) -> Self {
        OutOfMemory::new(requested, Scope::Device)
            .with_source(source)
            .into()
    }

    /// A failure of the runtime call `operation`.
    pub fn backend(operation: &'static str, code: Option<i32>, source: impl Into<Source>) -> Self {
        Self::Backend(Box::new(BackendFailure {
            operation,
            code,
            source: Some(source.into()),
        }))
    }

    /// An error for something that this device or backend does not support.
    pub fn unsupported(what: impl Into<String>) -> Self {
        Self::Unsupported { what: what.into() }
    }

    /// Returns whether freeing memory and trying again may help.
    ///
    /// False for a block larger than the device's largest, which never fits.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::OutOfMemory(_))
    }
}

/// The text of `Display`, then the causes, as when `main` returns the error.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfMemory(shortage) => fmt::Debug::fmt(shortage, f),
            _ => words::write_with_causes(f, self),
        }
    }
}

/// What ran out of memory.
///
/// ```
/// use binpool_allocators::adaptors::Limit;
/// use binpool_allocators::{Allocator, Error, ImmediateAllocator, Scope};
/// # use binpool_mock::MockDevice;
///
/// # let backend = MockDevice::builder().capacity_bytes(2000).build().backend();
/// let allocator = Limit::new(ImmediateAllocator::new(&backend)?, 1000); // The device has 2000 bytes.
/// let short_of = |bytes| match allocator.allocate(bytes) {
///     Err(Error::OutOfMemory(shortage)) => Some(shortage.scope),
///     _ => None,
/// };
/// assert_eq!(short_of(1500), Some(Scope::Limit)); // The program can raise the limit:
/// allocator.budget().set_max_bytes(4000);
/// let block = allocator.allocate(1500)?;
/// assert_eq!(short_of(1500), Some(Scope::Device)); // Memory has to be freed.
/// # allocator.release(block, &[])?;
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Scope {
    /// The device.
    Device,
    /// The host, on behalf of the device's runtime.
    Host,
    /// A limit that the program set.
    Limit,
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Device => "device",
            Self::Host => "host",
            Self::Limit => "limit",
        })
    }
}

/// Memory is exhausted.
///
/// ```
/// use std::error::Error as _;
///
/// use binpool_allocators::{Allocator, Error, ImmediateAllocator};
/// # use binpool_mock::MockDevice;
///
/// # let backend = MockDevice::builder().capacity_bytes(10_000).build().backend();
/// let allocator = ImmediateAllocator::new(&backend)?;
/// let block = allocator.allocate(8_000)?;
/// let Err(Error::OutOfMemory(shortage)) = allocator.allocate(3_000) else { unreachable!() };
/// assert_eq!((shortage.requested, shortage.available), (3_000, Some(2_000)));
/// let runtime = shortage.source().expect("the mock says why").to_string();
/// assert!(runtime.starts_with("MEM_OBJECT_ALLOCATION_FAILURE"));
/// # allocator.release(block, &[])?;
/// # Ok::<(), Error>(())
/// ```
///
/// An allocator that refuses a request itself adds what it knows:
///
/// ```
/// use binpool_allocators::{Error, OutOfMemory, Scope};
///
/// let refusal = OutOfMemory::new(4096, Scope::Host).with_available(1000).with_source("mlock: ENOMEM");
/// assert_eq!(refusal.to_string(), "out of host memory: 4.0 KiB requested, 1000 B free");
/// assert!(Error::from(refusal).is_out_of_memory());
/// ```
#[non_exhaustive]
pub struct OutOfMemory {
    /// The bytes requested.
    pub requested: usize,
    /// The bytes still free, if known.
    pub available: Option<u64>,
    /// What ran out of memory.
    pub scope: Scope,
    /// The runtime's own error.
    pub source: Option<Source>,
    /// A longer report of the same shortage, such as a pool's. `Display` prints it instead.
    pub report: Option<Source>,
}

impl OutOfMemory {
    /// A shortage in `scope` for a request of `requested` bytes, without further details.
    #[must_use]
    pub const fn new(requested: usize, scope: Scope) -> Self {
        Self {
            requested,
            available: None,
            scope,
            source: None,
            report: None,
        }
    }

    /// Adds the bytes that are still free.
    #[must_use]
    pub const fn with_available(mut self, available: u64) -> Self {
        self.available = Some(available);
        self
    }

    /// Adds the runtime's own error.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Source>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Adds a longer report of the shortage, which `Display` then prints.
    ///
    /// ```
    /// use binpool_allocators::{OutOfMemory, Scope};
    ///
    /// let error = OutOfMemory::new(4096, Scope::Limit).with_report("the cache of weights is full: 2 of 2 blocks are in use");
    /// assert_eq!(error.to_string(), "the cache of weights is full: 2 of 2 blocks are in use");
    /// ```
    #[must_use]
    pub fn with_report(mut self, report: impl Into<Source>) -> Self {
        self.report = Some(report.into());
        self
    }
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(report) = &self.report {
            return fmt::Display::fmt(report, f);
        }
        match self.scope {
            Scope::Limit => f.write_str("a limit is reached")?,
            scope @ (Scope::Device | Scope::Host) => write!(f, "out of {scope} memory")?,
        }
        let requested = self.requested as u64;
        match self.available {
            Some(available) => {
                let [requested, available] = words::bytes_apart([requested, available]);
                write!(f, ": {requested} requested, {available} free")
            }
            None => write!(f, ": {} requested", words::bytes(requested)),
        }
    }
}

/// The text of `Display`, then the causes, as when `main` returns the error.
impl fmt::Debug for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(report) = &self.report {
            return fmt::Debug::fmt(report, f);
        }
        words::write_with_causes(f, self)
    }
}

impl StdError for OutOfMemory {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match (&self.report, &self.source) {
            (Some(report), _) => report.source(),
            (None, source) => source.as_deref().map(|source| source as _),
        }
    }
}

/// The request is part of the error's own text, not its [`source`](StdError::source).
impl From<InvalidRequest> for Error {
    fn from(request: InvalidRequest) -> Self {
        Self::InvalidRequest(request)
    }
}

/// Makes `?` usable after `"any".parse()` of a device selector, which never fails.
impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl From<OutOfMemory> for Error {
    fn from(error: OutOfMemory) -> Self {
        Self::OutOfMemory(Box::new(error))
    }
}

/// A call of the runtime failed, for a reason other than memory.
///
/// ```
/// use binpool_allocators::{Backend, Error, QueueOrder};
/// use binpool_mock::{CallKind, Fault, MockDevice, Persistence};
///
/// let device = MockDevice::new();
/// let backend = device.backend();
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// device.fail_nth(CallKind::Marker, 1, Fault::Backend(-36), Persistence::Once);
/// let Err(Error::Backend(failure)) = backend.enqueue_marker(&queue) else { unreachable!() };
/// assert_eq!((failure.operation, failure.code), ("enqueue_marker", Some(-36)));
/// assert!(failure.source.is_some(), "the runtime's own error, in its own type");
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct BackendFailure {
    /// The name of the runtime's call.
    pub operation: &'static str,
    /// The runtime's error code, if it has codes.
    pub code: Option<i32>,
    /// The runtime's own error.
    pub source: Option<Source>,
}

impl fmt::Display for BackendFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed", self.operation)?;
        if let Some(code) = self.code {
            write!(f, " with code {code}")?;
        }
        Ok(())
    }
}

impl StdError for BackendFailure {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// A kind of object that belongs to one backend.
///
/// ```
/// use binpool_allocators::{
///     Queue, Backend, Error, InvalidRequest, MemoryFlags, ObjectKind, QueueOrder, Region,
/// };
/// # use binpool_mock::MockDevice;
///
/// # let [here, there] = [(); 2].map(|()| MockDevice::new().backend());
/// let queue = here.create_queue(QueueOrder::InOrder)?;
/// let buffer = here.create_buffer(64, MemoryFlags::empty())?;
/// let elsewhere = there.create_user_event()?; // The argument that is wrong.
/// let refused = here.enqueue_fill(queue.after(&[elsewhere]), &buffer, Region::first(64), &[0_u8]);
/// let Err(Error::InvalidRequest(refusal)) = refused else { unreachable!() };
/// assert_eq!(refusal, InvalidRequest::ForeignObject { kind: ObjectKind::Event });
/// assert!(refusal.to_string().starts_with("this event belongs to another backend"));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ObjectKind {
    /// A block of memory.
    Memory,
    /// A queue.
    Queue,
    /// An event.
    Event,
}

impl fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "block of memory",
            Self::Queue => "queue",
            Self::Event => "event",
        })
    }
}

/// An access of the host to memory.
///
/// ```
/// use binpool_allocators::{Backend, Error, HostUse, InvalidRequest, MemoryFlags, QueueOrder};
/// # use binpool_mock::MockDevice;
///
/// # let backend = MockDevice::new().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let weights = MemoryFlags::HOST_WRITE_ONLY;
/// let buffer = backend.create_buffer(64, weights)?;
/// backend.write(&queue, &buffer, 0, &[1_u8; 64])?;
/// let read = backend.read(&queue, &buffer, 0, &mut [0_u8; 64]);
/// let Err(Error::InvalidRequest(refusal)) = read else { unreachable!() };
/// assert_eq!(refusal, InvalidRequest::HostAccess { way: HostUse::Read, flags: weights });
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HostUse {
    /// The host reads the memory.
    Read,
    /// The host writes the memory.
    Write,
}

impl fmt::Display for HostUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
        })
    }
}

/// What is wrong with a call, in any state of the device.
///
/// The numbers are fields, and are in the text as well:
///
/// ```
/// use binpool_allocators::{Backend, Error, InvalidRequest, MemoryFlags, QueueOrder, Region};
/// # use binpool_mock::MockDevice;
///
/// # let backend = MockDevice::new().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let buffer = backend.create_buffer(1024, MemoryFlags::empty())?;
/// let written = backend.write(&queue, &buffer, 1000, &[0_u8; 100]);
/// let Err(Error::InvalidRequest(refusal)) = written else { unreachable!() };
/// assert_eq!(refusal, InvalidRequest::OutOfBounds { offset: 1000, bytes: 100, size: 1024 });
/// assert_eq!(refusal.to_string(), "100 bytes from offset 1000: the block has 1024 bytes");
///
/// match backend.create_sub_region(&buffer, Region::new(100, 100)) {
///     Err(Error::InvalidRequest(InvalidRequest::Misaligned { offset, alignment })) => {
///         assert_eq!(alignment.round_up(offset), Some(256)); // The next possible start.
///     }
///     other => panic!("{other:?}"),
/// }
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidRequest {
    /// A block of 0 bytes was requested.
    #[error("a block of 0 bytes: request at least 1, or use a pool, which supports empty blocks")]
    ZeroSize,
    /// The block is larger than the device's largest block.
    #[error("{}", too_large(*.requested, *.largest))]
    TooLarge {
        /// The bytes requested.
        requested: usize,
        /// The device's largest block, in bytes.
        largest: usize,
    },
    /// The region does not lie inside its block.
    #[error("{bytes} bytes from offset {offset}: the block has {size} bytes")]
    OutOfBounds {
        /// Where the region starts.
        offset: usize,
        /// Its length in bytes.
        bytes: usize,
        /// The size of the block in bytes.
        size: usize,
    },
    /// A sub-region does not start on a multiple of the device's alignment.
    #[error("a sub-region at offset {offset}: this device needs a multiple of {alignment}")]
    Misaligned {
        /// The requested start.
        offset: usize,
        /// The alignment that it must have.
        alignment: Align,
    },
    /// Mapped elements would start at a host address that is not aligned for their type.
    #[error(
        "a map at host address {address:#x} is not aligned to {alignment}, as its elements need: start it at another \
         offset, or map bytes"
    )]
    ElementsMisaligned {
        /// The host address at which the map starts.
        address: usize,
        /// The alignment of the type.
        alignment: Align,
    },
    /// The requested SVM alignment is larger than the device supports.
    #[error("SVM aligned to {alignment}: this device supports an alignment of at most {largest}")]
    AlignmentTooLarge {
        /// The alignment requested.
        alignment: Align,
        /// The device's largest alignment.
        largest: Align,
    },
    /// The fill pattern is empty.
    #[error("a fill pattern of 0 bytes: a fill needs at least one byte")]
    EmptyPattern,
    /// The offset or length of a fill is not a multiple of its pattern.
    #[error(
        "a fill of {bytes} bytes at offset {offset} with a pattern of {pattern} bytes: \
         offset and length must be multiples of the pattern's length"
    )]
    PatternMismatch {
        /// Where the fill starts.
        offset: usize,
        /// Its length in bytes.
        bytes: usize,
        /// The length of the pattern.
        pattern: usize,
    },
    /// The source and destination of a copy within one block overlap.
    #[error(
        "a copy of {bytes} bytes from offset {from} to offset {to} of the same block: \
         the two regions overlap"
    )]
    OverlappingCopy {
        /// Where the source starts.
        from: usize,
        /// Where the destination starts.
        to: usize,
        /// The length in bytes.
        bytes: usize,
    },
    /// Other pages are mapped there already.
    #[error("pages of {} at offset {offset}: other pages are mapped there; unmap those first", words::bytes(*.bytes as u64))]
    AlreadyMapped {
        /// Where the pages were to be mapped, from the start of the reservation.
        offset: usize,
        /// Their size in bytes.
        bytes: usize,
    },
    /// A part of the region is not mapped, or the region splits a page.
    #[error("{} at offset {offset}: pass whole pages, all of them mapped", words::bytes(*.bytes as u64))]
    NotMapped {
        /// Where the region starts in the reservation.
        offset: usize,
        /// Its length in bytes.
        bytes: usize,
    },
    /// An unfinished command uses the pages that were to be unmapped.
    #[error(
        "{} at offset {offset}: a command that uses these pages has not ended; wait for it, then unmap them",
        words::bytes(*.bytes as u64)
    )]
    InUse {
        /// Where the region starts in the reservation.
        offset: usize,
        /// Its length in bytes.
        bytes: usize,
    },
    /// Flags that contradict each other.
    #[error("{flags} contradict each other")]
    ContradictoryFlags {
        /// The flags.
        flags: MemoryFlags,
    },
    /// The memory was made with flags that rule out this access by the host.
    #[error(
        "the host cannot {way} memory that was created with {flags}: create it without the flag, or use a kernel or a \
         copy"
    )]
    HostAccess {
        /// The access.
        way: HostUse,
        /// The flags of the memory.
        flags: MemoryFlags,
    },
    /// The call would keep a reference to a buffer whose memory the host lends for one call only.
    #[error(
        "this buffer uses {bytes} bytes of host memory that are lent for one call: make views and other objects from a buffer \
         that owns its memory"
    )]
    Lent {
        /// The size of the buffer in bytes.
        bytes: usize,
    },
    /// An address was to be freed or used at which no block of the pool starts.
    #[error(
        "no block starts at address {address:#x}: it was freed before, lies within a block, or was allocated elsewhere"
    )]
    UnknownAddress {
        /// The address.
        address: u64,
    },
    /// The host asked for its memory back while views of it exist.
    #[error(
        "{views} views of these {bytes} bytes still exist: drop them before taking the memory back"
    )]
    ViewsLeft {
        /// The number of views.
        views: usize,
        /// The size of the buffer in bytes.
        bytes: usize,
    },
    /// The object belongs to another backend, context or device.
    #[error(
        "this {kind} belongs to another backend: use objects made by the backend they are passed to"
    )]
    ForeignObject {
        /// The kind of the object.
        kind: ObjectKind,
    },
    /// A command was to use memory that the host has mapped, or a second map of it was to be made.
    #[error(
        "bytes {offset}..{} are mapped by the host: drop or unmap the map first", .offset.saturating_add(*.bytes)
    )]
    Mapped {
        /// Where the map starts, in bytes from the start of the whole block.
        offset: usize,
        /// The number of mapped bytes.
        bytes: usize,
    },
    /// Two lengths must be equal.
    #[error("{actual} bytes where {expected} are needed: both sides must have the same length")]
    LengthMismatch {
        /// The required length in bytes.
        expected: usize,
        /// The actual length in bytes.
        actual: usize,
    },
    /// A number of bytes is not a whole number of elements.
    #[error("{bytes} bytes are not a whole number of elements of {element} bytes")]
    NotWholeElements {
        /// The number of bytes.
        bytes: usize,
        /// The size of an element in bytes.
        element: usize,
    },
    /// A pitch of a rectangular transfer is too small, or does not fit the other pitch.
    #[error(
        "a pitch of {pitch} bytes: at least {least} are needed, and a multiple of {multiple_of} (or 0, for rows or \
         slices without gaps)"
    )]
    Pitch {
        /// The pitch in bytes.
        pitch: usize,
        /// The least that holds the rectangle, in bytes.
        least: usize,
        /// The number that it must be a multiple of, in bytes.
        multiple_of: usize,
    },
    /// SVM was to be bound to an out-of-order queue. Frees can be ordered on in-order queues only.
    #[error(
        "SVM cannot be freed in order on an out-of-order queue: bind it to an in-order queue, or unbind it"
    )]
    OutOfOrderQueue,
    /// A buffer was passed where shared virtual memory is required.
    #[error(
        "this memory is a buffer, which has no address and no queue to be freed on: use shared virtual memory (SVM)"
    )]
    NotSvm,
    /// A block that is bound to no queue cannot be released by a command on its queue.
    #[error("this block is not bound to a queue: name the queue to release it on")]
    NoQueue,
    /// The function that builds a cached value requested that value, and would wait for itself.
    #[error("a cached value depends on itself: build it from other values")]
    AsksForItself,
    /// Only user events can be resolved by the host.
    #[error("only a user event can be resolved by the host")]
    NotAUserEvent,
    /// The user event was resolved before.
    #[error("this user event was already resolved")]
    AlreadyResolved,
}

fn too_large(requested: usize, largest: usize) -> String {
    let [requested, largest] = words::bytes_apart([requested as u64, largest as u64]);
    format!("a block of {requested}: this device's largest is {largest}")
}

impl Error {
    /// The error for a grain of SVM that the device does not have.
    ///
    /// ```
    /// use binpool_allocators::{Error, SvmGrain};
    ///
    /// let error = Error::svm_unsupported("my device", SvmGrain::Fine);
    /// assert_eq!(
    ///     error.to_string(),
    ///     "unsupported: my device has no fine-grained SVM: see `DeviceLimits::svm` for what it has"
    /// );
    /// assert!(!error.is_out_of_memory(), "freeing does not help");
    /// ```
    #[must_use]
    pub fn svm_unsupported(device_name: &str, grain: SvmGrain) -> Self {
        Self::unsupported(format!(
            "{device_name} has no {grain} SVM: see `DeviceLimits::svm` for what it has"
        ))
    }
}

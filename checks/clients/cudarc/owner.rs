//! Device memory that is managed elsewhere: by an arena, a caching allocator, or another library.

use std::{
    any::Any,
    boxed::Box,
    collections::BTreeMap,
    fmt,
    marker::PhantomData,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    vec::Vec,
};

use super::core::{CudaContext, CudaEvent, CudaSlice, CudaStream, DeviceRepr};
use crate::driver::{
    result::{self, DriverError},
    sys,
};

/// What keeps memory allocated: dropping it frees the memory, for whatever is given to the stream of its slice from then on.
///
/// A [CudaSlice] drops it after its stream was made to wait for the uses of the slice on other streams.
pub type MemoryOwner = Box<dyn Any + Send + Sync>;

/// An allocator of device memory, which is asked for the memory of every [CudaSlice] once it is [set](set_device_allocator).
pub trait DeviceAllocator: Send + Sync {
    /// Returns what allocates for `stream`, or `None` to leave its slices to the driver. Asked once for each value of [CudaStream],
    /// which drops the answer before its stream is destroyed; that must not keep the value of [CudaStream] itself.
    fn for_stream(&self, stream: &CudaStream) -> Option<Box<dyn StreamAllocator>>;
}

/// Allocates memory for one stream, on any thread.
pub trait StreamAllocator: Send + Sync {
    /// Allocates `num_bytes` bytes for what is given to the stream from now on. The memory's former uses come before that.
    fn alloc(&self, num_bytes: usize) -> Result<(sys::CUdeviceptr, MemoryOwner), DriverError>;
}

static ALLOCATOR: OnceLock<Box<dyn DeviceAllocator>> = OnceLock::new();

/// Sets the allocator of the process, which allocates the memory of every [CudaSlice] from now on. It can be set once; later
/// allocators are returned as the error.
pub fn set_device_allocator(
    allocator: Box<dyn DeviceAllocator>,
) -> Result<(), Box<dyn DeviceAllocator>> {
    ALLOCATOR.set(allocator)
}

/// Who frees the memory of a [CudaSlice].
#[derive(Default)]
pub(crate) enum Owner {
    /// The driver, which has allocated it.
    #[default]
    Driver,
    Elsewhere(MemoryOwner),
    /// The owner of the address.
    Leaked,
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Driver => "Driver",
            Self::Elsewhere(_) => "Elsewhere",
            Self::Leaked => "Leaked",
        })
    }
}

/// The allocator of a stream, once a slice was allocated.
#[derive(Default)]
pub(crate) struct AllocatorOfStream(OnceLock<Option<Box<dyn StreamAllocator>>>);

impl fmt::Debug for AllocatorOfStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AllocatorOfStream")
    }
}

impl CudaStream {
    fn allocator(&self) -> Option<&dyn StreamAllocator> {
        let allocator = ALLOCATOR.get()?;
        let of_stream = self.allocator.0.get_or_init(|| allocator.for_stream(self));
        of_stream.as_deref()
    }

    /// Ends the use of the stream by its allocator.
    pub(crate) fn drop_allocator(&mut self) {
        drop(self.allocator.0.take());
    }

    /// Allocates a slice by the allocator of the stream, where there is one.
    pub(crate) fn alloc_elsewhere<T: DeviceRepr>(
        self: &Arc<Self>,
        len: usize,
    ) -> Result<Option<CudaSlice<T>>, DriverError> {
        let Some(allocator) = self.allocator() else {
            return Ok(None);
        };
        self.ctx.bind_to_thread()?;
        let num_bytes = len.checked_mul(std::mem::size_of::<T>());
        let num_bytes = num_bytes.ok_or(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY))?;
        let (cu_device_ptr, owner) = allocator.alloc(num_bytes)?;
        // SAFETY: the allocator's memory has that many bytes, and is the owner's.
        Ok(Some(unsafe {
            self.slice_of_owner(cu_device_ptr, len, owner)
        }))
    }

    /// Makes a [CudaSlice] of memory that `owner` keeps allocated, and frees when the slice drops it.
    ///
    /// # Safety
    /// - `cu_device_ptr` must have space for `len * std::mem::size_of::<T>()` bytes until `owner` is dropped.
    /// - What uses the memory otherwise must come before what is given to this stream from now on.
    /// - The memory may not be valid for type `T`, so some sort of memset operation should be called on the memory.
    pub unsafe fn slice_of_owner<T>(
        self: &Arc<Self>,
        cu_device_ptr: sys::CUdeviceptr,
        len: usize,
        owner: MemoryOwner,
    ) -> CudaSlice<T> {
        let is_tracking = self.ctx.is_event_tracking();
        CudaSlice {
            cu_device_ptr,
            len,
            read: is_tracking.then(|| CudaEvent::of_reads(&self.ctx)),
            write: is_tracking.then(|| CudaEvent::of_writes(self)),
            stream: self.clone(),
            owner: Owner::Elsewhere(owner),
            marker: PhantomData,
        }
    }
}

impl<T> CudaSlice<T> {
    /// Gives the memory back, unless it is the driver's.
    pub(crate) fn free_elsewhere(&mut self) -> bool {
        match std::mem::take(&mut self.owner) {
            Owner::Driver => return false,
            Owner::Elsewhere(owner) => {
                self.wait_for_uses();
                drop(owner);
            }
            Owner::Leaked => self.wait_for_uses(),
        }
        true
    }

    /// Makes the stream of the slice wait for its uses on other streams, also if these are destroyed by now.
    fn wait_for_uses(&self) {
        for event in [&self.read, &self.write].into_iter().flatten() {
            self.stream.ctx.record_err(self.stream.wait(event));
        }
    }

    /// Leaves the memory to the holder of its address.
    pub(crate) fn leak_memory(&mut self) -> sys::CUdeviceptr {
        let owner = std::mem::replace(&mut self.owner, Owner::Leaked);
        if let Owner::Elsewhere(owner) = owner {
            leaked().insert(self.cu_device_ptr, (owner, self.stream.clone()));
        }
        self.cu_device_ptr
    }
}

/// The owners of leaked memory by its address, with the streams of their slices: a slice that is made of the address has the owner again.
static LEAKED: Mutex<BTreeMap<sys::CUdeviceptr, (MemoryOwner, Arc<CudaStream>)>> =
    Mutex::new(BTreeMap::new());

fn leaked() -> MutexGuard<'static, BTreeMap<sys::CUdeviceptr, (MemoryOwner, Arc<CudaStream>)>> {
    LEAKED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The owner of memory that a slice has leaked, for a slice of `stream` at the same address.
pub(crate) fn owner_of_leaked(cu_device_ptr: sys::CUdeviceptr, stream: &Arc<CudaStream>) -> Owner {
    let leaked = leaked().remove(&cu_device_ptr);
    leaked.map_or(Owner::Driver, |(owner, allocated_for)| {
        let used_by = stream.clone();
        Owner::Elsewhere(Box::new(UpgradedOwner { owner: Some(owner), allocated_for, used_by }))
    })
}

/// The owner of memory that was leaked by a slice of one stream, and is used by a slice of another.
struct UpgradedOwner {
    owner: Option<MemoryOwner>,
    allocated_for: Arc<CudaStream>,
    used_by: Arc<CudaStream>,
}

impl Drop for UpgradedOwner {
    fn drop(&mut self) {
        if self.allocated_for != self.used_by {
            let joined = self.allocated_for.join(&self.used_by);
            self.used_by.ctx.record_err(joined);
        }
        self.owner = None;
    }
}

/// The driver's events of a [CudaEvent].
#[derive(Debug)]
pub(crate) enum EventHandle {
    Driver(sys::CUevent),
    /// One of the two events of a slice, which stands for its uses on all streams. The driver's are made when a use is first recorded.
    OfSlice {
        /// The streams that it was recorded on, each with an event.
        recorded: Mutex<Vec<(sys::CUstream, sys::CUevent)>>,
        /// The stream of the slice, where the first use on another has to come after the former uses of the memory.
        first_after: Option<sys::CUstream>,
    },
}

impl CudaEvent {
    /// The event of the reads of a slice.
    fn of_reads(ctx: &Arc<CudaContext>) -> Self {
        let recorded = Mutex::default();
        Self {
            cu_event: EventHandle::OfSlice { recorded, first_after: None },
            ctx: Arc::clone(ctx),
        }
    }

    /// The event of the writes of a slice of `stream`, which lives as long as the slice.
    fn of_writes(stream: &CudaStream) -> Self {
        // What was allocated before the context had several streams comes before everything on those that it got since.
        let has_several = stream.ctx.is_managing_stream_synchronization();
        let (recorded, first_after) = (Mutex::default(), has_several.then_some(stream.cu_stream));
        Self {
            cu_event: EventHandle::OfSlice { recorded, first_after },
            ctx: Arc::clone(&stream.ctx),
        }
    }

    /// The driver's event; that of the last stream for a slice, and a null pointer where it was never recorded.
    pub(crate) fn handle(&self) -> sys::CUevent {
        match &self.cu_event {
            EventHandle::Driver(cu_event) => *cu_event,
            EventHandle::OfSlice { recorded, .. } => {
                let recorded = recorded.lock().unwrap_or_else(PoisonError::into_inner);
                recorded.last().map_or(std::ptr::null_mut(), |&(_, cu_event)| cu_event)
            }
        }
    }

    /// Records the event on a stream.
    pub(crate) unsafe fn record_on(&self, stream: &CudaStream) -> Result<(), DriverError> {
        match &self.cu_event {
            EventHandle::Driver(cu_event) => result::event::record(*cu_event, stream.cu_stream),
            EventHandle::OfSlice { recorded, .. } => {
                let mut recorded = recorded.lock().unwrap_or_else(PoisonError::into_inner);
                record_among(&mut recorded, stream.cu_stream)
            }
        }
    }

    /// Makes `stream` wait for the uses of a slice on other streams. Returns `false` for an event of something else.
    pub(crate) fn wait_for_slice(&self, stream: &CudaStream) -> Result<bool, DriverError> {
        let EventHandle::OfSlice { recorded, first_after } = &self.cu_event else {
            return Ok(false);
        };
        let mut recorded = recorded.lock().unwrap_or_else(PoisonError::into_inner);
        if let (true, Some(of_slice)) = (recorded.is_empty(), *first_after) {
            if of_slice != stream.cu_stream {
                stream.ctx.bind_to_thread()?;
                // SAFETY: the stream lives as long as the slice, whose event this is.
                unsafe { record_among(&mut recorded, of_slice) }?;
            }
        }
        for &(_, cu_event) in recorded.iter().filter(|(on, _)| *on != stream.cu_stream) {
            stream.ctx.bind_to_thread()?;
            let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
            // SAFETY: the event is destroyed with this, and the stream lives.
            unsafe { result::stream::wait_event(stream.cu_stream, cu_event, flags) }?;
        }
        Ok(true)
    }

    /// Destroys the events of a slice. Returns `false` for an event of something else.
    pub(crate) fn destroy_of_slice(&mut self) -> bool {
        let EventHandle::OfSlice { recorded, .. } = &mut self.cu_event else {
            return false;
        };
        for (_, cu_event) in recorded.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            self.ctx.record_err(self.ctx.bind_to_thread());
            // SAFETY: nothing knows the event any more.
            self.ctx.record_err(unsafe { result::event::destroy(cu_event) });
        }
        true
    }
}

/// Records the event of a stream, which is made if there is none.
///
/// # Safety
/// The stream must live, and its context must be current.
unsafe fn record_among(
    recorded: &mut Vec<(sys::CUstream, sys::CUevent)>,
    stream: sys::CUstream,
) -> Result<(), DriverError> {
    let of_stream = recorded.iter().find(|(on, _)| *on == stream);
    if let Some(&(_, cu_event)) = of_stream {
        return result::event::record(cu_event, stream);
    }
    let cu_event = result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)?;
    recorded.push((stream, cu_event));
    result::event::record(cu_event, stream)
}

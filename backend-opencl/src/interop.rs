//! Objects of the program's own, by their bare handles.

use std::{ffi::c_void, ptr};

use binpool_allocators::{InvalidRequest, ObjectKind, Result};

use crate::{
    backend::OpenClBackend,
    device::info::{DeviceInfo, check_library},
    error::OpenClError,
    event::ClEvent,
    queue::ClQueue,
    sys::{self, ContextHandle, EventHandle, Purpose, QueueHandle},
};

/// Objects of the program's own, by their bare handles: what `opencl3` calls `get()`, and `PyOpenCL` `int_ptr`.
///
/// Each is retained: the program keeps its own reference, and may drop it without harm to this crate's values. Do not turn
/// an `opencl3` object into its handle with `.into()` to pass it here: that releases it.
impl OpenClBackend {
    /// Returns the backend of a context and a device by their bare handles.
    ///
    /// ```
    /// use binpool::{ImmediateAllocator, MemoryPool};
    /// use binpool_opencl::{OpenClBackend, OpenClError};
    ///
    /// # use opencl3::{command_queue::CommandQueue, context::Context, device::Device};
    /// # let own_device = Device::new(OpenClBackend::open(&"any".parse()?)?.raw_device());
    /// # let own_context = Context::from_device(&own_device)?;
    /// # // SAFETY: the device is the context's.
    /// # let own_queue = unsafe { CommandQueue::create(&own_context, own_device.id(), 0) }?;
    /// // What any binding can hand over: pointers.
    /// let (context, device, queue) = (own_context.get(), own_device.id(), own_queue.get());
    ///
    /// // SAFETY: the context lives.
    /// let backend = unsafe { OpenClBackend::from_raw(context, device) }?;
    /// // SAFETY: the queue lives.
    /// let queue = unsafe { backend.wrap_raw_queue(queue) }?;
    /// let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// let block = pool.allocate(64)?;
    /// block.write(&queue, 0, &[7_u8; 64])?;
    ///
    /// // The device is looked up among those of the context, so that a stray pointer does no harm.
    /// // SAFETY: the context lives. The device may be anything.
    /// let refused = unsafe { OpenClBackend::from_raw(context, context) };
    /// assert!(matches!(refused, Err(OpenClError::NotInContext)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`NotInContext`](OpenClError::NotInContext) if the device is not the context's;
    /// [`TooOld`](OpenClError::TooOld); or a failure of the runtime.
    ///
    /// # Safety
    ///
    /// `context` is null or a live `cl_context`. It is retained.
    pub unsafe fn from_raw(context: *mut c_void, device: *mut c_void) -> Result<Self, OpenClError> {
        check_library()?;
        // SAFETY: The context is null or alive, as the caller promises.
        let context = unsafe { ContextHandle::retain(context) }?;
        // Looked up among the devices of the context, so that a stray pointer is never passed to the runtime.
        let mut devices = sys::context_devices(&context)?.into_iter();
        let device = devices.find(|own| own.raw() == device);
        let info = DeviceInfo::query(0, device.ok_or(OpenClError::NotInContext)?)?;
        Self::with_context(context, &info)
    }

    /// Makes a backend of the context and device of a queue of the program's own, and wraps the queue:
    /// [`from_raw`](Self::from_raw) and [`wrap_raw_queue`](Self::wrap_raw_queue) in one call.
    ///
    /// ```
    /// # use binpool_opencl::OpenClBackend;
    /// # use opencl3::{command_queue::CommandQueue, context::Context, device::Device};
    /// use binpool::{ImmediateAllocator, MemoryPool};
    ///
    /// # let device = Device::new(OpenClBackend::open(&"any".parse()?)?.raw_device());
    /// # let context = Context::from_device(&device)?;
    /// # // SAFETY: the device is the context's.
    /// # let theirs = unsafe { CommandQueue::create(&context, device.id(), 0) }?;
    /// // SAFETY: the queue lives.
    /// let (backend, queue) = unsafe { OpenClBackend::from_raw_queue(theirs.get()) }?;
    /// let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// # assert_eq!(queue.raw(), theirs.get());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`TooOld`](OpenClError::TooOld), or a failure of the runtime.
    ///
    /// # Safety
    ///
    /// `queue` is null or a live `cl_command_queue` of the host. It is retained.
    pub unsafe fn from_raw_queue(queue: *mut c_void) -> Result<(Self, ClQueue), OpenClError> {
        check_library()?;
        // SAFETY: The queue is null or alive, as the caller promises.
        let handle = unsafe { QueueHandle::retain(queue) }?;
        let info = sys::queue_info(&handle)?;
        let [context, device] = [info.context, info.device].map(ptr::without_provenance_mut);
        // SAFETY: A queue keeps its context alive.
        let backend = unsafe { Self::from_raw(context, device) }?;
        let queue = ClQueue::adopt(backend.context(), handle)?;
        Ok((backend, queue))
    }

    /// Returns a queue of the program's own, by its bare handle, as a queue of this backend. Wrapping it again gives an equal value,
    /// as long as one lives.
    ///
    /// # Errors
    ///
    /// [`ForeignObject`](InvalidRequest::ForeignObject) for a queue of another context or device.
    ///
    /// # Safety
    ///
    /// `queue` is null or a live `cl_command_queue` of the host. It is retained.
    pub unsafe fn wrap_raw_queue(&self, queue: *mut c_void) -> Result<ClQueue> {
        // SAFETY: The queue is null or alive, as the caller promises.
        let handle = unsafe { QueueHandle::retain(queue) }?;
        let info = sys::queue_info(&handle)?;
        if info.context != self.raw_context().addr() || info.device != self.raw_device().addr() {
            let kind = ObjectKind::Queue;
            return Err(InvalidRequest::ForeignObject { kind }.into());
        }
        ClQueue::adopt(self.context(), handle).map_err(Into::into)
    }

    /// Returns an event of the program's own, for example of a kernel, by its bare handle, as an event of this backend.
    ///
    /// Each call gives an event with an identity of its own; clone the value instead of wrapping twice.
    ///
    /// ```
    /// use std::slice::from_ref;
    ///
    /// # use binpool_allocators::{Backend, Event, MemoryFlags, Queue, QueueOrder};
    /// # use binpool_opencl::OpenClBackend;
    /// # use opencl3::{command_queue::CommandQueue, context::Context, device::Device};
    /// # let device = Device::new(OpenClBackend::open(&"any".parse()?)?.raw_device());
    /// # let context = Context::from_device(&device)?;
    /// # // SAFETY: the context is one that `opencl3` has made.
    /// # let backend = unsafe { OpenClBackend::from_raw(context.get(), device.id()) }?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let memory = backend.create_buffer(64, MemoryFlags::empty())?;
    /// # // SAFETY: the device is the context's.
    /// # let own_queue = unsafe { CommandQueue::create(&context, device.id(), 0) }?;
    /// // A command of the program's own, and one of this crate after it.
    /// // SAFETY: nothing is waited for.
    /// let own = unsafe { own_queue.enqueue_marker_with_wait_list(&[]) }?;
    /// // SAFETY: the event lives.
    /// let done = unsafe { backend.wrap_raw_event(own.get()) }?;
    /// drop(own); // It was retained.
    /// backend.write(queue.after(from_ref(&done)), &memory, 0, &[7_u8; 64])?;
    /// // SAFETY: as above.
    /// assert_ne!(unsafe { backend.wrap_raw_event(done.raw()) }?.id(), done.id());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ForeignObject`](InvalidRequest::ForeignObject) for an event of another context.
    ///
    /// # Safety
    ///
    /// `event` is null or a live `cl_event`. It is retained.
    ///
    /// ```compile_fail,E0133
    /// # use binpool_opencl::{DeviceSelector, OpenClBackend};
    /// # let backend = OpenClBackend::open(&DeviceSelector::Any).unwrap();
    /// // A pointer to nothing as an event.
    /// let wrapped = backend.wrap_raw_event(std::ptr::without_provenance_mut(0x1000));
    /// ```
    pub unsafe fn wrap_raw_event(&self, event: *mut c_void) -> Result<ClEvent> {
        // SAFETY: The event is null or alive, as the caller promises.
        let handle = unsafe { EventHandle::retain(event) }?;
        let (context, queue) = sys::event_queue(&handle)?;
        self.check_context(context, ObjectKind::Event)?;
        Ok(match queue {
            Some(queue) => {
                let queue = ClQueue::adopt(self.context(), queue)?;
                ClEvent::command(&queue, handle, Purpose::Control)
            }
            None => ClEvent::user(self.context(), handle, false),
        })
    }
}

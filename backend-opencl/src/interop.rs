//! The edge: objects that the program made with `opencl3`, or has by their bare handles.

use std::ffi::c_void;

use binpool_allocators::{InvalidRequest, ObjectKind, Result};

use crate::{
    backend::OpenClBackend,
    cl_error::Purpose,
    device::info::{DeviceInfo, check_library},
    error::OpenClError,
    event::ClEvent,
    queue::ClQueue,
    sys::{self, ContextHandle, DeviceId, EventHandle, QueueHandle},
};

/// Objects of the program's own.
///
/// Each is retained: it stays whole for the program, and this crate's values stay whole when the program drops
/// its own. Do not turn an `opencl3` object into its handle with `.into()` to pass it here: that releases it.
impl OpenClBackend {
    /// The backend of the first device of a context of the program's own.
    ///
    /// ```
    /// use binpool_opencl::OpenClBackend;
    /// use opencl3::{command_queue::CommandQueue, context::Context, device::Device};
    ///
    /// # let device = Device::new(OpenClBackend::open(&"any".parse()?)?.raw_device());
    /// // The program as it was.
    /// let context = Context::from_device(&device)?;
    /// // SAFETY: the device is the context's.
    /// let queue = unsafe { CommandQueue::create(&context, device.id(), 0) }?;
    ///
    /// let backend = OpenClBackend::from_context(&context)?;
    /// assert_eq!(backend.raw_context(), context.get());
    /// let wrapped = backend.wrap_queue(&queue)?;
    /// assert_eq!(wrapped.raw(), queue.get()); // The same queue, by another name.
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`NotInContext`](OpenClError::NotInContext) for a context without devices;
    /// [`TooOld`](OpenClError::TooOld); or a failure of the runtime.
    pub fn from_context(context: &opencl3::context::Context) -> Result<Self, OpenClError> {
        let context = sys::retain_context_of(context)?;
        let devices = sys::context_devices(&context)?;
        let device = devices.first().ok_or(OpenClError::NotInContext)?;
        Self::of_device(context, *device)
    }

    /// The backend of one device of a context of the program's own.
    ///
    /// ```
    /// # use binpool_opencl::{OpenClBackend, OpenClError};
    /// # use opencl3::{context::Context, device::Device};
    /// # let device = Device::new(OpenClBackend::open(&"any".parse()?)?.raw_device());
    /// # let context = Context::from_device(&device)?;
    /// let backend = OpenClBackend::from_context_and_device(&context, &device)?;
    /// assert_eq!(backend.raw_device(), device.id());
    ///
    /// // The device is looked up among those of the context, so that a stray pointer does no harm.
    /// let stray = Device::new(context.get());
    /// let refused = OpenClBackend::from_context_and_device(&context, &stray);
    /// assert_eq!(refused.err(), Some(OpenClError::NotInContext));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`NotInContext`](OpenClError::NotInContext) where the device is not the context's;
    /// [`TooOld`](OpenClError::TooOld); or a failure of the runtime.
    pub fn from_context_and_device(
        context: &opencl3::context::Context,
        device: &opencl3::device::Device,
    ) -> Result<Self, OpenClError> {
        Self::of_handles(sys::retain_context_of(context)?, device.id())
    }

    /// The backend of a context and a device by their bare handles.
    ///
    /// ```
    /// use binpool::{ImmediateAllocator, MemoryPool};
    /// use binpool_opencl::OpenClBackend;
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
    /// block.write(&queue, 0, &[7; 64], &[])?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`from_context_and_device`](Self::from_context_and_device).
    ///
    /// # Safety
    ///
    /// `context` is null or a live `cl_context`. It is retained.
    #[allow(unsafe_code)]
    pub unsafe fn from_raw(context: *mut c_void, device: *mut c_void) -> Result<Self, OpenClError> {
        check_library()?;
        // SAFETY: The context is null or lives, as the caller promises.
        Self::of_handles(unsafe { ContextHandle::retain(context) }?, device)
    }

    /// Looks `device` up among the devices of the context, so that a stray pointer is never asked anything.
    fn of_handles(context: ContextHandle, device: *mut c_void) -> Result<Self, OpenClError> {
        let devices = sys::context_devices(&context)?;
        let device = devices
            .into_iter()
            .find(|own| own.raw() == device)
            .ok_or(OpenClError::NotInContext)?;
        Self::of_device(context, device)
    }

    fn of_device(context: ContextHandle, device: DeviceId) -> Result<Self, OpenClError> {
        let info = DeviceInfo::query(0, device)?;
        Self::with_context(context, &info)
    }

    /// The queue of the program's own, as a queue of this backend. Wrapping it again gives an equal value, as
    /// long as one lives.
    ///
    /// # Errors
    ///
    /// [`ForeignObject`](InvalidRequest::ForeignObject) for a queue of another context or device.
    pub fn wrap_queue(&self, queue: &opencl3::command_queue::CommandQueue) -> Result<ClQueue> {
        let handle = sys::retain_queue_of(queue);
        self.adopt_queue(handle.map_err(|error| error.into_error(Purpose::Control))?)
    }

    /// The same, by its bare handle.
    ///
    /// # Errors
    ///
    /// As [`wrap_queue`](Self::wrap_queue).
    ///
    /// # Safety
    ///
    /// `queue` is null or a live `cl_command_queue` of the host. It is retained.
    #[allow(unsafe_code)]
    pub unsafe fn wrap_raw_queue(&self, queue: *mut c_void) -> Result<ClQueue> {
        // SAFETY: The queue is null or lives, as the caller promises.
        let handle = unsafe { QueueHandle::retain(queue) };
        self.adopt_queue(handle.map_err(|error| error.into_error(Purpose::Control))?)
    }

    fn adopt_queue(&self, handle: QueueHandle) -> Result<ClQueue> {
        let info = sys::queue_info(&handle).map_err(|error| error.into_error(Purpose::Control))?;
        if info.context != self.raw_context().addr() || info.device != self.raw_device().addr() {
            let kind = ObjectKind::Queue;
            return Err(InvalidRequest::ForeignObject { kind }.into());
        }
        ClQueue::adopt(self.context(), handle).map_err(|error| error.into_error(Purpose::Control))
    }

    /// The event of the program's own, a kernel's for one, as an event of this backend.
    ///
    /// Each call gives an event with an identity of its own; clone the value instead of wrapping twice.
    ///
    /// ```
    /// use std::slice::from_ref;
    ///
    /// # use binpool_allocators::{Backend, Event, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::OpenClBackend;
    /// # use opencl3::{command_queue::CommandQueue, context::Context, device::Device};
    /// # let device = Device::new(OpenClBackend::open(&"any".parse()?)?.raw_device());
    /// # let context = Context::from_device(&device)?;
    /// # let backend = OpenClBackend::from_context(&context)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let memory = backend.create_buffer(64, MemoryFlags::empty())?;
    /// # // SAFETY: the device is the context's.
    /// # let own_queue = unsafe { CommandQueue::create(&context, device.id(), 0) }?;
    /// // A command of the program's own, and one of this crate behind it.
    /// // SAFETY: nothing is waited for.
    /// let own = unsafe { own_queue.enqueue_marker_with_wait_list(&[]) }?;
    /// let done = backend.wrap_event(&own)?;
    /// backend.write(&queue, &memory, 0, &[7; 64], from_ref(&done))?;
    /// assert_ne!(backend.wrap_event(&own)?.id(), done.id());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ForeignObject`](InvalidRequest::ForeignObject) for an event of another context.
    pub fn wrap_event(&self, event: &opencl3::event::Event) -> Result<ClEvent> {
        let handle = sys::retain_event_of(event);
        self.adopt_event(handle.map_err(|error| error.into_error(Purpose::Control))?)
    }

    /// The same, by its bare handle.
    ///
    /// ```
    /// # use binpool_allocators::{Event, EventStatus};
    /// # use binpool_opencl::OpenClBackend;
    /// # use opencl3::{command_queue::CommandQueue, context::Context, device::Device};
    /// # let device = Device::new(OpenClBackend::open(&"any".parse()?)?.raw_device());
    /// # let context = Context::from_device(&device)?;
    /// # // SAFETY: the device is the context's.
    /// # let queue = unsafe { CommandQueue::create(&context, device.id(), 0) }?;
    /// # let backend = OpenClBackend::from_context(&context)?;
    /// // SAFETY: nothing is waited for.
    /// let marker = unsafe { queue.enqueue_marker_with_wait_list(&[]) }?;
    /// // SAFETY: the event lives.
    /// let event = unsafe { backend.wrap_raw_event(marker.get()) }?;
    /// drop(marker); // It was retained.
    /// event.wait()?;
    /// assert_eq!(event.status()?, EventStatus::Complete);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`wrap_event`](Self::wrap_event).
    ///
    /// # Safety
    ///
    /// `event` is null or a live `cl_event`. It is retained.
    #[allow(unsafe_code)]
    pub unsafe fn wrap_raw_event(&self, event: *mut c_void) -> Result<ClEvent> {
        // SAFETY: The event is null or lives, as the caller promises.
        let handle = unsafe { EventHandle::retain(event) };
        self.adopt_event(handle.map_err(|error| error.into_error(Purpose::Control))?)
    }

    fn adopt_event(&self, handle: EventHandle) -> Result<ClEvent> {
        let control = |error: crate::ClError| error.into_error(Purpose::Control);
        let (context, queue) = sys::event_queue(&handle).map_err(control)?;
        if context != self.raw_context().addr() {
            let kind = ObjectKind::Event;
            return Err(InvalidRequest::ForeignObject { kind }.into());
        }
        Ok(match queue {
            Some(queue) => {
                let queue = ClQueue::adopt(self.context(), queue).map_err(control)?;
                ClEvent::command(&queue, handle, Purpose::Control)
            }
            None => ClEvent::user(self.context(), handle, false),
        })
    }
}

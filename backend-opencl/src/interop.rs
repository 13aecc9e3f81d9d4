//! Objects that the program made with `opencl3`, or has by their bare handles.

use std::ffi::c_void;

use binpool_allocators::{InvalidRequest, ObjectKind, Result};

use crate::{
    backend::OpenClBackend,
    device::info::{DeviceInfo, check_library},
    error::OpenClError,
    event::ClEvent,
    queue::ClQueue,
    sys::{self, ContextHandle, DeviceId, EventHandle, Purpose, QueueHandle},
};

/// Objects of the program's own.
///
/// Each is retained: the program keeps its own reference, and may drop it without harm to this crate's values. Do not turn
/// an `opencl3` object into its handle with `.into()` to pass it here: that releases it.
///
/// All of these calls are unsafe, even those that take objects of `opencl3`: its safe constructors (`Context::new`,
/// `CommandQueue::new`, `Event::new`) make an object of any pointer, and no call of OpenCL can tell whether a pointer is a
/// handle.
impl OpenClBackend {
    /// Returns the backend of the first device of a context of the program's own.
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
    /// // SAFETY: the context is one that `opencl3` has made.
    /// let backend = unsafe { OpenClBackend::from_context(&context) }?;
    /// assert_eq!(backend.raw_context(), context.get());
    /// // SAFETY: the same goes for the queue.
    /// let wrapped = unsafe { backend.wrap_queue(&queue) }?;
    /// assert_eq!(wrapped.raw(), queue.get()); // The same queue, by another name.
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`NotInContext`](OpenClError::NotInContext) for a context without devices;
    /// [`TooOld`](OpenClError::TooOld); or a failure of the runtime.
    ///
    /// # Safety
    ///
    /// The `cl_context` in `context` lives, as it does in each one that `opencl3` has made by a call of OpenCL.
    pub unsafe fn from_context(context: &opencl3::context::Context) -> Result<Self, OpenClError> {
        // SAFETY: The context is alive, as the caller promises.
        let context = unsafe { ContextHandle::retain(context.get()) }?;
        let devices = sys::context_devices(&context)?;
        let device = devices.first().ok_or(OpenClError::NotInContext)?;
        Self::of_device(context, *device)
    }

    /// Returns the backend of one device of a context of the program's own.
    ///
    /// ```
    /// # use binpool_opencl::{OpenClBackend, OpenClError};
    /// # use opencl3::{context::Context, device::Device};
    /// # let device = Device::new(OpenClBackend::open(&"any".parse()?)?.raw_device());
    /// # let context = Context::from_device(&device)?;
    /// // SAFETY: the context is one that `opencl3` has made.
    /// let backend = unsafe { OpenClBackend::from_context_and_device(&context, &device) }?;
    /// assert_eq!(backend.raw_device(), device.id());
    ///
    /// // The device is looked up among those of the context, so that a stray pointer does no harm.
    /// let stray = Device::new(context.get());
    /// // SAFETY: as above. The device may be anything.
    /// let refused = unsafe { OpenClBackend::from_context_and_device(&context, &stray) };
    /// assert!(matches!(refused, Err(OpenClError::NotInContext)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`NotInContext`](OpenClError::NotInContext) where the device is not the context's;
    /// [`TooOld`](OpenClError::TooOld); or a failure of the runtime.
    ///
    /// # Safety
    ///
    /// The `cl_context` in `context` lives, as it does in each one that `opencl3` has made by a call of OpenCL.
    pub unsafe fn from_context_and_device(
        context: &opencl3::context::Context,
        device: &opencl3::device::Device,
    ) -> Result<Self, OpenClError> {
        // SAFETY: The context is alive, as the caller promises.
        unsafe { Self::from_raw(context.get(), device.id()) }
    }

    /// Returns the backend of a context and a device by their bare handles.
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
    /// block.write(&queue, 0, &[7_u8; 64])?;
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
    pub unsafe fn from_raw(context: *mut c_void, device: *mut c_void) -> Result<Self, OpenClError> {
        check_library()?;
        // SAFETY: The context is null or alive, as the caller promises.
        Self::of_handles(unsafe { ContextHandle::retain(context) }?, device)
    }

    /// Looks `device` up among the devices of the context, so that a stray pointer is never passed to the runtime.
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

    /// Returns a queue of the program's own as a queue of this backend. Wrapping it again gives an equal value, as long as
    /// one lives.
    ///
    /// # Errors
    ///
    /// [`ForeignObject`](InvalidRequest::ForeignObject) for a queue of another context or device.
    ///
    /// # Safety
    ///
    /// The `cl_command_queue` in `queue` lives and is one of the host, as it is in each one that `opencl3` has made by a
    /// call of OpenCL for the host.
    pub unsafe fn wrap_queue(
        &self,
        queue: &opencl3::command_queue::CommandQueue,
    ) -> Result<ClQueue> {
        // SAFETY: The queue is alive, as the caller promises.
        unsafe { self.wrap_raw_queue(queue.get()) }
    }

    /// Returns a queue of the program's own, by its bare handle, as a queue of this backend.
    ///
    /// # Errors
    ///
    /// As [`wrap_queue`](Self::wrap_queue).
    ///
    /// # Safety
    ///
    /// `queue` is null or a live `cl_command_queue` of the host. It is retained.
    pub unsafe fn wrap_raw_queue(&self, queue: *mut c_void) -> Result<ClQueue> {
        // SAFETY: The queue is null or alive, as the caller promises.
        let handle = unsafe { QueueHandle::retain(queue) };
        self.adopt_queue(handle?)
    }

    fn adopt_queue(&self, handle: QueueHandle) -> Result<ClQueue> {
        let info = sys::queue_info(&handle)?;
        if info.context != self.raw_context().addr() || info.device != self.raw_device().addr() {
            let kind = ObjectKind::Queue;
            return Err(InvalidRequest::ForeignObject { kind }.into());
        }
        ClQueue::adopt(self.context(), handle).map_err(Into::into)
    }

    /// Returns an event of the program's own, for example of a kernel, as an event of this backend.
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
    /// # let backend = unsafe { OpenClBackend::from_context(&context) }?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let memory = backend.create_buffer(64, MemoryFlags::empty())?;
    /// # // SAFETY: the device is the context's.
    /// # let own_queue = unsafe { CommandQueue::create(&context, device.id(), 0) }?;
    /// // A command of the program's own, and one of this crate behind it.
    /// // SAFETY: nothing is waited for.
    /// let own = unsafe { own_queue.enqueue_marker_with_wait_list(&[]) }?;
    /// // SAFETY: the event is one that `opencl3` has made.
    /// let done = unsafe { backend.wrap_event(&own) }?;
    /// backend.write(queue.after(from_ref(&done)), &memory, 0, &[7_u8; 64])?;
    /// // SAFETY: as above.
    /// assert_ne!(unsafe { backend.wrap_event(&own) }?.id(), done.id());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ForeignObject`](InvalidRequest::ForeignObject) for an event of another context.
    ///
    /// # Safety
    ///
    /// The `cl_event` in `event` lives, as it does in each one that `opencl3` has made by a call of OpenCL.
    ///
    /// ```compile_fail,E0133
    /// # use binpool_opencl::{DeviceSelector, OpenClBackend};
    /// # let backend = OpenClBackend::open(&DeviceSelector::Any).unwrap();
    /// // Safe in `opencl3`: a pointer to nothing as an event.
    /// let event = opencl3::event::Event::new(std::ptr::without_provenance_mut(0x1000));
    /// let wrapped = backend.wrap_event(&event);
    /// ```
    pub unsafe fn wrap_event(&self, event: &opencl3::event::Event) -> Result<ClEvent> {
        // SAFETY: The event is alive, as the caller promises.
        unsafe { self.wrap_raw_event(event.get()) }
    }

    /// Returns an event of the program's own, by its bare handle, as an event of this backend.
    ///
    /// ```
    /// # use binpool_allocators::{Event, EventStatus};
    /// # use binpool_opencl::OpenClBackend;
    /// # use opencl3::{command_queue::CommandQueue, context::Context, device::Device};
    /// # let device = Device::new(OpenClBackend::open(&"any".parse()?)?.raw_device());
    /// # let context = Context::from_device(&device)?;
    /// # // SAFETY: the device is the context's.
    /// # let queue = unsafe { CommandQueue::create(&context, device.id(), 0) }?;
    /// # // SAFETY: the context is one that `opencl3` has made.
    /// # let backend = unsafe { OpenClBackend::from_context(&context) }?;
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
    pub unsafe fn wrap_raw_event(&self, event: *mut c_void) -> Result<ClEvent> {
        // SAFETY: The event is null or alive, as the caller promises.
        let handle = unsafe { EventHandle::retain(event) };
        self.adopt_event(handle?)
    }

    fn adopt_event(&self, handle: EventHandle) -> Result<ClEvent> {
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

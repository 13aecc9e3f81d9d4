//! Objects that the program made with `opencl3`.

#![expect(unsafe_code, reason = "the program promises that handles live")]

use binpool_allocators::Result;
use opencl3::{command_queue::CommandQueue, context::Context, device::Device, event::Event};

use crate::{ClEvent, ClQueue, OpenClBackend, OpenClError};

/// Objects that the program made with [`opencl3`], whose version is part of this interface. Each is retained.
///
/// The calls are unsafe since safe constructors of `opencl3` (`Context::new`, `CommandQueue::new`, `Event::new`) make an object of any
/// pointer, and no call of OpenCL can tell whether a pointer is a handle.
impl OpenClBackend {
    /// Returns the backend of one device of a context of the program's own.
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
    /// let backend = unsafe { OpenClBackend::from_context(&context, &device) }?;
    /// // SAFETY: the same goes for the queue.
    /// let wrapped = unsafe { backend.wrap_queue(&queue) }?;
    /// assert_eq!(wrapped.raw(), queue.get()); // The same queue, by another name.
    /// // SAFETY: nothing is waited for.
    /// let own = unsafe { queue.enqueue_marker_with_wait_list(&[]) }?;
    /// // SAFETY: the event is one that `opencl3` has made.
    /// unsafe { backend.wrap_event(&own) }?.wait()?;
    /// # use binpool_allocators::Event as _;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`from_raw`](Self::from_raw).
    ///
    /// # Safety
    ///
    /// The `cl_context` in `context` lives, as it does in each one that `opencl3` has made by a call of OpenCL.
    pub unsafe fn from_context(
        context: &Context,
        device: &Device,
    ) -> std::result::Result<Self, OpenClError> {
        // SAFETY: the context is alive, as the caller promises.
        unsafe { Self::from_raw(context.get(), device.id()) }
    }

    /// Returns a queue of the program's own as a queue of this backend. Wrapping it again gives an equal value, as long as
    /// one lives.
    ///
    /// # Errors
    ///
    /// As [`wrap_raw_queue`](Self::wrap_raw_queue).
    ///
    /// # Safety
    ///
    /// The `cl_command_queue` in `queue` lives and is one of the host, as it is in each one that `opencl3` has made by a
    /// call of OpenCL for the host.
    pub unsafe fn wrap_queue(&self, queue: &CommandQueue) -> Result<ClQueue> {
        // SAFETY: the queue is alive, as the caller promises.
        unsafe { self.wrap_raw_queue(queue.get()) }
    }

    /// Returns an event of the program's own, for example of a kernel, as an event of this backend.
    ///
    /// # Errors
    ///
    /// As [`wrap_raw_event`](Self::wrap_raw_event).
    ///
    /// # Safety
    ///
    /// The `cl_event` in `event` lives, as it does in each one that `opencl3` has made by a call of OpenCL.
    pub unsafe fn wrap_event(&self, event: &Event) -> Result<ClEvent> {
        // SAFETY: the event is alive, as the caller promises.
        unsafe { self.wrap_raw_event(event.get()) }
    }
}

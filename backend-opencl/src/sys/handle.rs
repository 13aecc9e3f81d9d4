//! Handles that own one reference to an object of the runtime.

use std::{ffi::c_void, fmt, marker::PhantomData, ptr::NonNull};

use cl3::error_codes::{
    CL_INVALID_COMMAND_QUEUE, CL_INVALID_CONTEXT, CL_INVALID_EVENT, CL_INVALID_KERNEL,
    CL_INVALID_MEM_OBJECT, CL_INVALID_PROGRAM, CL_INVALID_SAMPLER,
};
use smallvec::SmallVec;

use super::{ClError, ClResult};

macro_rules! handle {
    (
        $(#[$doc:meta])* $name:ident,
        $release:path as $release_name:literal,
        null is $null:ident
    ) => {
        $(#[$doc])*
        pub(crate) struct $name(NonNull<c_void>);

        // SAFETY: The runtime's calls are thread safe (OpenCL 3.0, appendix A.2), except for setting the
        // arguments of one kernel, which takes an exclusive borrow of its handle.
        unsafe impl Send for $name {}
        // SAFETY: As for `Send`.
        unsafe impl Sync for $name {}

        impl $name {
            /// Takes a reference that `operation` has just returned.
            ///
            /// # Safety
            ///
            /// `raw` is null, or a live object of this kind, and the caller gives away one reference to it.
            pub(super) unsafe fn own(raw: *mut c_void, operation: &'static str) -> ClResult<Self> {
                NonNull::new(raw).map(Self).ok_or(ClError::new(operation, $null))
            }

            /// The handle, valid for as long as `self` is.
            pub(crate) const fn raw(&self) -> *mut c_void {
                self.0.as_ptr()
            }

            fn give_up(&mut self) -> ClResult<()> {
                // SAFETY: `self` owns a reference, which is released once: this runs either in `release`, which then
                // forgets `self`, or in `drop`.
                unsafe { $release(self.0.as_ptr()) }
                    .map_err(|code| ClError::new($release_name, code))
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                if let Err(error) = self.give_up() {
                    tracing::error!(%error, "the OpenCL runtime refused to take an object back");
                }
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:p})"), self.0)
            }
        }
    };
}

handle! {
    /// A context.
    ContextHandle,
    cl3::context::release_context as "clReleaseContext",
    null is CL_INVALID_CONTEXT
}
handle! {
    /// A command queue.
    QueueHandle,
    cl3::command_queue::release_command_queue as "clReleaseCommandQueue",
    null is CL_INVALID_COMMAND_QUEUE
}
handle! {
    /// A buffer, sub-buffer, image or pipe. The runtime keeps it for every command enqueued with it.
    MemHandle,
    cl3::memory::release_mem_object as "clReleaseMemObject",
    null is CL_INVALID_MEM_OBJECT
}
handle! {
    /// An event.
    EventHandle,
    cl3::event::release_event as "clReleaseEvent",
    null is CL_INVALID_EVENT
}
handle! {
    /// A program. The runtime keeps its context for it.
    ProgramHandle,
    cl3::program::release_program as "clReleaseProgram",
    null is CL_INVALID_PROGRAM
}
handle! {
    /// A kernel, and the arguments that were set last. The runtime keeps it for every command enqueued with it.
    KernelHandle,
    cl3::kernel::release_kernel as "clReleaseKernel",
    null is CL_INVALID_KERNEL
}
handle! {
    /// A sampler.
    SamplerHandle,
    cl3::sampler::release_sampler as "clReleaseSampler",
    null is CL_INVALID_SAMPLER
}

/// Further references to objects of a kind.
macro_rules! retain {
    ($name:ident, $retain:path as $retain_name:literal, null is $null:ident) => {
        impl $name {
            /// Takes a further reference to an object that has another owner.
            ///
            /// # Safety
            ///
            /// `raw` is null, or a live object of this kind.
            pub(crate) unsafe fn retain(raw: *mut c_void) -> ClResult<Self> {
                let Some(handle) = NonNull::new(raw) else {
                    return Err(ClError::new($retain_name, $null));
                };
                // SAFETY: The object lives, as the caller promises.
                unsafe { $retain(raw) }.map_err(|code| ClError::new($retain_name, code))?;
                Ok(Self(handle))
            }
        }
    };
}

retain!(ContextHandle, cl3::context::retain_context as "clRetainContext", null is CL_INVALID_CONTEXT);
retain!(
    QueueHandle,
    cl3::command_queue::retain_command_queue as "clRetainCommandQueue",
    null is CL_INVALID_COMMAND_QUEUE
);
retain!(EventHandle, cl3::event::retain_event as "clRetainEvent", null is CL_INVALID_EVENT);
retain!(
    MemHandle,
    cl3::memory::retain_mem_object as "clRetainMemObject",
    null is CL_INVALID_MEM_OBJECT
);
retain!(
    SamplerHandle,
    cl3::sampler::retain_sampler as "clRetainSampler",
    null is CL_INVALID_SAMPLER
);

macro_rules! another {
    ($($name:ident),*) => {$(
        impl $name {
            /// Takes another reference to the same object.
            pub(crate) fn another(&self) -> ClResult<Self> {
                // SAFETY: `self` owns a reference, so the object is alive.
                unsafe { Self::retain(self.raw()) }
            }
        }
    )*};
}

another!(ContextHandle, QueueHandle, EventHandle, MemHandle);

/// Takes references to objects of the program.
macro_rules! adopt {
    ($name:ident, $retain_name:literal) => {
        impl $name {
            /// Takes a reference to the program's object: a further one if `retain` is set, otherwise the caller's.
            ///
            /// # Safety
            ///
            /// `raw` is null, or a live object of this kind, and unless `retain` is set the caller gives away one reference
            /// to it.
            pub(crate) unsafe fn adopt(raw: *mut c_void, retain: bool) -> ClResult<Self> {
                if retain {
                    // SAFETY: The object lives, as the caller promises.
                    return unsafe { Self::retain(raw) };
                }
                // SAFETY: The object is alive, and the caller gives away this reference, as it promises.
                unsafe { Self::own(raw, $retain_name) }
            }
        }
    };
}

adopt!(MemHandle, "clRetainMemObject");
adopt!(SamplerHandle, "clRetainSampler");

impl MemHandle {
    /// Takes a reference that the program gives away.
    ///
    /// # Safety
    ///
    /// `raw` is null, or a live object of this kind, and the caller gives away one reference to it.
    pub(crate) unsafe fn take_over(raw: *mut c_void) -> ClResult<Self> {
        // SAFETY: The object is alive, and the caller gives away this reference, as it promises.
        unsafe { Self::own(raw, "clReleaseMemObject") }
    }

    /// Releases the reference, and returns whether the runtime accepted that.
    pub(crate) fn release(self) -> ClResult<()> {
        let mut this = std::mem::ManuallyDrop::new(self);
        this.give_up()
    }
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq)]
        pub(crate) struct $name(*mut c_void);

        // SAFETY: The runtime's calls are thread safe, and these values only name an object without owning it.
        unsafe impl Send for $name {}
        // SAFETY: As for `Send`.
        unsafe impl Sync for $name {}

        impl $name {
            /// # Safety
            ///
            /// `raw` names an object of this kind for as long as it is used.
            pub(crate) const unsafe fn new(raw: *mut c_void) -> Self {
                Self(raw)
            }

            pub(crate) const fn raw(self) -> *mut c_void {
                self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:p})"), self.0)
            }
        }
    };
}

#[cfg(test)]
impl DeviceId {
    /// Returns the name of no device, for tests with devices that no system has.
    pub(crate) const fn none() -> Self {
        Self(std::ptr::null_mut())
    }
}

id! {
    /// A platform. Platforms live as long as the process.
    PlatformId
}
id! {
    /// A device. Devices of a platform live as long as the process; a sub-device lives as long as a context
    /// that has it, and is only kept next to a handle of such a context.
    DeviceId
}

/// The events that a command waits for, each of them once.
#[derive(Debug, Default)]
pub(crate) struct WaitList<'a> {
    raw: SmallVec<[*mut c_void; 8]>,
    events: PhantomData<&'a EventHandle>,
}

impl<'a> WaitList<'a> {
    /// Returns an empty list.
    pub(crate) fn none() -> Self {
        Self::default()
    }

    /// Returns a list of these events and of `more`.
    pub(crate) fn and<'b>(&self, events: impl IntoIterator<Item = &'b EventHandle>) -> WaitList<'b>
    where
        'a: 'b,
    {
        let mut raw = self.raw.clone();
        raw.extend(events.into_iter().map(EventHandle::raw));
        WaitList::of_each_once(raw)
    }

    /// The program's wait list and the logs often name the same events.
    fn of_each_once(mut raw: SmallVec<[*mut c_void; 8]>) -> Self {
        raw.sort_unstable();
        raw.dedup();
        Self {
            raw,
            events: PhantomData,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }
    /// Returns further references to the events.
    pub(crate) fn handles(&self) -> ClResult<SmallVec<[EventHandle; 8]>> {
        // SAFETY: The list borrows the handle of each of its events, so they are alive.
        let retained = |raw: &*mut c_void| unsafe { EventHandle::retain(*raw) };
        self.raw.iter().map(retained).collect()
    }

    /// Returns the length. No program holds 2^32 events.
    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.raw.len()).unwrap_or(u32::MAX)
    }

    /// Returns the address of the list; null for an empty list, as the specification demands.
    pub(super) fn pointer(&self) -> *const *mut c_void {
        if self.raw.is_empty() {
            std::ptr::null()
        } else {
            self.raw.as_ptr()
        }
    }
}

impl<'a> FromIterator<&'a EventHandle> for WaitList<'a> {
    fn from_iter<I: IntoIterator<Item = &'a EventHandle>>(events: I) -> Self {
        Self::of_each_once(events.into_iter().map(EventHandle::raw).collect())
    }
}

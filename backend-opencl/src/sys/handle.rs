//! Handles that own one reference to an object of the runtime.

use std::{ffi::c_void, fmt, marker::PhantomData, mem::ManuallyDrop, ptr::NonNull};

use cl3::error_codes::{
    CL_INVALID_COMMAND_QUEUE, CL_INVALID_CONTEXT, CL_INVALID_EVENT, CL_INVALID_KERNEL,
    CL_INVALID_MEM_OBJECT, CL_INVALID_PROGRAM,
};
use smallvec::SmallVec;

use super::{ClError, ClResult, answer::Answer};

pub(super) type Call = unsafe fn(*mut c_void) -> Result<(), i32>;
pub(super) type Question = fn(*mut c_void, u32) -> Result<Vec<u8>, i32>;

/// A kind of objects, with the calls that count references to them.
pub(crate) trait Kind {
    /// The name of its handles.
    const NAME: &'static str;
    const RETAIN: (Call, &'static str);
    const RELEASE: (Call, &'static str);
    const INFO: (Question, &'static str);
    /// The code for a handle that is null.
    const NULL: i32;
}

/// One reference to an object, which is released when this is dropped.
pub(crate) struct Handle<K: Kind>(NonNull<c_void>, PhantomData<K>);

// SAFETY: The runtime's calls are thread safe (OpenCL 3.0, appendix A.2), except for setting the arguments of one kernel,
// which takes an exclusive borrow of its handle.
unsafe impl<K: Kind> Send for Handle<K> {}
// SAFETY: As for `Send`.
unsafe impl<K: Kind> Sync for Handle<K> {}

impl<K: Kind> Handle<K> {
    /// Takes a reference that `operation` has just returned.
    ///
    /// # Safety
    ///
    /// `created` is null, or a live object of this kind, and the caller gives away one reference to it.
    pub(super) unsafe fn own(
        created: Result<*mut c_void, i32>,
        operation: &'static str,
    ) -> ClResult<Self> {
        let handle = created.and_then(|raw| NonNull::new(raw).ok_or(K::NULL));
        match handle {
            Ok(handle) => Ok(Self(handle, PhantomData)),
            Err(code) => Err(ClError::new(operation, code)),
        }
    }

    /// Takes a further reference to an object that has another owner.
    ///
    /// # Safety
    ///
    /// `raw` is null, or a live object of this kind.
    pub(crate) unsafe fn retain(raw: *mut c_void) -> ClResult<Self> {
        let (retain, operation) = K::RETAIN;
        if raw.is_null() {
            return Err(ClError::new(operation, K::NULL));
        }
        // SAFETY: The object lives, as the caller promises.
        let retained = unsafe { retain(raw) };
        // SAFETY: The call above has taken this reference.
        unsafe { Self::own(retained.map(|()| raw), operation) }
    }

    /// Takes a reference to the program's object: a further one if `retain` is set, otherwise the caller's.
    ///
    /// # Safety
    ///
    /// `raw` is null, or a live object of this kind, and unless `retain` is set the caller gives away one reference to it.
    pub(crate) unsafe fn adopt(raw: *mut c_void, retain: bool) -> ClResult<Self> {
        if retain {
            // SAFETY: The object lives, as the caller promises.
            return unsafe { Self::retain(raw) };
        }
        // SAFETY: The object is alive, and the caller gives away this reference, as it promises.
        unsafe { Self::own(Ok(raw), K::RETAIN.1) }
    }

    /// Takes another reference to the same object.
    pub(crate) fn another(&self) -> ClResult<Self> {
        // SAFETY: `self` owns a reference, so the object is alive.
        unsafe { Self::retain(self.raw()) }
    }

    /// Returns the handle, valid for as long as `self` is.
    pub(crate) const fn raw(&self) -> *mut c_void {
        self.0.as_ptr()
    }

    /// Returns the runtime's answer to a question about the object.
    pub(crate) fn info(&self, what: u32) -> ClResult<Answer> {
        let (ask, call) = K::INFO;
        Answer::new(ask(self.raw(), what), call)
    }

    /// Releases the reference, and returns whether the runtime accepted that.
    pub(crate) fn release(self) -> ClResult<()> {
        ManuallyDrop::new(self).give_up()
    }

    fn give_up(&mut self) -> ClResult<()> {
        let (release, operation) = K::RELEASE;
        // SAFETY: `self` owns a reference, which is released once: this runs either in `release`, which then forgets
        // `self`, or in `drop`.
        unsafe { release(self.0.as_ptr()) }.map_err(|code| ClError::new(operation, code))
    }
}

impl<K: Kind> Drop for Handle<K> {
    fn drop(&mut self) {
        if let Err(error) = self.give_up() {
            tracing::error!(%error, "the OpenCL runtime failed to release an object");
        }
    }
}

impl<K: Kind> fmt::Debug for Handle<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({:p})", K::NAME, self.0)
    }
}

macro_rules! handles {
    ($(
        $(#[$doc:meta])*
        $name:ident of $kind:ident: $object:literal,
            $module:ident::{$retain:ident, $release:ident, $info:ident}, $null:ident;
    )+) => {$(
        $(#[$doc])*
        pub(crate) type $name = Handle<$kind>;

        #[derive(Debug)]
        pub(crate) enum $kind {}

        impl Kind for $kind {
            const NAME: &'static str = stringify!($name);
            const RETAIN: (Call, &'static str) = (cl3::$module::$retain, concat!("clRetain", $object));
            const RELEASE: (Call, &'static str) = (cl3::$module::$release, concat!("clRelease", $object));
            const INFO: (Question, &'static str) = (cl3::$module::$info, concat!("clGet", $object, "Info"));
            const NULL: i32 = $null;
        }
    )+};
}
#[cfg(feature = "images")]
pub(super) use handles;

handles! {
    /// A context.
    ContextHandle of Context: "Context",
        context::{retain_context, release_context, get_context_data}, CL_INVALID_CONTEXT;
    /// A command queue.
    QueueHandle of Queue: "CommandQueue",
        command_queue::{retain_command_queue, release_command_queue, get_command_queue_data}, CL_INVALID_COMMAND_QUEUE;
    /// A buffer, sub-buffer, image or pipe. The runtime keeps it for every command enqueued with it.
    MemHandle of Mem: "MemObject",
        memory::{retain_mem_object, release_mem_object, get_mem_object_data}, CL_INVALID_MEM_OBJECT;
    /// An event.
    EventHandle of Event: "Event", event::{retain_event, release_event, get_event_data}, CL_INVALID_EVENT;
    /// A program. The runtime keeps its context for it.
    ProgramHandle of Program: "Program",
        program::{retain_program, release_program, get_program_data}, CL_INVALID_PROGRAM;
    /// A kernel, and the arguments that were set last. The runtime keeps it for every command enqueued with it.
    KernelHandle of Kernel: "Kernel", kernel::{retain_kernel, release_kernel, get_kernel_data}, CL_INVALID_KERNEL;
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

//! Devices of the stand-in for the driver.

mod graph;
mod logged;
mod stand_in_build;

use std::{
    ffi::{CString, c_void},
    path::PathBuf,
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
};

use binpool_allocators::{Backend, Memory, QueueOrder};
use binpool_cuda::{CudaBackend, CudaDevice, CudaLibrary, CudaMemory, CudaQueue};
use libloading::Library;

pub(crate) use logged::logged;
pub(crate) use stand_in_build::build;

pub(crate) const PAGE: usize = 2 << 20;

struct StandIn {
    path: PathBuf,
    library: CudaLibrary,
    controls: Library,
}

fn stand_in() -> &'static StandIn {
    static LOADED: OnceLock<StandIn> = OnceLock::new();
    LOADED.get_or_init(|| {
        let path = build();
        // SAFETY: The stand-in has the driver's signatures, and does nothing when it is loaded.
        let library = unsafe { CudaLibrary::open(&path) }.unwrap();
        // SAFETY: As above.
        let controls = unsafe { Library::new(&path) }.unwrap();
        StandIn {
            path,
            library,
            controls,
        }
    })
}

pub(crate) fn library() -> &'static CudaLibrary {
    &stand_in().library
}

/// The stand-in, loaded as a library of its own.
pub(crate) fn another_library() -> CudaLibrary {
    // SAFETY: The stand-in has the driver's signatures, and does nothing when it is loaded.
    unsafe { CudaLibrary::open(&stand_in().path) }.unwrap()
}

/// A device that no other test has, of a library of its own: user events hold back what is freed on all devices of a library.
pub(crate) struct Device {
    ordinal: i32,
    library: CudaLibrary,
}

impl Device {
    /// A device of this many bytes.
    pub(crate) fn new(capacity: usize) -> Self {
        Self::of(another_library(), capacity)
    }

    /// Two devices of one library.
    pub(crate) fn pair(capacity: usize) -> [Self; 2] {
        let one = Self::new(capacity);
        let two = one.beside(capacity);
        [one, two]
    }

    /// Another device of the same library.
    pub(crate) fn beside(&self, capacity: usize) -> Self {
        Self::of(self.library.clone(), capacity)
    }

    fn of(library: CudaLibrary, capacity: usize) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(2);
        let ordinal = NEXT.fetch_add(1, Ordering::Relaxed).try_into().unwrap();
        let device = Self { ordinal, library };
        // SAFETY: The signature is right.
        let set = unsafe {
            stand_in()
                .controls
                .get::<extern "system" fn(i32, usize)>(b"stand_in_capacity")
        };
        set.unwrap()(ordinal, capacity);
        device
    }

    pub(crate) fn ordinal(&self) -> u32 {
        self.ordinal.try_into().unwrap()
    }

    pub(crate) fn backend(&self) -> CudaBackend {
        self.backend_of(&self.library)
    }

    pub(crate) fn library(&self) -> &CudaLibrary {
        &self.library
    }

    /// Sets whether it and others may use each other's memory.
    pub(crate) fn can_peer(&self, can: bool) {
        // SAFETY: The signature is right.
        let set = unsafe {
            stand_in()
                .controls
                .get::<extern "system" fn(i32, bool)>(b"stand_in_can_peer")
        };
        set.unwrap()(self.ordinal, can);
    }

    /// Returns whether a kernel of the device may use memory at an address, of whatever device.
    pub(crate) fn can_use(&self, address: u64) -> bool {
        // SAFETY: The signature is right.
        let can = unsafe {
            stand_in()
                .controls
                .get::<extern "system" fn(i32, u64) -> bool>(b"stand_in_can_use")
        };
        can.unwrap()(self.ordinal, address)
    }

    pub(crate) fn backend_of(&self, library: &CudaLibrary) -> CudaBackend {
        let device = CudaDevice::of(library, self.ordinal());
        device.unwrap().backend().unwrap()
    }

    /// Makes `times` calls fail, after `before` others.
    pub(crate) fn fail(&self, call: &str, before: u64, times: u64, code: i32) {
        type Fail = extern "system" fn(i32, *const std::ffi::c_char, u64, u64, i32);
        let call = CString::new(call).unwrap();
        // SAFETY: The signature is right.
        let fail = unsafe { stand_in().controls.get::<Fail>(b"stand_in_fail") };
        fail.unwrap()(self.ordinal, call.as_ptr(), before, times, code);
    }

    /// How often a call was made.
    pub(crate) fn calls(&self, call: &str) -> u64 {
        type Calls = extern "system" fn(i32, *const std::ffi::c_char) -> u64;
        let call = CString::new(call).unwrap();
        // SAFETY: The signature is right.
        let calls = unsafe { stand_in().controls.get::<Calls>(b"stand_in_calls") };
        calls.unwrap()(self.ordinal, call.as_ptr())
    }

    /// Makes the device's context the current one of the calling thread, as a program does that uses it by itself.
    pub(crate) fn make_current(&self) {
        let context = self.backend().raw_context();
        // SAFETY: The signature is right.
        let set = unsafe {
            stand_in()
                .controls
                .get::<extern "system" fn(*mut c_void) -> i32>(b"cuCtxSetCurrent")
        };
        assert_eq!(set.unwrap()(context), 0);
    }

    /// Holds a stream back until the word is 1, as a program does that uses the driver by itself.
    pub(crate) fn hold(&self, stream: *mut c_void, word: &AtomicU32) {
        type Wait = extern "system" fn(*mut c_void, *const AtomicU32, u32, u32) -> i32;
        self.make_current();
        // SAFETY: The signature is right.
        let wait = unsafe { stand_in().controls.get::<Wait>(b"cuStreamWaitValue32_v2") };
        assert_eq!(wait.unwrap()(stream, word, 1, 0), 0);
    }

    /// Enqueues a fill of memory, as such a program does.
    pub(crate) fn fill(&self, stream: *mut c_void, address: u64, bytes: usize) {
        type Fill = extern "system" fn(u64, u8, usize, *mut c_void) -> i32;
        self.make_current();
        // SAFETY: The signature is right.
        let fill = unsafe { stand_in().controls.get::<Fill>(b"cuMemsetD8Async") };
        assert_eq!(fill.unwrap()(address, 7, bytes, stream), 0);
    }

    fn number(&self, name: &[u8]) -> usize {
        // SAFETY: The signature is right.
        let number = unsafe {
            stand_in()
                .controls
                .get::<extern "system" fn(i32) -> usize>(name)
        };
        number.unwrap()(self.ordinal)
    }

    /// The bytes that are allocated.
    pub(crate) fn used(&self) -> usize {
        self.number(b"stand_in_used")
    }

    /// The objects that were made and not destroyed.
    pub(crate) fn objects(&self) -> usize {
        self.number(b"stand_in_objects")
    }
}

/// The context that is current on the calling thread.
pub(crate) fn current_context() -> *mut c_void {
    let mut context = std::ptr::null_mut();
    // SAFETY: The signature is right.
    let get = unsafe {
        stand_in()
            .controls
            .get::<extern "system" fn(&mut *mut c_void) -> i32>(b"cuCtxGetCurrent")
    };
    assert_eq!(get.unwrap()(&mut context), 0);
    context
}

pub(crate) fn queue(backend: &CudaBackend) -> CudaQueue {
    backend.create_queue(QueueOrder::InOrder).unwrap()
}

pub(crate) fn bytes(backend: &CudaBackend, queue: &CudaQueue, memory: &CudaMemory) -> Vec<u8> {
    let mut bytes = vec![0_u8; memory.bytes()];
    backend.read(queue, memory, 0, &mut bytes).unwrap();
    bytes
}

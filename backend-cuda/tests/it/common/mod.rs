//! Devices of the stand-in for the driver.

mod stand_in_build;

use std::{
    ffi::CString,
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
};

use binpool_allocators::{Backend, Memory, QueueOrder, Transfers};
use binpool_cuda::{CudaBackend, CudaDevice, CudaLibrary, CudaMemory, CudaQueue};
use libloading::Library;

pub(crate) const PAGE: usize = 2 << 20;

struct StandIn {
    library: CudaLibrary,
    controls: Library,
}

fn stand_in() -> &'static StandIn {
    static LOADED: OnceLock<StandIn> = OnceLock::new();
    LOADED.get_or_init(|| {
        let path = stand_in_build::build();
        // SAFETY: The stand-in has the driver's signatures, and does nothing when it is loaded.
        let library = unsafe { CudaLibrary::open(&path) }.unwrap();
        // SAFETY: As above.
        let controls = unsafe { Library::new(path) }.unwrap();
        StandIn { library, controls }
    })
}

pub(crate) fn library() -> &'static CudaLibrary {
    &stand_in().library
}

/// A device that no other test has.
pub(crate) struct Device {
    ordinal: i32,
}

impl Device {
    /// A device of so many bytes.
    pub(crate) fn new(capacity: usize) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(2);
        let ordinal = NEXT.fetch_add(1, Ordering::Relaxed).try_into().unwrap();
        let device = Self { ordinal };
        // SAFETY: The signature is right.
        let set = unsafe {
            stand_in()
                .controls
                .get::<extern "system" fn(i32, usize)>(b"stand_in_capacity")
        };
        set.unwrap()(ordinal, capacity);
        device
    }

    pub(crate) fn backend(&self) -> CudaBackend {
        let ordinal = self.ordinal.try_into().unwrap();
        CudaDevice::of(library(), ordinal)
            .unwrap()
            .backend()
            .unwrap()
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

pub(crate) fn queue(backend: &CudaBackend) -> CudaQueue {
    backend.create_queue(QueueOrder::InOrder).unwrap()
}

pub(crate) fn bytes(backend: &CudaBackend, queue: &CudaQueue, memory: &CudaMemory) -> Vec<u8> {
    let mut bytes = vec![0; memory.bytes()];
    backend.read(queue, memory, 0, &mut bytes, &[]).unwrap();
    bytes
}

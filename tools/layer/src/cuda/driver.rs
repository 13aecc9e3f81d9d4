//! The calls of the driver that the layer makes itself.

use std::{
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    sync::OnceLock,
};

use super::{
    driver_library::{DriverLibrary, driver_library},
    function::{NOT_FOUND, SUCCESS},
};
use crate::recording::Device;

/// `CU_POINTER_ATTRIBUTE_MAPPING_SIZE`.
const MAPPING_BYTES: c_int = 18;
/// `CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR`.
const MAPPING_START: c_int = 19;

/// The arguments of a call as words, with room for the function that has the most.
pub(super) type Words = [usize; 6];

/// Calls a function of the driver by the words of its arguments.
///
/// # Safety
///
/// The function is at this address. Its arguments are numbers and pointers, at most six, and these words are their values.
pub(super) unsafe fn call(address: usize, words: Words) -> c_int {
    type Call = unsafe extern "C" fn(usize, usize, usize, usize, usize, usize) -> c_int;
    let function: *const c_void = std::ptr::with_exposed_provenance(address);
    // SAFETY: arguments of numbers and pointers are passed as words are.
    let function: Call = unsafe { std::mem::transmute(function) };
    // SAFETY: the caller's.
    unsafe { function(words[0], words[1], words[2], words[3], words[4], words[5]) }
}

/// Defines the table of calls.
macro_rules! calls {
    ($($name:ident: $symbol:literal ($($argument:ident: $type:ty),*);)*) => {
        /// The calls of the driver's own library, as far as it has them.
        ///
        /// # Invariants
        ///
        /// I1: each function is that of its name, which has this type, in a library that stays loaded.
        #[derive(Debug)]
        pub(super) struct Driver {
            $($name: Option<unsafe extern "C" fn($($type),*) -> c_int>,)*
        }

        impl Driver {
            fn find(library: Option<&'static DriverLibrary>) -> Self {
                let find = |name: &CStr| library?.address(name).map(std::ptr::with_exposed_provenance::<c_void>);
                Self {
                    $($name: find($symbol).map(|function| {
                        // SAFETY: the driver's function of this name has this type, and the library stays loaded (I1).
                        unsafe { std::mem::transmute::<*const c_void, unsafe extern "C" fn($($type),*) -> c_int>(function) }
                    }),)*
                }
            }

            /// Returns whether the driver has all of them.
            pub(super) fn is_complete(&self) -> bool {
                $(self.$name.is_some())&&*
            }

            $(
                /// Calls the driver. Pointers are places for its results.
                fn $name(&self, $($argument: $type),*) -> c_int {
                    // SAFETY: it is the driver's (I1), and the callers below pass places for its results.
                    self.$name.map_or(NOT_FOUND, |function| unsafe { function($($argument),*) })
                }
            )*
        }
    };
}

calls! {
    context_get: c"cuCtxGetCurrent" (context: *mut usize);
    context_push: c"cuCtxPushCurrent_v2" (context: usize);
    context_pop: c"cuCtxPopCurrent_v2" (context: *mut usize);
    context_wait: c"cuCtxSynchronize" ();
    context_device: c"cuCtxGetDevice" (device: *mut c_int);
    device_name: c"cuDeviceGetName" (text: *mut c_char, length: c_int, device: c_int);
    device_bus: c"cuDeviceGetPCIBusId" (text: *mut c_char, length: c_int, device: c_int);
    device_bytes: c"cuDeviceTotalMem_v2" (bytes: *mut usize, device: c_int);
    primary_state: c"cuDevicePrimaryCtxGetState" (device: c_int, flags: *mut c_uint, is_active: *mut c_int);
    stream_context: c"cuStreamGetCtx" (stream: usize, context: *mut usize);
    stream_captures: c"cuStreamIsCapturing" (stream: usize, status: *mut c_int);
    stream_end_capture: c"cuStreamEndCapture" (stream: usize, graph: *mut usize);
    stream_destroy: c"cuStreamDestroy_v2" (stream: usize);
    graph_destroy: c"cuGraphDestroy" (graph: usize);
    pool_of_device: c"cuDeviceGetDefaultMemPool" (pool: *mut usize, device: c_int);
    address_attribute: c"cuPointerGetAttribute" (value: *mut usize, attribute: c_int, address: usize);
    set_access: c"cuMemSetAccess" (address: usize, bytes: usize, access: usize, count: usize);
}

/// Returns the calls of the driver.
pub(super) fn driver() -> &'static Driver {
    static DRIVER: OnceLock<Driver> = OnceLock::new();
    DRIVER.get_or_init(|| Driver::find(driver_library()))
}

impl Driver {
    /// The context that is current on this thread; 0 if there is none.
    pub(super) fn current(&self) -> usize {
        // The place stays 0 after a failure.
        let mut context = 0;
        self.context_get(&raw mut context);
        context
    }

    /// The number of the current context's device.
    pub(super) fn device(&self) -> Option<c_int> {
        let mut device = 0;
        (self.context_device(&raw mut device) == SUCCESS).then_some(device)
    }

    /// The current context's device, by the name `NVIDIA H100 80GB HBM3, PCI 00000000:00:06.0`.
    pub(super) fn about_device(&self) -> Option<Device> {
        let device = self.device()?;
        let name = text_of(|text, length| self.device_name(text, length, device))?;
        let bus = text_of(|text, length| self.device_bus(text, length, device))?;
        // The place stays 0 after a failure.
        let mut bytes = 0;
        self.device_bytes(&raw mut bytes, device);
        Some(Device {
            name: format!("{name}, PCI {bus}"),
            bytes: bytes as u64,
        })
    }

    /// Returns whether a device has a primary context, if the driver says so.
    pub(super) fn has_primary(&self, device: usize) -> Option<bool> {
        let device = c_int::try_from(device).ok()?;
        let (mut flags, mut is_active) = (0, 0);
        let code = self.primary_state(device, &raw mut flags, &raw mut is_active);
        (code == SUCCESS).then_some(is_active != 0)
    }

    /// The context of a stream that is not a default stream.
    pub(super) fn context_of(&self, stream: usize) -> Option<usize> {
        let mut context = 0;
        (self.stream_context(stream, &raw mut context) == 0).then_some(context)
    }

    /// Returns whether a stream is captured into a graph, or does not say.
    pub(super) fn may_be_captured(&self, stream: usize) -> bool {
        let mut status = 0;
        self.stream_captures(stream, &raw mut status) != 0 || status != 0
    }

    /// Ends the capture of a stream, from whatever thread it began.
    pub(super) fn abandon_capture(&self, stream: usize) {
        let mut graph = 0;
        if self.stream_end_capture(stream, &raw mut graph) == SUCCESS {
            self.graph_destroy(graph);
        }
    }

    /// Waits for all commands of a context.
    pub(super) fn wait_for(&self, context: usize) -> c_int {
        if self.current() == context {
            return self.context_wait();
        }
        match self.context_push(context) {
            0 => {
                let code = self.context_wait();
                let mut popped = 0;
                self.context_pop(&raw mut popped);
                code
            }
            code => code,
        }
    }

    /// The driver's default pool of a device.
    pub(super) fn pool_of(&self, device: usize) -> Option<usize> {
        let mut pool = 0;
        let device = c_int::try_from(device).ok()?;
        (self.pool_of_device(&raw mut pool, device) == 0).then_some(pool)
    }

    /// Where the pages that are mapped at an address begin, and their bytes.
    pub(super) fn mapping(&self, address: usize) -> Option<(usize, usize)> {
        let (mut start, mut bytes) = (0, 0);
        let codes = [
            self.address_attribute(&raw mut start, MAPPING_START, address),
            self.address_attribute(&raw mut bytes, MAPPING_BYTES, address),
        ];
        (codes == [0, 0] && bytes > 0).then_some((start, bytes))
    }

    /// Gives rights to mapped pages, by as many descriptions as `count` says, which the program has at an address. Returns whether it could.
    pub(super) fn give_access(
        &self,
        (start, bytes): (usize, usize),
        access: usize,
        count: usize,
    ) -> bool {
        // While other threads enqueue, the driver may say that it is not ready.
        (0..100).any(|attempt| {
            if attempt > 0 {
                std::thread::sleep(std::time::Duration::from_micros(100));
            }
            self.set_access(start, bytes, access, count) == 0
        })
    }

    /// Destroys a stream.
    pub(super) fn destroy(&self, stream: usize) {
        self.stream_destroy(stream);
    }
}

/// Returns the text that `ask` writes, which gets a place for it and the most bytes of it.
fn text_of(ask: impl FnOnce(*mut c_char, c_int) -> c_int) -> Option<String> {
    let mut text = [0_u8; 256];
    let code = ask(text.as_mut_ptr().cast(), 256);
    let text = CStr::from_bytes_until_nul(&text).ok()?;
    (code == SUCCESS).then(|| text.to_string_lossy().into_owned())
}

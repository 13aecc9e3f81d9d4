//! The driver's own library, which this one may be loaded in front of.

use std::{
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    path::PathBuf,
    sync::OnceLock,
};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use super::driver_places::driver_places;
use crate::recording::Device;

/// The driver's library.
#[derive(Debug)]
pub(super) struct Real {
    library: Library,
    pub(super) path: PathBuf,
}

/// Returns the driver's library, which is loaded if it is not yet.
pub(super) fn real() -> Option<&'static Real> {
    static REAL: OnceLock<Option<Real>> = OnceLock::new();
    REAL.get_or_init(|| driver_places().into_iter().find_map(Real::open))
        .as_ref()
}

impl Real {
    fn open(path: PathBuf) -> Option<Self> {
        // SAFETY: a library of this name is the driver's, or what the variable names in its place.
        let library = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) }.ok()?;
        let real = Self { library, path };
        // This library, or another build of it.
        let is_layer = real.address(c"clInitLayer").is_some();
        (!is_layer).then_some(real)
    }

    /// Returns a function.
    ///
    /// # Safety
    ///
    /// The driver's function of this name has the type `F`, which is that of a function.
    unsafe fn function<F: Copy>(&self, name: &CStr) -> Option<F> {
        let address = self.address(name)?;
        let function: *const c_void = std::ptr::with_exposed_provenance(address);
        // SAFETY: a function is as large as a pointer, and has this type.
        Some(unsafe { std::mem::transmute_copy(&function) })
    }

    /// Returns the address of a function; `None` if this driver does not have it.
    pub(super) fn address(&self, name: &CStr) -> Option<usize> {
        // SAFETY: it is looked at as an address only.
        let symbol = unsafe { self.library.get::<*const c_void>(name.to_bytes_with_nul()) };
        let address = symbol.ok()?.into_raw().addr();
        (address != 0).then_some(address)
    }
}

/// The context that is current on this thread; 0 if there is none.
pub(super) fn current_context() -> usize {
    type Get = unsafe extern "C" fn(*mut usize) -> c_int;
    static GET: OnceLock<Option<Get>> = OnceLock::new();
    // SAFETY: the driver's function of this name has this type.
    let get = GET.get_or_init(|| unsafe { real()?.function(c"cuCtxGetCurrent") });
    let mut context = 0;
    match get {
        // SAFETY: `context` is a place for the answer.
        Some(get) if unsafe { get(&raw mut context) } == 0 => context,
        _ => 0,
    }
}

/// Returns whether a device has a primary context.
pub(super) fn has_primary(device: usize) -> bool {
    type Ask = unsafe extern "C" fn(c_int, *mut c_uint, *mut c_int) -> c_int;
    // SAFETY: the driver's function of this name has this type.
    let ask =
        real().and_then(|real| unsafe { real.function::<Ask>(c"cuDevicePrimaryCtxGetState") });
    let (Some(ask), Ok(device)) = (ask, c_int::try_from(device)) else {
        return true;
    };
    let (mut flags, mut is_active) = (0, 0);
    // SAFETY: both are places for the answer.
    let code = unsafe { ask(device, &raw mut flags, &raw mut is_active) };
    code != 0 || is_active != 0
}

/// The device of the context that is current on this thread, by the name `NVIDIA H100 80GB HBM3, PCI 00000000:00:06.0`.
pub(super) fn current_device() -> Device {
    read_device().unwrap_or_else(|| Device {
        name: "a device".to_owned(),
        bytes: 0,
    })
}

fn read_device() -> Option<Device> {
    type Get = unsafe extern "C" fn(*mut c_int) -> c_int;
    type Text = unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int;
    type Bytes = unsafe extern "C" fn(*mut usize, c_int) -> c_int;
    let real = real()?;
    // SAFETY: the driver's function of this name has this type.
    let get: Get = unsafe { real.function(c"cuCtxGetDevice")? };
    let mut device = 0;
    // SAFETY: `device` is a place for the answer.
    if unsafe { get(&raw mut device) } != 0 {
        return None;
    }
    let text = |name: &CStr| {
        // SAFETY: both functions have this type.
        let ask: Text = unsafe { real.function(name)? };
        let mut text = [0_u8; 256];
        let length = c_int::try_from(text.len() - 1).ok()?;
        // SAFETY: `text` has `length` bytes, and one more, which stays 0.
        let code = unsafe { ask(text.as_mut_ptr().cast(), length, device) };
        let text = CStr::from_bytes_until_nul(&text).ok()?;
        (code == 0).then(|| text.to_string_lossy().into_owned())
    };
    let (name, bus) = (text(c"cuDeviceGetName")?, text(c"cuDeviceGetPCIBusId")?);
    // SAFETY: the driver's function of this name has this type.
    let ask: Bytes = unsafe { real.function(c"cuDeviceTotalMem_v2")? };
    let mut bytes = 0;
    // SAFETY: `bytes` is a place for the answer, which stays 0 after a failure.
    unsafe { ask(&raw mut bytes, device) };
    Some(Device {
        name: format!("{name}, PCI {bus}"),
        bytes: bytes as u64,
    })
}

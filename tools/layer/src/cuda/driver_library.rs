//! The driver's own library, which this one may be loaded in front of.

use std::{
    ffi::{CStr, c_void},
    path::PathBuf,
    sync::OnceLock,
};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use super::driver_places::driver_places;

/// The driver's library.
#[derive(Debug)]
pub(super) struct DriverLibrary {
    library: Library,
    pub(super) path: PathBuf,
}

/// Returns the driver's library, which is loaded if it is not yet.
pub(super) fn driver_library() -> Option<&'static DriverLibrary> {
    static LIBRARY: OnceLock<Option<DriverLibrary>> = OnceLock::new();
    let found = LIBRARY.get_or_init(|| driver_places().into_iter().find_map(DriverLibrary::open));
    found.as_ref()
}

impl DriverLibrary {
    fn open(path: PathBuf) -> Option<Self> {
        // SAFETY: a library of this name is the driver's, or what the variable names in its place.
        let library = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) }.ok()?;
        let opened = Self { library, path };
        // This library, or another build of it.
        let is_layer = opened.address(c"clInitLayer").is_some();
        (!is_layer).then_some(opened)
    }

    /// Returns the address of a function; `None` if this driver does not have it.
    pub(super) fn address(&self, name: &CStr) -> Option<usize> {
        // SAFETY: it is looked at as an address only.
        let symbol = unsafe { self.library.get::<*const c_void>(name.to_bytes_with_nul()) };
        let address = symbol.ok()?.into_raw().addr();
        (address != 0).then_some(address)
    }
}

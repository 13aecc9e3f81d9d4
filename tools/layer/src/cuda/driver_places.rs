//! Where the driver's library is.

use std::{
    env,
    ffi::OsStr,
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use crate::recording::loaded_files;

/// The name by which programs load it.
const NAME: &str = "libcuda.so.1";

/// Where installations have it that the loader's cache does not name.
const FOLDERS: &[&str] = &[
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/lib/wsl/lib",
    "/usr/local/nvidia/lib64",
];

/// Returns the file of CUDA's driver that programs of this user load, without loading it. `None` if there is no driver.
///
/// ```
/// match binpool_layer::cuda_driver() {
///     Some(path) => println!("CUDA's driver is {}", path.display()),
///     None => println!("there is no driver for CUDA"),
/// }
/// ```
#[must_use]
pub fn cuda_driver() -> Option<PathBuf> {
    driver_places().into_iter().find(|path| path.is_file())
}

/// The paths that are tried, in order.
pub(super) fn driver_places() -> Vec<PathBuf> {
    if let Some(named) = env::var_os("BINPOOL_LIBCUDA").filter(|named| !named.is_empty()) {
        return vec![named.into()];
    }
    let is_driver = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default();
        name.as_bytes().starts_with(b"libcuda.so")
    };
    let mut places: Vec<PathBuf> = loaded_files().into_iter().filter(is_driver).collect();
    let folders = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    places.extend(env::split_paths(&folders).map(|folder| folder.join(NAME)));
    places.extend(cached());
    places.extend(FOLDERS.iter().map(|folder| Path::new(folder).join(NAME)));
    places
}

/// The paths in the loader's cache, a file of texts that end with a zero.
fn cached() -> Vec<PathBuf> {
    let cache = fs::read("/etc/ld.so.cache").unwrap_or_default();
    let is_driver = |text: &&[u8]| text.starts_with(b"/") && text.ends_with(b"/libcuda.so.1");
    let texts = cache.split(|byte| *byte == 0).filter(is_driver);
    texts.map(|text| OsStr::from_bytes(text).into()).collect()
}

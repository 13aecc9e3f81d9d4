//! CUPTI, NVIDIA's interface for tools, which is loaded when it is needed.

use std::{
    env,
    ffi::{CStr, c_char, c_int, c_void},
    path::{Path, PathBuf},
    ptr,
};

use libloading::os::unix::Library;

use crate::recording::loaded_files;

/// Its names. Each works with every driver that is as new as it, so the newest comes last where an older one may be the program's own.
const NAMES: &[&str] = &["libcupti.so.13", "libcupti.so.12", "libcupti.so"];

/// Where it is beside the toolkit, and beside the files of the wheels.
const TOOLKIT: &[&str] = &["extras/CUPTI/lib64", "lib64", "targets/x86_64-linux/lib"];
const WHEELS: &[&str] = &[
    "",
    "../../cuda_cupti/lib",
    "../../nvidia/cu13/lib",
    "../../nvidia/cuda_cupti/lib",
];

/// `CUPTI_CB_DOMAIN_DRIVER_API`.
const DRIVER: c_int = 1;
/// `CUPTI_ERROR_INVALID_PARAMETER`: what a version with other parameters answers.
const INVALID_PARAMETER: c_int = 1;
/// `CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED`.
const ANOTHER: c_int = 39;

/// The function that CUPTI calls: the domain, the number of the driver's function, and its call.
pub(super) type Callback = unsafe extern "C" fn(*mut c_void, c_int, u32, *const CallbackData);

/// `CUpti_CallbackData`.
#[derive(Debug)]
#[repr(C)]
pub(super) struct CallbackData {
    /// 0 before the call, 1 after it.
    pub(super) site: c_int,
    function_name: *const c_char,
    pub(super) arguments: *const usize,
    pub(super) result: *const c_int,
    symbol_name: *const c_char,
    pub(super) context: *const c_void,
    context_number: u32,
    correlation_data: *mut u64,
    pub(super) correlation: u32,
}

/// `CUpti_SubscriberParams`.
#[repr(C)]
struct SubscriberParameters {
    struct_size: usize,
    name: *const c_char,
    old_name: *mut c_char,
    old_name_size: usize,
    allows_others: u8,
}

/// The functions of CUPTI that are called.
#[derive(Debug)]
pub(super) struct Cupti {
    subscribe: unsafe extern "C" fn(*mut *mut c_void, Callback, *mut c_void) -> c_int,
    /// Since version 13; a later one lets the program have a profiler, too.
    subscribe_with: Option<
        unsafe extern "C" fn(
            *mut *mut c_void,
            Callback,
            *mut c_void,
            *mut SubscriberParameters,
        ) -> c_int,
    >,
    enable: unsafe extern "C" fn(u32, *mut c_void, c_int, u32) -> c_int,
    name: unsafe extern "C" fn(c_int, u32, *mut *const c_char) -> c_int,
    /// Keeps the functions loaded.
    _library: Library,
}

/// What keeps CUPTI from calling back.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Another tool has subscribed.
    Another,
    /// A code of CUPTI's.
    Code(c_int),
}

/// A subscription.
#[derive(Debug)]
pub(super) struct Subscriber(*mut c_void);

impl Cupti {
    /// Loads it from where it is installed.
    pub(super) fn load() -> Option<Self> {
        places().into_iter().find_map(|path| Self::open(&path))
    }

    fn open(path: &Path) -> Option<Self> {
        // SAFETY: a library of this name is NVIDIA's, or what the variable names in its place.
        let library = unsafe { Library::new(path) }.ok()?;
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: CUPTI's function of this name has the field's type.
                unsafe { library.get($name) }.ok().map(|function| *function)
            };
        }
        Some(Self {
            subscribe: function!(b"cuptiSubscribe\0")?,
            subscribe_with: function!(b"cuptiSubscribe_v2\0"),
            enable: function!(b"cuptiEnableCallback\0")?,
            name: function!(b"cuptiGetCallbackName\0")?,
            _library: library,
        })
    }

    /// Lets CUPTI call `callback` around the functions that are enabled.
    pub(super) fn subscribe(&self, callback: Callback) -> Result<Subscriber, Refusal> {
        let mut subscriber = ptr::null_mut();
        let mut parameters = SubscriberParameters {
            struct_size: size_of::<SubscriberParameters>(),
            name: c"binpool".as_ptr(),
            old_name: ptr::null_mut(),
            old_name_size: 0,
            allows_others: 1,
        };
        let mut code = INVALID_PARAMETER;
        if let Some(subscribe) = self.subscribe_with {
            let parameters = &raw mut parameters;
            // SAFETY: both are places for what CUPTI writes; the callback lives as long as the process.
            code = unsafe { subscribe(&raw mut subscriber, callback, ptr::null_mut(), parameters) };
        }
        if code == INVALID_PARAMETER {
            // SAFETY: as above.
            code = unsafe { (self.subscribe)(&raw mut subscriber, callback, ptr::null_mut()) };
        }
        match code {
            0 => Ok(Subscriber(subscriber)),
            ANOTHER => Err(Refusal::Another),
            code => Err(Refusal::Code(code)),
        }
    }

    /// Returns the name of a function of the driver by its number.
    pub(super) fn name_of(&self, number: u32) -> Option<&'static str> {
        let mut name = ptr::null();
        // SAFETY: `name` is a place for the answer.
        let code = unsafe { (self.name)(DRIVER, number, &raw mut name) };
        if code != 0 || name.is_null() {
            return None;
        }
        // SAFETY: a text of CUPTI's own, which is never unloaded: the caller keeps this value.
        unsafe { CStr::from_ptr(name) }.to_str().ok()
    }

    /// Lets CUPTI call back around a function, if it knows more of it than the name.
    pub(super) fn enable(&self, subscriber: &Subscriber, number: u32) {
        // SAFETY: the subscriber is one of this library.
        unsafe { (self.enable)(1, subscriber.0, DRIVER, number) };
    }
}

/// The paths that are tried, in order.
fn places() -> Vec<PathBuf> {
    if let Some(named) = env::var_os("BINPOOL_CUPTI") {
        return vec![named.into()];
    }
    let loaded = loaded_files();
    let is_cupti = |path: &&PathBuf| has_prefix(path, "libcupti.so");
    // A profiler of the program has it already: two versions would not know of each other.
    let mut places: Vec<PathBuf> = loaded.iter().filter(is_cupti).cloned().collect();
    let mut folders = Vec::new();
    for file in loaded {
        let is_cuda = [
            "libcudart",
            "libtorch",
            "libc10_cuda",
            "libnvrtc",
            "libcublas",
        ];
        if is_cuda.iter().any(|prefix| has_prefix(&file, prefix))
            && let Some(folder) = file.parent()
        {
            folders.extend(WHEELS.iter().map(|beside| folder.join(beside)));
        }
    }
    let homes = ["CUDA_HOME", "CUDA_PATH"]
        .into_iter()
        .filter_map(env::var_os);
    let homes = homes.map(PathBuf::from).chain(["/usr/local/cuda".into()]);
    for home in homes {
        folders.extend(TOOLKIT.iter().map(|inside| home.join(inside)));
    }
    for folder in folders {
        places.extend(NAMES.iter().map(|name| folder.join(name)));
    }
    // Where the loader looks.
    places.extend(NAMES.iter().map(PathBuf::from));
    places
}

fn has_prefix(path: &Path, prefix: &str) -> bool {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().starts_with(prefix)
}

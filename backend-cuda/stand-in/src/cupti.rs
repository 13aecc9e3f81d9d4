//! A stand-in for CUPTI, NVIDIA's interface for tools: one subscriber, which is called before and after the driver's functions that it has
//! enabled, on the thread that calls them.

use std::{
    collections::BTreeSet,
    ffi::{CString, c_char, c_int, c_void},
    ptr,
    sync::{
        LazyLock,
        atomic::{AtomicU32, Ordering},
    },
};

use parking_lot::Mutex;

use crate::{Code, INVALID_VALUE, calls::NAMES, context::current};

/// `CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED`.
const ANOTHER: c_int = 39;

/// The names of the functions that were called, with whatever result.
static CALLED: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

/// Returns whether a function was called, by its whole name.
pub(crate) fn was_called(name: &str) -> bool {
    CALLED.lock().contains(name)
}

type Callback = unsafe extern "C" fn(*mut c_void, c_int, u32, *const Call);

/// `CUpti_CallbackData`.
#[repr(C)]
struct Call {
    site: c_int,
    function_name: *const c_char,
    arguments: *const usize,
    result: *const Code,
    symbol_name: *const c_char,
    context: *const c_void,
    context_number: u32,
    correlation_data: *mut u64,
    correlation: u32,
}

#[derive(Default)]
struct Subscriber {
    callback: Option<Callback>,
    enabled: BTreeSet<&'static str>,
}

static SUBSCRIBER: LazyLock<Mutex<Subscriber>> = LazyLock::new(Mutex::default);
static TEXTS: LazyLock<Vec<CString>> = LazyLock::new(|| {
    let texts = NAMES.iter().map(|name| CString::new(*name));
    texts.map(Result::unwrap_or_default).collect()
});

/// Runs a function of the driver, and calls the subscriber around it.
pub(crate) fn around(
    name: &'static str,
    arguments: &[usize],
    function: impl FnOnce() -> Code,
) -> Code {
    static CALLS: AtomicU32 = AtomicU32::new(1);
    CALLED.lock().insert(name);
    let callback = {
        let subscriber = SUBSCRIBER.lock();
        let is_enabled = subscriber.enabled.contains(name);
        subscriber.callback.filter(|_| is_enabled)
    };
    let Some(callback) = callback else {
        return function();
    };
    let number = NAMES.iter().position(|known| *known == name);
    let number = number.and_then(|number| u32::try_from(number).ok());
    let mut code = 0;
    let mut call = Call {
        site: 0,
        function_name: ptr::null(),
        arguments: arguments.as_ptr(),
        result: ptr::null(),
        symbol_name: ptr::null(),
        context: ptr::without_provenance(current()),
        context_number: 0,
        correlation_data: ptr::null_mut(),
        correlation: CALLS.fetch_add(1, Ordering::SeqCst),
    };
    let tell = |call: &Call| {
        // SAFETY: The subscriber passes a function of this type.
        unsafe { callback(ptr::null_mut(), 1, number.unwrap_or(0), call) };
    };
    tell(&call);
    code += function();
    call.site = 1;
    call.result = &raw const code;
    tell(&call);
    code
}

// SAFETY: A process that loads the stand-in calls these by its handle, and not those of CUPTI.
#[unsafe(no_mangle)]
extern "C" fn cuptiSubscribe(
    place: *mut *mut c_void,
    callback: Callback,
    _data: *mut c_void,
) -> c_int {
    let mut subscriber = SUBSCRIBER.lock();
    if subscriber.callback.is_some() {
        return ANOTHER;
    }
    subscriber.callback = Some(callback);
    // SAFETY: The program passes a place for the result.
    unsafe { place.write(ptr::without_provenance_mut(1)) };
    0
}

// SAFETY: As above.
#[unsafe(no_mangle)]
extern "C" fn cuptiEnableCallback(
    _enable: u32,
    _subscriber: *mut c_void,
    _domain: c_int,
    number: u32,
) -> c_int {
    let Some(name) = NAMES.get(number as usize) else {
        return INVALID_VALUE;
    };
    SUBSCRIBER.lock().enabled.insert(*name);
    0
}

// SAFETY: As above.
#[unsafe(no_mangle)]
extern "C" fn cuptiGetCallbackName(_domain: c_int, number: u32, name: *mut *const c_char) -> c_int {
    let Some(text) = TEXTS.get(number as usize) else {
        return INVALID_VALUE;
    };
    // SAFETY: The program passes a place for the result.
    unsafe { name.write(text.as_ptr()) };
    0
}

//! The `libcuda.so.1` in front of the driver's: which function of the driver, or of the layer in its place, each call goes to.

use std::{
    collections::HashMap,
    ffi::{CStr, CString, c_int, c_void},
    ptr,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{
    arguments::Arguments,
    driver::{Words, call, driver},
    driver_library::{DriverLibrary, driver_library},
    fork,
    function::{COUNT, Effect, Function, NOT_FOUND, SUCCESS},
    observer::Begun,
    own_calls::{is_own, own},
    pooling::Pooling,
    tracker::{Tracker, tracker},
};
use crate::{recording::contained, settings::settings};

/// `CUDA_ERROR_NO_DEVICE`: what a program is told if there is no driver.
const NO_DEVICE: c_int = 100;

/// What stands between the program and its driver.
#[derive(Debug)]
struct Interposer {
    library: Option<&'static DriverLibrary>,
    tracker: Option<&'static Tracker>,
    pooling: Option<Pooling>,
    /// The functions that the layer has a part in, by their number in the table, with their variants for the per-thread default stream.
    hooked: Vec<[Option<Hooked>; 2]>,
    /// The layer's own function in the place of one of the driver.
    in_place_of: HashMap<usize, *mut c_void>,
}

// SAFETY: the addresses are of functions.
unsafe impl Send for Interposer {}
// SAFETY: as above.
unsafe impl Sync for Interposer {}

/// A function of the driver that the layer has a part in.
#[derive(Debug)]
struct Hooked {
    function: Function,
    /// Where the driver has it.
    real: usize,
}

static INTERPOSER: OnceLock<Interposer> = OnceLock::new();
static IS_CALLED: AtomicBool = AtomicBool::new(false);

/// Returns whether the program calls the driver by this library, and the layer has a part in its calls.
pub(super) fn is_called() -> bool {
    IS_CALLED.load(Ordering::Relaxed)
}

/// Returns the function that calls of a name go to.
pub(super) fn function(name: &CStr) -> *mut c_void {
    let interposer = INTERPOSER.get_or_init(Interposer::new);
    let Some(library) = interposer.library else {
        return no_driver as *mut c_void;
    };
    match library.address(name) {
        None => lacking as *mut c_void,
        Some(address) => interposer.own_or(address),
    }
}

extern "C" fn no_driver() -> c_int {
    NO_DEVICE
}

extern "C" fn lacking() -> c_int {
    NOT_FOUND
}

/// What the program calls in the place of the function with this number in the table.
///
/// # Safety
///
/// The program calls it with the arguments of that function.
unsafe extern "C" fn hook<const NUMBER: usize, const VARIANT: usize>(
    first: usize,
    second: usize,
    third: usize,
    fourth: usize,
    fifth: usize,
    sixth: usize,
) -> c_int {
    let hooked = INTERPOSER.get().and_then(|interposer| {
        Some((
            interposer,
            interposer.hooked.get(NUMBER)?[VARIANT].as_ref()?,
        ))
    });
    match hooked {
        Some((interposer, hooked)) => {
            interposer.call(hooked, [first, second, third, fourth, fifth, sixth])
        }
        None => NOT_FOUND,
    }
}

type Hook = unsafe extern "C" fn(usize, usize, usize, usize, usize, usize) -> c_int;

macro_rules! hooks {
    ($($number:literal)*) => {
        [$([hook::<$number, 0> as Hook, hook::<$number, 1> as Hook]),*]
    };
}

const HOOKS: [[Hook; 2]; COUNT] = hooks!(
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48
);

impl Interposer {
    fn new() -> Self {
        let mut made = Self {
            library: driver_library(),
            tracker: None,
            pooling: None,
            hooked: Vec::new(),
            in_place_of: HashMap::new(),
        };
        let Some(library) = made.library else {
            return made;
        };
        contained(|| {
            made.tracker = tracker();
            if settings().begin_pool() {
                made.pooling = Pooling::new(library);
            }
        });
        if made.tracker.is_none() && made.pooling.is_none() {
            return made;
        }
        IS_CALLED.store(true, Ordering::Relaxed);
        let has_pools = made.pooling.is_some();
        made.hooked.extend((0..COUNT).map(|number| {
            Function::names(number).map(|name| {
                let real = library.address(&CString::new(name.clone()).ok()?)?;
                let function = Function::named(name.leak())?;
                let has_part = has_pools
                    || function.is_recorded()
                    || matches!(
                        function.effect,
                        Effect::AsksForFunction | Effect::Initializes
                    );
                has_part.then_some(Hooked { function, real })
            })
        }));
        for (hooked, hooks) in made.hooked.iter().zip(HOOKS) {
            for (hooked, hook) in hooked.iter().zip(hooks) {
                if let Some(hooked) = hooked {
                    made.in_place_of.insert(hooked.real, hook as *mut c_void);
                }
            }
        }
        made
    }

    /// Returns the layer's function in the place of the driver's at an address, or else the driver's.
    fn own_or(&self, address: usize) -> *mut c_void {
        let own = self.in_place_of.get(&address);
        own.copied()
            .unwrap_or(ptr::with_exposed_provenance_mut(address))
    }

    /// A call of the program.
    fn call(&self, hooked: &'static Hooked, words: Words) -> c_int {
        let function = &hooked.function;
        // SAFETY: the program calls this function with these arguments.
        let real = || unsafe { call(hooked.real, words) };
        if is_own() || fork::is_child() {
            return real();
        }
        // SAFETY: as above; `words` lives as long as this call.
        let arguments = unsafe { Arguments::new(words.as_ptr()) };
        let recorded = self.tracker.filter(|_| function.is_recorded());
        let begun =
            recorded.and_then(|tracker| own(|| Some(Begun::before(tracker, function, arguments))));
        let code = match &self.pooling {
            Some(pooling) => pooling.serve(function, arguments, self.tracker, real),
            None => real(),
        };
        match function.effect {
            Effect::AsksForFunction if code == SUCCESS => self.replace(arguments),
            Effect::Initializes if code == SUCCESS => fork::initialized(),
            _ => {}
        }
        if let (Some(tracker), Some(begun)) = (recorded, begun) {
            own(|| begun.after(tracker, function, arguments, driver().current(), code));
        }
        code
    }

    /// Returns to the program the layer's function in the place of one whose address the driver has just written.
    fn replace(&self, arguments: Arguments) {
        let place: *mut *mut c_void = ptr::with_exposed_provenance_mut(arguments.word(1));
        if place.is_null() {
            return;
        }
        // SAFETY: the call has written a function there, or null.
        let found = unsafe { place.read() };
        if !found.is_null() {
            // SAFETY: as above.
            unsafe { place.write(self.own_or(found.addr())) };
        }
    }
}

//! The library that the driver loads by itself, to record what reaches it.

use std::{
    cell::RefCell,
    ffi::{c_int, c_void},
    sync::OnceLock,
};

use super::{
    arguments::Arguments,
    cupti::{CallbackData, Cupti, Refusal},
    function::Function,
    interposer,
    observer::Begun,
    own_calls::{is_own, own},
    tracker::{Tracker, tracker},
};
use crate::recording::{contained, report_once};

/// More functions than any driver has.
const MOST_FUNCTIONS: u32 = 4096;

/// What CUPTI's calls need.
#[derive(Debug)]
struct Injection {
    tracker: &'static Tracker,
    /// By CUPTI's numbers.
    functions: Vec<Option<Function>>,
}

static INJECTION: OnceLock<Injection> = OnceLock::new();

thread_local! {
    /// The calls of this thread that have begun, by CUPTI's numbers.
    static BEGUN: RefCell<Vec<(u32, Begun)>> = const { RefCell::new(Vec::new()) };
}

/// Begins to record; called by the driver, which finds it by the variable `CUDA_INJECTION64_PATH`.
#[unsafe(no_mangle)]
extern "C" fn InitializeInjection() -> c_int {
    contained(inject);
    // The driver goes on in any case.
    1
}

fn inject() {
    // The program calls the layer's own functions, which record.
    if interposer::is_called() {
        return;
    }
    let Some(tracker) = tracker() else {
        return;
    };
    let Some(cupti) = Cupti::load() else {
        return report_once(
            "could not find CUPTI (libcupti.so), which recording on CUDA needs: it comes with the CUDA toolkit, and as \
             `pip install nvidia-cuda-cupti`; BINPOOL_CUPTI names the file",
        );
    };
    match begin(tracker, &cupti) {
        Ok(()) => {}
        Err(Refusal::Another) => report_once(
            "another profiler uses CUPTI in this program, and CUPTI serves one user at a time: CUDA is not recorded",
        ),
        Err(Refusal::Code(code)) => {
            report_once(format_args!(
                "CUPTI failed with {code}: CUDA is not recorded"
            ));
        }
    }
    // It calls back from now on.
    std::mem::forget(cupti);
}

fn begin(tracker: &'static Tracker, cupti: &Cupti) -> Result<(), Refusal> {
    let numbers = 0..MOST_FUNCTIONS;
    let functions = numbers.map_while(|number| match cupti.name_of(number) {
        Some(name) => Some(Function::named(name).filter(Function::is_recorded)),
        // There may be no function 0.
        None => (number == 0).then_some(None),
    });
    let injection = Injection {
        tracker,
        functions: functions.collect(),
    };
    let injection = INJECTION.get_or_init(|| injection);
    let subscriber = cupti.subscribe(called)?;
    // A callback costs microseconds: functions that are not recorded are not slowed down.
    for (number, function) in (0..).zip(&injection.functions) {
        if function.is_some() {
            cupti.enable(&subscriber, number);
        }
    }
    Ok(())
}

/// Called by CUPTI before and after a function of the driver, on the thread that calls it.
///
/// # Safety
///
/// `call` is null, or describes the call of the function of that number.
unsafe extern "C" fn called(
    _data: *mut c_void,
    _domain: c_int,
    number: u32,
    call: *const CallbackData,
) {
    if is_own() {
        return;
    }
    // SAFETY: CUPTI describes the call, as long as this function runs.
    let (Some(injection), Some(call)) = (INJECTION.get(), unsafe { call.as_ref() }) else {
        return;
    };
    let Some(Some(function)) = injection.functions.get(number as usize) else {
        return;
    };
    own(|| {
        // SAFETY: these are the arguments of the function.
        let arguments = unsafe { Arguments::new(call.arguments) };
        if call.site == 0 {
            injection.before(function, call, arguments);
        } else {
            injection.after(function, call, arguments);
        }
    });
}

impl Injection {
    fn before(&self, function: &Function, call: &CallbackData, arguments: Arguments) {
        let begun = Begun::before(self.tracker, function, arguments);
        // A thread that ends counts no calls any more.
        let _ = BEGUN.try_with(|all| all.borrow_mut().push((call.correlation, begun)));
    }

    fn after(&self, function: &'static Function, call: &CallbackData, arguments: Arguments) {
        let begun = BEGUN.try_with(|all| {
            let mut all = all.borrow_mut();
            let of_call = |(number, _): &(u32, Begun)| *number == call.correlation;
            let at = all.iter().rposition(of_call)?;
            all.truncate(at + 1);
            all.pop()
        });
        let Some((_, begun)) = begun.ok().flatten() else {
            return;
        };
        // SAFETY: CUPTI points to the result of the call.
        let code = unsafe { call.result.as_ref() }.map_or(0, |result| *result);
        begun.after(self.tracker, function, arguments, call.context.addr(), code);
    }
}

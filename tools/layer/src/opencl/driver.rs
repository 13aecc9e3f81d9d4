//! The functions below the layer: those of the loader, or of the next layer.

use std::{ptr, sync::OnceLock};

use opencl_sys::{CL_INVALID_OPERATION, CL_SUCCESS, cl_icd::cl_icd_dispatch, cl_int};

static NEXT: OnceLock<cl_icd_dispatch> = OnceLock::new();

/// Keeps the functions below, those of the first loader. A process may have several, such as that of a Python wheel besides the system's; each calls the
/// function of the object's own driver, so they do the same.
pub(super) fn set_next(next: &cl_icd_dispatch) {
    let _ = NEXT.set(*next);
}

/// Returns the functions below.
///
/// The layer is not called before it has them. Until then the table is empty.
pub(super) fn next() -> &'static cl_icd_dispatch {
    NEXT.get_or_init(no_functions)
}

/// A table without functions.
pub(super) fn no_functions() -> cl_icd_dispatch {
    // SAFETY: each entry is an `Option` of a function, and all zeros are `None`.
    unsafe { std::mem::zeroed() }
}

/// Calls a function below, counted and timed; `$missing` where there is none.
macro_rules! call {
    ($name:ident($($argument:expr),* $(,)?) or $missing:expr) => {{
        static CALL: $crate::recording::Call = $crate::recording::Call::new(stringify!($name));
        match $crate::opencl::driver::next().$name {
            // SAFETY: the arguments are the program's own, or those of an object of the driver that is alive.
            Some(function) => CALL.time(|| unsafe { function($($argument),*) }),
            None => $missing,
        }
    }};
    ($name:ident($($argument:expr),* $(,)?)) => {
        call!($name($($argument),*) or opencl_sys::CL_INVALID_OPERATION)
    };
}

/// Asks the driver something for the layer itself: the call is not counted.
macro_rules! ask {
    ($name:ident($($argument:expr),* $(,)?)) => {
        match $crate::opencl::driver::next().$name {
            // SAFETY: the object is the program's, and alive; what is written to is large enough.
            Some(function) => unsafe { function($($argument),*) },
            None => opencl_sys::CL_INVALID_OPERATION,
        }
    };
}

/// What a function of the driver returns.
pub(super) trait Answer {
    /// Returned in the place of a function that the driver lacks.
    const MISSING: Self;

    fn has_succeeded(&self) -> bool;
}

impl Answer for cl_int {
    const MISSING: Self = CL_INVALID_OPERATION;

    fn has_succeeded(&self) -> bool {
        *self == CL_SUCCESS
    }
}

impl<T> Answer for *mut T {
    const MISSING: Self = ptr::null_mut();

    fn has_succeeded(&self) -> bool {
        !self.is_null()
    }
}

/// Defines functions of the layer by the names and arguments of those below, which each calls. The layer does what stands at `before` first, and what
/// stands at `after` once the call has succeeded; a name there is that of the object that the call has made.
macro_rules! functions {
    ($(
        $name:ident($($argument:ident: $type:ty),* $(,)?) -> $answer:ty
        $(, before: $before:expr)? $(, after $($made:ident)?: $after:expr)?;
    )*) => {$(
        pub(super) unsafe extern "C" fn $name($($argument: $type),*) -> $answer {
            use $crate::{opencl::driver::{Answer, call}, recording::contained};
            $(contained(|| $before);)?
            let answer = call!($name($($argument),*) or <$answer>::MISSING);
            $(if answer.has_succeeded() {
                $(let $made = answer;)?
                contained(|| $after);
            })?
            answer
        }
    )*};
}

pub(super) use {ask, call, functions};

//! The lines of a Python program that makes a request.
//!
//! They are [read](super::unlocked_python) where the version of Python is known. For other versions, the functions of the interpreter are looked up
//! in the process. They are called on threads that hold its lock only: a thread that took the lock here could wait for one that waits for it.

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    ptr,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use libloading::os::unix::Library;

use super::unlocked_python::{self, MAX_FRAMES};

/// A frame: its code, and where in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct PythonFrame {
    /// What the code says of its lines, as a number, where that is read; or its address.
    code: u64,
    /// The number of its instruction, or before Python 3.11 of its line.
    place: c_int,
}

type Object = *mut c_void;

/// Set once the process was searched for an interpreter.
static LOOKED: AtomicBool = AtomicBool::new(false);

/// Has the process searched for an interpreter once more: it may have loaded one since.
pub(super) fn look_again() {
    LOOKED.store(false, Ordering::Relaxed);
}

/// Defines the table of functions. Of several names, the first one that is there counts.
macro_rules! functions {
    ($($(#[$about:meta])* $field:ident: $($name:literal)|+ ($($argument:ty),*) $(-> $answer:ty)?;)*) => {
        /// The functions of the interpreter that are called, since Python 3.9.
        struct Interpreter {
            $($(#[$about])* $field: unsafe extern "C" fn($($argument),*) $(-> $answer)?,)*
        }

        impl Interpreter {
            fn find() -> Option<Self> {
                let process = Library::this();
                $(
                    let found = None;
                    // SAFETY: the interpreter's function of each of these names has the field's type.
                    $(let found = found.or_else(|| unsafe { process.get($name) }.ok());)+
                    let $field = *found?;
                )*
                Some(Self { $($field),* })
            }
        }
    };
}

functions! {
    is_initialized: b"Py_IsInitialized" () -> c_int;
    /// The state of the thread that has the lock, or since Python 3.12 of this one if it has it. The name has changed in Python 3.13.
    holder: b"PyThreadState_GetUnchecked" | b"_PyThreadState_UncheckedGet" () -> Object;
    /// The state of this thread.
    own_state: b"PyGILState_GetThisThreadState" () -> Object;
    frame: b"PyEval_GetFrame" () -> Object;
    back_of: b"PyFrame_GetBack" (Object) -> Object;
    code_of: b"PyFrame_GetCode" (Object) -> Object;
    line_of: b"PyFrame_GetLineNumber" (Object) -> c_int;
    /// Faster than `line_of`, which reads the code's table of lines.
    place_of: b"PyFrame_GetLasti" | b"PyFrame_GetLineNumber" (Object) -> c_int;
    attribute: b"PyObject_GetAttrString" (Object, *const c_char) -> Object;
    text_of: b"PyUnicode_AsUTF8" (Object) -> *const c_char;
    add_reference: b"Py_IncRef" (Object);
    release: b"Py_DecRef" (Object);
    take_error: b"PyErr_Fetch" (*mut Object, *mut Object, *mut Object);
    put_error: b"PyErr_Restore" (Object, Object, Object);
}

impl Interpreter {
    /// Returns the interpreter of this process if it has one, and this thread has its lock.
    fn on_this_thread() -> Option<&'static Self> {
        static INTERPRETER: OnceLock<Interpreter> = OnceLock::new();
        let interpreter = match INTERPRETER.get() {
            Some(found) => found,
            None if LOOKED.swap(true, Ordering::Relaxed) => return None,
            None => {
                let found = Self::find()?;
                INTERPRETER.get_or_init(|| found)
            }
        };
        // SAFETY: this may be called at any time, on any thread.
        if unsafe { (interpreter.is_initialized)() } == 0 {
            return None;
        }
        // Not `PyGILState_Check`, which says yes to every thread once there is a second interpreter.
        // SAFETY: as above, of an interpreter that is initialized.
        let holder = unsafe { (interpreter.holder)() };
        // SAFETY: as above.
        let own = unsafe { (interpreter.own_state)() };
        (!own.is_null() && own == holder).then_some(interpreter)
    }

    /// Calls `each` with the frames of this thread and their code, innermost first. This thread has the lock.
    fn for_each_frame(&self, mut each: impl FnMut(Object, Object)) {
        // SAFETY: this thread has the lock.
        let mut frame = unsafe { (self.frame)() };
        if frame.is_null() {
            return;
        }
        // SAFETY: as above; what `frame` returns is borrowed.
        unsafe { (self.add_reference)(frame) };
        for depth in 1.. {
            // SAFETY: the frame is alive: this function has a reference.
            let code = unsafe { (self.code_of)(frame) };
            each(frame, code);
            // SAFETY: `code_of` returned a new reference.
            unsafe { (self.release)(code) };
            // SAFETY: as above.
            let back = unsafe { (self.back_of)(frame) };
            // SAFETY: this function's reference.
            unsafe { (self.release)(frame) };
            if back.is_null() {
                return;
            }
            frame = back;
            if depth == MAX_FRAMES {
                // SAFETY: this function's reference.
                return unsafe { (self.release)(frame) };
            }
        }
    }

    /// The text of an attribute of an object.
    ///
    /// # Safety
    ///
    /// The object is alive, this thread has the lock, and no error is set.
    unsafe fn text(&self, object: Object, name: &CStr) -> Option<String> {
        // SAFETY: the caller's.
        let attribute = unsafe { (self.attribute)(object, name.as_ptr()) };
        if attribute.is_null() {
            return None;
        }
        // SAFETY: the attribute is alive until it is released below.
        let text = unsafe { (self.text_of)(attribute) };
        let copied = (!text.is_null()).then(|| {
            // SAFETY: a text that ends with a zero, and lives as long as the attribute.
            unsafe { CStr::from_ptr(text) }
                .to_string_lossy()
                .into_owned()
        });
        // SAFETY: `attribute` was a new reference.
        unsafe { (self.release)(attribute) };
        copied
    }
}

/// Returns the frames of this thread, innermost first; none if it runs no Python now.
pub(super) fn frames() -> Vec<PythonFrame> {
    let mut frames = Vec::new();
    let is_read = unlocked_python::for_each_frame(|frame| {
        // At the first one, for all that may come: a thread without frames allocates nothing.
        frames.reserve(MAX_FRAMES - frames.len());
        let code = frame.content();
        let place = frame.place;
        frames.push(PythonFrame { code, place });
    });
    if is_read {
        return frames;
    }
    let Some(python) = Interpreter::on_this_thread() else {
        return frames;
    };
    frames.reserve(MAX_FRAMES);
    python.for_each_frame(|frame, code| {
        frames.push(PythonFrame {
            code: code.addr() as u64,
            // SAFETY: the frame is alive, and this thread has the lock.
            place: unsafe { (python.place_of)(frame) },
        });
    });
    frames
}

/// Returns the [`frames`] of this thread as `file.py:12 in function`. Code that is known by its address stays alive from now on, so that this is that of no
/// other code.
pub(super) fn texts() -> Vec<String> {
    let mut texts = Vec::new();
    if unlocked_python::for_each_frame(|frame| texts.push(frame.text())) {
        return texts;
    }
    let Some(python) = Interpreter::on_this_thread() else {
        return texts;
    };
    let mut error = [ptr::null_mut(); 3];
    let [kind, value, trace] = &mut error;
    // SAFETY: this thread has the lock. The program's own error is put back below.
    unsafe { (python.take_error)(kind, value, trace) };
    python.for_each_frame(|frame, code| {
        // SAFETY: the frame is alive, and this thread has the lock.
        let line = unsafe { (python.line_of)(frame) };
        // SAFETY: its code is alive, too, and no error is set.
        let file = unsafe { python.text(code, c"co_filename") };
        // SAFETY: as above. Python before 3.11 has the shorter name only.
        let function = unsafe { python.text(code, c"co_qualname") }.or_else(|| {
            // SAFETY: as above.
            unsafe { python.text(code, c"co_name") }
        });
        texts.push(match (file, function) {
            (Some(file), Some(function)) => format!("{file}:{line} in {function}"),
            _ => "an unknown line".to_owned(),
        });
        // SAFETY: the code is alive.
        unsafe { (python.add_reference)(code) };
    });
    // SAFETY: these are what was taken. An error of an attribute that is missing goes.
    unsafe { (python.put_error)(error[0], error[1], error[2]) };
    texts
}

//! The lines of a Python program that makes a request, on a thread with the interpreter's lock or without it.
//!
//! PyTorch, CuPy and JAX release the lock before they call the driver. To take it here could last forever: a thread that has it may wait for what
//! this one holds. But while a thread runs no Python, its frames stay as they are, and nothing else changes them. They are read as debuggers
//! read them, by the layouts that each version of Python from 3.11 to 3.13 has, and nothing is written: no reference is counted. Other versions
//! have no lines here.

use std::{
    borrow::Cow,
    ffi::{c_char, c_int, c_ulong, c_void},
    hash::{BuildHasher as _, Hasher as _},
    slice,
    sync::OnceLock,
};

use foldhash::quality::FixedState;
use libloading::os::unix::Library;

/// The most frames.
pub(super) const MAX_FRAMES: usize = 32;
/// The most characters of a name.
const MAX_CHARACTERS: usize = 4096;

/// Offsets: of an object's number of bytes or characters; of a text's state, with the bits that stand for compact ASCII; of the contents of a
/// bytes object.
const LENGTH: usize = 16;
const STATE: usize = 32;
const COMPACT_ASCII: u32 = 0b110_0000;
const BYTES: usize = 32;

/// Offsets, in bytes, of what is read of each type.
#[derive(Clone, Copy, Debug)]
struct Layout {
    /// The way from a thread's state to its frame: an offset in the state, and maybe another in what that points to.
    frame_of_thread: &'static [usize],
    /// Of a frame.
    code: usize,
    back: usize,
    instruction: usize,
    owner: usize,
    /// The owner of frames that stand for a call by C.
    no_python: Option<u8>,
    /// Of a code.
    first_line: usize,
    file: usize,
    name: usize,
    lines: usize,
    instructions: usize,
    /// Of a text of ASCII: its characters.
    characters: usize,
}

/// Of Python 3.11.
const LAYOUT_11: Layout = Layout {
    frame_of_thread: &[56, 8],
    code: 32,
    back: 48,
    instruction: 56,
    owner: 69,
    no_python: None,
    first_line: 72,
    file: 112,
    name: 128,
    lines: 136,
    instructions: 184,
    characters: 48,
};

/// Of Python 3.12.
const LAYOUT_12: Layout = Layout {
    frame_of_thread: &[56, 0],
    code: 0,
    back: 8,
    owner: 70,
    no_python: Some(3),
    first_line: 68,
    instructions: 192,
    characters: 40,
    ..LAYOUT_11
};

/// Of Python 3.13, with a lock.
const LAYOUT_13: Layout = Layout {
    frame_of_thread: &[72],
    instructions: 200,
    ..LAYOUT_12
};

/// What is called and read of the interpreter. None of these functions needs the lock for objects that are alive.
struct Interpreter {
    layout: Layout,
    is_initialized: unsafe extern "C" fn() -> c_int,
    thread: unsafe extern "C" fn() -> *const c_char,
    line_of: unsafe extern "C" fn(*const c_char, c_int) -> c_int,
    length_of: unsafe extern "C" fn(*const c_char) -> isize,
    character_of: unsafe extern "C" fn(*const c_char, isize) -> u32,
    /// The type of codes.
    code_type: *const c_void,
}

// SAFETY: the address is that of a static.
unsafe impl Send for Interpreter {}
// SAFETY: as above.
unsafe impl Sync for Interpreter {}

impl Interpreter {
    fn get() -> Option<&'static Self> {
        static INTERPRETER: OnceLock<Option<Interpreter>> = OnceLock::new();
        let interpreter = INTERPRETER.get_or_init(Self::find).as_ref()?;
        // SAFETY: this may be called at any time, on any thread.
        let is_initialized = unsafe { (interpreter.is_initialized)() != 0 };
        is_initialized.then_some(interpreter)
    }

    fn find() -> Option<Self> {
        let process = Library::this();
        macro_rules! symbol {
            ($name:literal) => {
                // SAFETY: the interpreter's function or object of this name has the field's type.
                *unsafe { process.get($name) }.ok()?
            };
        }
        let version: *const c_ulong = symbol!(b"Py_Version");
        // SAFETY: an interpreter without a lock has this function; it is not called.
        let has_lock = unsafe { process.get::<*const c_void>(b"_Py_IncRefShared") }.is_err();
        // SAFETY: the interpreter's constant.
        let layout = match unsafe { version.read() } >> 16 {
            0x030b => LAYOUT_11,
            0x030c => LAYOUT_12,
            0x030d if has_lock => LAYOUT_13,
            _ => return None,
        };
        Some(Self {
            layout,
            is_initialized: symbol!(b"Py_IsInitialized"),
            thread: symbol!(b"PyGILState_GetThisThreadState"),
            line_of: symbol!(b"PyCode_Addr2Line"),
            length_of: symbol!(b"PyUnicode_GetLength"),
            character_of: symbol!(b"PyUnicode_ReadChar"),
            code_type: symbol!(b"PyCode_Type"),
        })
    }
}

/// Reads a value of an object.
///
/// # Safety
///
/// The object has a value of this type there.
unsafe fn read<T: Copy>(object: *const c_char, place: usize) -> T {
    // SAFETY: the caller's.
    unsafe { object.wrapping_add(place).cast::<T>().read() }
}

/// The bytes of an object that has their number at `LENGTH`.
///
/// # Safety
///
/// The object has them from there on, is alive for `'a`, and does not change.
unsafe fn bytes<'a>(object: *const c_char, place: usize) -> &'a [u8] {
    // SAFETY: the caller's.
    let length = unsafe { read(object, LENGTH) };
    // SAFETY: the caller's.
    unsafe { slice::from_raw_parts(object.wrapping_add(place).cast(), length) }
}

/// A frame of this thread while it runs no Python: its code is alive.
pub(super) struct Frame {
    python: &'static Interpreter,
    code: *const c_char,
    /// The number of its instruction.
    pub(super) place: c_int,
}

impl Frame {
    /// The text that its code has at a place.
    fn text_at(&self, place: usize) -> Cow<'_, str> {
        // SAFETY: the code is alive, and has a text there.
        let text: *const c_char = unsafe { read(self.code, place) };
        // SAFETY: as above.
        if let Some(characters) = unsafe { self.ascii(text) } {
            let length = characters.len().min(MAX_CHARACTERS);
            return String::from_utf8_lossy(&characters[..length]);
        }
        // SAFETY: as above.
        let length = unsafe { (self.python.length_of)(text) };
        let characters = (0..length).take(MAX_CHARACTERS).map(|index| {
            // SAFETY: as above.
            let character = unsafe { (self.python.character_of)(text, index) };
            char::from_u32(character).unwrap_or(char::REPLACEMENT_CHARACTER)
        });
        Cow::Owned(characters.collect())
    }

    /// The characters of a text, if they are all of ASCII.
    ///
    /// # Safety
    ///
    /// The text is one of the code's: it lives as long as that, and never changes.
    unsafe fn ascii(&self, text: *const c_char) -> Option<&[u8]> {
        // SAFETY: the caller's.
        let is_ascii = unsafe { read::<u32>(text, STATE) } & COMPACT_ASCII == COMPACT_ASCII;
        // SAFETY: as above; the characters are there, as the state says.
        is_ascii.then(|| unsafe { bytes(text, self.python.layout.characters) })
    }

    /// Returns a number for all that [`text`](Self::text) is made of but the place. The address of the code says less: other code has it once this one is gone.
    pub(super) fn content(&self) -> u64 {
        let layout = &self.python.layout;
        let mut hasher = FixedState::default().build_hasher();
        // SAFETY: the code is alive, and has the number of its first line there.
        let first_line: c_int = unsafe { read(self.code, layout.first_line) };
        hasher.write_i32(first_line);
        // SAFETY: as above; bytes say which instruction has which line.
        let lines = unsafe { read(self.code, layout.lines) };
        // SAFETY: as above.
        hasher.write(unsafe { bytes(lines, BYTES) });
        for place in [layout.file, layout.name] {
            // SAFETY: as above, of a text.
            let text = unsafe { read(self.code, place) };
            // SAFETY: as above.
            match unsafe { self.ascii(text) } {
                Some(characters) => hasher.write(characters),
                None => hasher.write(self.text_at(place).as_bytes()),
            }
        }
        hasher.finish()
    }

    /// Returns the frame as `file.py:12 in function`.
    pub(super) fn text(&self) -> String {
        // SAFETY: the code is alive.
        let line = unsafe { (self.python.line_of)(self.code, self.place) };
        let layout = &self.python.layout;
        let [file, function] = [layout.file, layout.name].map(|place| self.text_at(place));
        format!("{file}:{line} in {function}")
    }
}

/// Calls `each` with each frame of this thread, innermost first. Returns whether the version of Python is known.
pub(super) fn for_each_frame(mut each: impl FnMut(&Frame)) -> bool {
    let Some(python) = Interpreter::get() else {
        return false;
    };
    let layout = &python.layout;
    // SAFETY: this may be called at any time, on any thread.
    let mut at = unsafe { (python.thread)() };
    for place in layout.frame_of_thread {
        if at.is_null() {
            return true;
        }
        // SAFETY: the state of this thread is alive, and has pointers at these places.
        at = unsafe { read(at, *place) };
    }
    let mut count = 0;
    while !at.is_null() && count < MAX_FRAMES {
        // SAFETY: the frame is alive while this thread runs no Python.
        let owner = unsafe { read::<u8>(at, layout.owner) };
        // SAFETY: as above.
        let code = unsafe { read::<*const c_char>(at, layout.code) };
        // SAFETY: as above.
        let instruction = unsafe { read::<*const c_char>(at, layout.instruction) };
        // SAFETY: as above.
        at = unsafe { read(at, layout.back) };
        if layout.no_python == Some(owner) || code.is_null() {
            continue;
        }
        // SAFETY: the code is an object, which begins with its references and its type.
        if unsafe { read::<*const c_void>(code, size_of::<usize>()) } != python.code_type {
            continue;
        }
        let begin = code.addr() + layout.instructions;
        let place = instruction.addr().checked_sub(begin);
        let place = place.and_then(|place| c_int::try_from(place).ok());
        each(&Frame {
            python,
            code,
            place: place.unwrap_or(-1),
        });
        count += 1;
    }
    true
}

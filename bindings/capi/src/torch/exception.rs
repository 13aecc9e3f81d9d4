//! Exceptions of C++, by what the program has loaded: `torch.OutOfMemoryError` by PyTorch's libraries, else `std::runtime_error` by
//! `libstdc++.so.6`. Nothing is linked.

#![cfg_attr(
    target_os = "linux",
    expect(
        unsafe_code,
        reason = "an exception of C++ is made by functions that are found by name"
    )
)]

use crate::status::{Failure, Status};

#[cfg(target_os = "linux")]
use linux::make;

/// Logs a failure, and throws it as an exception if the process has one to throw; returns otherwise.
///
/// # Safety
///
/// Every Rust function between this one and the one that catches the exception may be unwound, and has nothing to drop.
#[cfg_attr(
    not(target_os = "linux"),
    expect(unsafe_code, reason = "as that of other systems")
)]
pub(super) unsafe fn throw(failure: Failure) {
    let exception = make(&failure);
    // Now, since an exception that is thrown drops nothing here.
    drop(failure);
    if let Some(exception) = exception {
        // SAFETY: As the caller promises; this function has nothing left to drop.
        unsafe { exception.throw() }
    }
}

/// Returns nothing, since the exceptions of this system are not known.
#[cfg(not(target_os = "linux"))]
fn make(failure: &Failure) -> Option<Unknown> {
    tracing::error!(error = failure.message, "no memory for a request");
    None
}

/// Stands for the exceptions of this system, and has no values.
#[cfg(not(target_os = "linux"))]
enum Unknown {}

#[cfg(not(target_os = "linux"))]
impl Unknown {
    /// # Safety
    ///
    /// Nothing is left to promise: no value of this type exists.
    #[expect(unsafe_code, reason = "as that of other systems")]
    unsafe fn throw(self) -> ! {
        match self {}
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::{
        ffi::{CString, c_char, c_void},
        ptr,
    };

    use libloading::os::unix::{Library, RTLD_LAZY};

    use super::{Failure, Status};

    /// `RTLD_NOLOAD`: only a library that the program has.
    const LOADED: i32 = 4;

    /// More than any of the exceptions here has, whose size only PyTorch's headers say (136 bytes in version 2.11).
    const ROOM: usize = 1024;

    type Throw = unsafe extern "C-unwind" fn(*mut c_void, *const c_void, *const c_void) -> !;
    type Destroy = unsafe extern "C-unwind" fn(*mut c_void);

    /// An exception that is made, and has to be thrown. Nothing to drop.
    #[derive(Clone, Copy)]
    pub(super) struct Exception {
        object: *mut c_void,
        type_info: *const c_void,
        destroy: *const c_void,
        throw: Throw,
    }

    impl Exception {
        /// Throws it.
        ///
        /// # Safety
        ///
        /// Every Rust function between this one and the one that catches it may be unwound, and has nothing to drop.
        pub(super) unsafe fn throw(self) -> ! {
            // SAFETY: The exception was made by the functions of the same library, for this call.
            unsafe { (self.throw)(self.object, self.type_info, self.destroy) }
        }
    }

    /// Makes the exception of a failure; `None` if the program has no C++, after the failure was logged.
    pub(super) fn make(failure: &Failure) -> Option<Exception> {
        let text = format!("binpool: {failure}").replace('\0', " ");
        let text = CString::new(text).unwrap_or_default();
        let exception = Runtime::loaded().and_then(|runtime| {
            let is_out_of_memory = failure.status == Status::OutOfMemory;
            let of_torch = is_out_of_memory.then(|| runtime.of_torch(&text));
            of_torch.flatten().or_else(|| runtime.of_standard(&text))
        });
        if exception.is_none() {
            tracing::error!(error = failure.message, "no memory for a request");
        }
        exception
    }

    fn loaded(name: &str) -> Option<Library> {
        // SAFETY: It is loaded already, so that nothing runs.
        unsafe { Library::open(Some(name), RTLD_LAZY | LOADED) }.ok()
    }

    /// Returns what a library has under a name, as a value of the type `T`, which is a pointer.
    fn symbol<T: Copy>(library: &Library, name: &[u8]) -> Option<T> {
        // SAFETY: The names here are of the types that they are used as; a mangled name holds the types of its arguments.
        let found = unsafe { library.get::<T>(name) };
        found.ok().map(|found| *found)
    }

    /// The runtime of C++.
    struct Runtime {
        library: Library,
        throw: Throw,
        allocate: unsafe extern "C" fn(usize) -> *mut c_void,
    }

    impl Runtime {
        fn loaded() -> Option<Self> {
            let library = loaded("libstdc++.so.6")?;
            Some(Self {
                throw: symbol(&library, b"__cxa_throw\0")?,
                allocate: symbol(&library, b"__cxa_allocate_exception\0")?,
                library,
            })
        }

        /// Makes a `std::runtime_error`.
        fn of_standard(&self, text: &CString) -> Option<Exception> {
            type Construct = unsafe extern "C-unwind" fn(*mut c_void, *const c_char);
            let library = &self.library;
            let construct: Construct = symbol(library, b"_ZNSt13runtime_errorC1EPKc\0")?;
            let destroy: *const c_void = symbol(library, b"_ZNSt13runtime_errorD1Ev\0")?;
            let type_info: *const c_void = symbol(library, b"_ZTISt13runtime_error\0")?;
            // SAFETY: It takes any number of bytes, and ends the program where there are none.
            let object = unsafe { (self.allocate)(ROOM) };
            // SAFETY: The object has room for the exception, and the text ends with 0; it is copied.
            unsafe { construct(object, text.as_ptr()) };
            Some(Exception {
                object,
                type_info,
                destroy,
                throw: self.throw,
            })
        }

        /// Makes a `c10::OutOfMemoryError`, which Python sees as `torch.OutOfMemoryError`. It is a `c10::Error` with other virtual
        /// functions and no other members.
        fn of_torch(&self, text: &CString) -> Option<Exception> {
            type Construct = unsafe extern "C-unwind" fn(*mut c_void, SourceLocation, *mut Text);
            let torch = loaded("libc10_cuda.so").or_else(|| loaded("libc10.so"))?;
            let construct: Construct = symbol(
                &torch,
                b"_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE\0",
            )?;
            let type_info: *const c_void = symbol(&torch, b"_ZTIN3c1016OutOfMemoryErrorE\0")?;
            let table: *const *const c_void = symbol(&torch, b"_ZTVN3c1016OutOfMemoryErrorE\0")?;
            let strings = Strings::of(&self.library)?;
            // An object points to what follows the first two words of a table.
            // SAFETY: The table of a class with virtual functions has at least three words.
            let functions = unsafe { table.add(2) };
            // The first function of a class that comes of `std::exception` destroys a whole object.
            // SAFETY: As above.
            let destroy = unsafe { functions.read() };
            // SAFETY: It takes any number of bytes, and ends the program where there are none.
            let object = unsafe { (self.allocate)(ROOM) };
            let mut copied = Text([0; 64]);
            strings.make(&mut copied, text);
            // SAFETY: The object has room for the exception, and the other arguments are of the types that the name of the function says.
            unsafe { construct(object, SourceLocation::HERE, &raw mut copied) };
            strings.destroy(&mut copied);
            // SAFETY: An object begins with the pointer to its functions.
            unsafe { object.cast::<*const *const c_void>().write(functions) };
            Some(Exception {
                object,
                type_info,
                destroy,
                throw: self.throw,
            })
        }
    }

    /// `c10::SourceLocation`.
    #[repr(C)]
    struct SourceLocation {
        function: *const c_char,
        file: *const c_char,
        line: u32,
    }

    impl SourceLocation {
        const HERE: Self = Self {
            function: c"binpool_torch_allocate".as_ptr(),
            file: c"binpool".as_ptr(),
            line: 0,
        };
    }

    /// Room for a `std::string`, which has 32 bytes.
    #[repr(C, align(8))]
    struct Text([u8; 64]);

    /// The functions of `std::string`.
    struct Strings {
        construct: unsafe extern "C-unwind" fn(*mut Text, *const c_char, *const c_void),
        destroy: Destroy,
    }

    impl Strings {
        fn of(library: &Library) -> Option<Self> {
            Some(Self {
                construct: symbol(
                    library,
                    b"_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEC1EPKcRKS3_\0",
                )?,
                destroy: symbol(
                    library,
                    b"_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEED1Ev\0",
                )?,
            })
        }

        /// Makes a string where it stays: it may point into itself.
        fn make(&self, made: &mut Text, text: &CString) {
            let no_state = 0_u64;
            // SAFETY: There is room for a string, and the text ends with 0; the last argument is an allocator, which has no members.
            unsafe {
                (self.construct)(
                    ptr::from_mut(made),
                    text.as_ptr(),
                    ptr::from_ref(&no_state).cast(),
                );
            };
        }

        fn destroy(&self, text: &mut Text) {
            // SAFETY: It is a string, which nothing uses afterwards.
            unsafe { (self.destroy)(ptr::from_mut(text).cast()) };
        }
    }
}

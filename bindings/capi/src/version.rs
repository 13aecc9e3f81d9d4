//! The version of the library.

use std::ffi::c_char;

/// Returns the version of the library, such as `"0.1.0"`: that of the header is `BINPOOL_VERSION`. Do not free it.
///
/// Any thread may call it.
#[expect(
    unsafe_code,
    reason = "an exported name is declared by an attribute that is unsafe"
)]
// SAFETY: No other library has names that begin like this.
#[unsafe(no_mangle)]
pub extern "C" fn binpool_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

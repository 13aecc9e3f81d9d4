//! Shared virtual memory: addresses that host and device both understand.
//!
//! ```text
//! ClMemory over SVM       opaque: bytes, an address, a queue that it is freed on (SvmInfo tells)
//! UninitSvm, Svm          wrapped: elements of one type, mapped as slices
//! SystemSvm               wrapped: a vector of the program's own, where the device shares all memory of the host
//! ```
//!
//! All of them are [`SvmPointer`], and memory that commands take.

mod as_buffer;
mod backend;
pub(crate) mod block;
mod elements;
mod info;
mod options;
mod pointer;
mod system;

pub use elements::{Svm, UninitSvm};
pub use info::SvmInfo;
pub use options::SvmOptions;
pub use pointer::SvmPointer;
pub use system::SystemSvm;

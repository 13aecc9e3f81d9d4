//! Shared virtual memory: memory whose addresses are valid for host and device.
//!
//! ```text
//! ClMemory over SVM       opaque: bytes, an address, and the queue that it is freed on (see SvmInfo)
//! Slice over SVM          wrapped: elements of one type, mapped as slices
//! HostMemory over SVM     wrapped: a vector of the program's own, where the device shares all memory of the host
//! with_system_svm         opaque: a slice of the program's own, lent for a call, on the same devices
//! ```
//!
//! All of them are [`SvmPointer`], and memory that commands take.

mod backend;
mod info;
mod pointer;
mod system;

pub use backend::SvmOptions;
pub use info::SvmInfo;
pub use pointer::SvmPointer;

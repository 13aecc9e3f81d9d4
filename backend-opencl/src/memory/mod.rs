//! Blocks of memory: buffers, their parts, and shared virtual memory.
//!
//! ```text
//! cl_memory    a block of any kind
//! root         a whole buffer, with its log, which all of its values share
//! part         a part of a buffer, and the runtime's objects over it: sub-buffers and images
//! view_starts  what kernels are given in the place of views on NVIDIA's driver
//! svm_block    a block of shared virtual memory, with its log
//! key, info    the identity of the runtime's object, and what is known about it
//! flags        the flags of the traits and of the runtime
//! create       buffers that start with bytes of the host, and memory objects of the program's own
//! host_memory  buffers over memory of the host: owned by them, or lent to them for a call
//! ```

pub(crate) mod cl_memory;
mod create;
pub(crate) mod flags;
pub(crate) mod host_memory;
pub(crate) mod info;
pub(crate) mod key;
pub(crate) mod part;
pub(crate) mod root;
pub(crate) mod svm_block;
pub(crate) mod view_starts;

pub use cl_memory::ClMemory;
pub use host_memory::HostMemory;
pub use info::MemoryInfo;
pub use key::MemoryKey;

//! Blocks of memory: buffers, their parts, and shared virtual memory.
//!
//! ```text
//! cl_memory                 a block of any kind
//! root                      a whole buffer, with its log, which all of its values share
//! part                      a part of a buffer
//! view                      the runtime's object over a part of a buffer: a sub-buffer or an image
//! view_starts               what kernels are given in the place of views on NVIDIA's driver
//! key, info                 the identity of the runtime's object, and what is known about it
//! interop                   memory objects of the program's own
//! destruction               callbacks for the end of memory
//! flags                     the flags of the traits and of the runtime
//! from_host                 buffers that start with bytes of the host
//! host_buffer, lent_buffer  buffers over memory of the host: owned by them, or lent to them for a call
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

//! binpool for other languages: pools over OpenCL and CUDA, by handle.
//!
//! The README has the functions, how to link, and which thread may call what. The header is `include/binpool.h`, made by
//! `scripts/header` from the items of this crate.

#![deny(unsafe_code)]

mod block;
mod border;
pub mod graph_memory;
mod last_error;
mod managed;
mod of_backend;
mod options;
mod pool;
mod queues;
mod recording;
mod statistics;
mod status;
mod tag;
mod thread_end;
pub mod torch;
mod version;

pub use block::{
    Block, binpool_block_cl_kernel_argument, binpool_block_cl_mem, binpool_block_class_size,
    binpool_block_device_ptr, binpool_block_free, binpool_block_host_ptr,
    binpool_block_order_before, binpool_block_record_use, binpool_block_size, binpool_block_wait,
};
pub use border::binpool_string_free;
pub use last_error::binpool_last_error_message;
pub use of_backend::{AnyPool, OfBackend};
pub use options::{Options, PoolMemory, Reuse, Segments};
pub use pool::{
    Pool, binpool_allocate, binpool_allocate_on, binpool_pool_free, binpool_pool_limit,
    binpool_pool_new_cuda, binpool_pool_new_opencl, binpool_pool_record, binpool_pool_report,
    binpool_pool_retire_queue, binpool_pool_set_limit, binpool_pool_snapshot_json,
    binpool_pool_statistics, binpool_pool_stop_watching, binpool_pool_trim, binpool_pool_watch,
};
pub use recording::{NewFile, Recording, RecordingSummary, binpool_recording_finish};
pub use statistics::Statistics;
pub use status::{Failure, Status};
pub use tag::{binpool_tag_enter, binpool_tag_leave};
pub use version::binpool_version;

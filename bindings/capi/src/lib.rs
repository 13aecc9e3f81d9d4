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

// All that these export: a new function of C needs no line here.
pub use {
    block::*, border::*, last_error::*, of_backend::*, options::*, pool::*, recording::*,
    statistics::*, status::*, tag::*, version::*,
};

//! The replay of recorded allocation traces through binpool, on any device.
//!
//! The command `binpool` is a thin layer over this library, and over `binpool_trace`, which reads traces and draws pages.

#![deny(unsafe_code)]

mod all_cores;
mod behind;
mod block_source;
mod capacity_search;
#[allow(
    unsafe_code,
    reason = "a kernel is what its declaration says, which only its author can know"
)]
mod cuda_use;
pub mod devices;
mod figures;
mod history;
mod mock_kernels;
mod mock_profile;
#[allow(
    unsafe_code,
    reason = "a kernel is what its declaration says, which only its author can know"
)]
mod opencl_kernels;
#[allow(
    unsafe_code,
    reason = "a kernel is what its declaration says, which only its author can know"
)]
mod opencl_use;
mod parts;
mod replay;
mod replay_device;
pub mod report;
mod reserved;
mod rounds;
mod segment_record;
mod settings;
mod touch;
mod transfer_commands;
pub mod tune;
mod watermark;

pub use all_cores::on_all_cores;
pub use history::simulate;
pub use mock_profile::{Profile, ProfileError};
pub use replay::{AtEnd, Failure, Outcome, replay};
pub use replay_device::{Device, Measured};
pub use rounds::{Pending, Round, Warm};
pub use settings::{AllocatorChoice, ReplaySettings};
pub use touch::Touch;

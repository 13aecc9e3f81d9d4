//! The layer of OpenCL's loader in processes that do what few programs do, over a driver that has next to no functions.

#![cfg(target_os = "linux")]
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    clippy::undocumented_unsafe_blocks,
    clippy::unwrap_used,
    reason = "calls of the driver and of the system, as a program makes them, and a failing test panics"
)]

mod child;
mod driver;
mod files;
mod forks;
mod given_away;
mod kept;
mod kernels;
mod lack_of_memory;
mod loaders;
mod orders;
mod pool_figures;
mod queue_driver;
mod recording;
#[cfg(target_arch = "x86_64")]
mod stacks;
#[path = "../../../../backend-cuda/tests/it/common/stand_in_build.rs"]
mod stand_in_build;
mod standard_error;
mod sub_devices;
mod threads;
mod unified;
mod uses;

//! Tests on Vulkan: on the first device, which is Mesa's for the processor if there is no other, under the validation layer.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod common;

mod commands;
mod conformance;
mod device;
mod failures;
mod families;
mod guide;
mod held_back;
mod kernels;
mod lifetimes;
mod loading;
mod own_submits;
mod pool;
mod random_programs;
mod synchronization;

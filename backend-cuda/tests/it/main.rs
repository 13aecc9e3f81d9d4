//! Tests over the stand-in for the driver. `examples/check` runs the conformance suite on a real device.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod common;
#[path = "../../examples/check/elsewhere.rs"]
mod elsewhere;
#[path = "../../examples/check/hand_overs.rs"]
mod hand_overs;
#[cfg(target_os = "linux")]
#[path = "../../examples/check/share.rs"]
mod share;

mod conformance;
#[cfg(all(feature = "cudarc", target_os = "linux"))]
mod cudarc;
mod current;
mod devices;
mod driver_pool;
#[cfg(target_os = "linux")]
mod exported;
mod failures;
mod graphs;
mod kernels;
mod lifetimes;
mod loading;
mod per_thread;
mod pool;
mod queues;
#[cfg(feature = "cudarc")]
mod readme;
mod virtual_memory;

//! Tests of the C interface: its functions called from here, and programs in C and C++.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[cfg(target_os = "linux")]
#[path = "../torch/child.rs"]
mod child;
mod common;
#[cfg(target_os = "linux")]
#[path = "../../../../backend-cuda/tests/it/common/logged.rs"]
mod logged;

mod arguments;
#[cfg(target_os = "linux")]
mod cancelled;
mod memory;
mod options;
#[cfg(target_os = "linux")]
mod programs;
mod recordings;
#[cfg(target_os = "linux")]
mod shared;
mod shortage;
mod texts;
#[cfg(target_os = "linux")]
mod thread_end;
mod threads;
mod watching;

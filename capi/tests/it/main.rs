//! Tests of the C interface: its functions called from here, and programs in C and C++.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod common;

mod arguments;
mod memory;
mod options;
#[cfg(target_os = "linux")]
mod programs;
mod recordings;
mod shortage;
mod threads;
mod watching;

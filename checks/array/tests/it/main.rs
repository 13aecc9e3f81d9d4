//! The tests of arrays.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failing test panics"
)]

mod arithmetic;
mod common;
mod devices;
mod maps;
mod programs;
mod reductions;
mod slices;
mod stress;

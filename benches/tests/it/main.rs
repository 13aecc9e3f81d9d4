//! The tests of the workloads.

#![allow(clippy::unwrap_used, reason = "a failing test panics")]

mod workloads;

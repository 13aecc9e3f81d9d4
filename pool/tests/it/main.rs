//! The tests of the pool. What needs a process of its own is beside this one: the sweep and the soak.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failing test panics"
)]

mod addressed;
mod behind_failures;
mod binding;
mod callbacks;
mod common;
mod creep;
mod debug;
mod events;
mod failures;
#[cfg(target_os = "linux")]
mod forks;
mod growable;
mod guarantee;
mod high_water;
mod in_transit;
mod kept_addresses;
mod lifecycle;
mod limit_programs;
mod limits;
mod live_blocks;
#[cfg(feature = "snapshot")]
mod model;
mod out_of_memory;
mod pages;
mod panics;
mod plans;
mod policies;
mod queue_programs;
mod queues;
mod recording;
#[cfg(target_os = "linux")]
mod sandbox;
mod scrub;
mod scrub_failures;
mod scrub_programs;
mod segments;
mod size_classes;
mod slices;
#[cfg(feature = "snapshot")]
mod snapshot;
mod thread_programs;
mod threads;
mod views;
mod warm;
mod warnings;

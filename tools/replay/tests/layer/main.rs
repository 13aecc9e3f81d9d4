//! What a program must not notice of the layer: each rule is a small program of OpenCL, which writes down what it sees. It runs bare, recorded, and
//! over a pool, and sees the same.
//!
//! A process of its own, since it is its own child.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failing test panics")]
#![allow(
    clippy::wildcard_imports,
    clippy::unused_self,
    clippy::multiple_unsafe_ops_per_block,
    reason = "OpenCL has many constants, a rig has what programs do, and a rule is a program of raw calls"
)]

mod cl;
mod rig;
mod runs;

mod arguments;
mod asked_back;
mod bounds;
mod callbacks;
mod creation;
mod extensions;
mod failures;
mod limit;
mod maps;
mod ordering;
mod parts;
mod processes;
mod python;
mod random;
mod references;
mod reuse;
mod svm;
mod threads;

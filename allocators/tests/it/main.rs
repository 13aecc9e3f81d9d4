//! The tests of the allocators and their vocabulary.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failing test panics"
)]

mod adaptors;
mod log;
mod runtime;
mod vocabulary;

//! The tests of the allocators and their vocabulary.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failing test panics"
)]

mod adaptors;
#[cfg(feature = "conformance")]
mod broken_backends;
mod pages;
mod vocabulary;

//! The tests of the mock. The sweep is beside this one, in a process of its own.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failing test panics"
)]

mod accounts;
mod at_once;
mod bad_input;
mod behind;
mod common;
mod conformance;
mod deferred_memory;
mod faults;
mod foreign_objects;
mod kernels;
mod manual;
mod misuse;
mod orders;
mod out_of_order;
#[cfg(feature = "serde")]
mod profile_document;
mod profiles;
mod races;
mod svm;
mod user_events;
mod virtual_memory;

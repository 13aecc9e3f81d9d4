//! Tests of traces as a program reads them.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a failing test panics")]

mod layer_recordings;
mod lines;
mod trace;

//! Tests of traces as a program reads them.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a failing test panics")]

mod allocators;
mod content;
mod import;
mod import_foreign;
mod import_logs;
mod import_snapshots;
mod imported;
mod layer_recordings;
mod lines;
mod recorders;
mod trace;

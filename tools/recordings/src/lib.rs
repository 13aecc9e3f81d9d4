//! Recordings of allocations, read from any tool that makes them, and pages for the browser that show them.

#![forbid(unsafe_code)]

mod error;
mod followed;
mod import;
mod places;
mod reader;
mod text_lines;
mod trace;
pub mod view;
mod writer;

pub use {
    import::content::Content,
    trace::{Event, PoolStep, Shortage, Trace, Use},
};

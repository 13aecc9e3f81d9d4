//! Recorded allocation traces, and their replay through binpool on any device.
//!
//! The command `binpool replay` is a thin shell around this library.

mod device;
mod need;
mod replay;
mod report;
mod source;
mod trace;

pub use device::{AllocatorChoice, Device, Measured, Profile, Settings};
pub use need::smallest_capacity;
pub use replay::{Failure, Manner, Outcome, replay};
pub use report::{Header, Row, json, table};
pub use trace::{Event, Problem, Trace, TraceError};

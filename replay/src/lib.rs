//! Recorded allocation traces, and their replay through binpool on any device.
//!
//! The commands `binpool replay` and `binpool tune` are thin shells around this library.

mod axis;
mod candidates;
mod device;
mod labels;
mod need;
mod plot;
mod replay;
mod report;
mod source;
mod text_plot;
mod trace;
mod trade_off;
mod tune;
mod tune_json;
mod tune_report;
mod tune_table;

pub use candidates::{Candidate, candidates};
pub use device::{AllocatorChoice, Device, Measured, Profile, Settings};
pub use need::smallest_capacity;
pub use plot::svg;
pub use replay::{Failure, Manner, Outcome, replay};
pub use report::{Header, Row, json, table};
pub use text_plot::text_plot;
pub use trace::{Event, Problem, Trace, TraceError};
pub use trade_off::{Cost, best, pareto_front};
pub use tune::{Comparison, Trial, tune};
pub use tune_report::TuneReport;

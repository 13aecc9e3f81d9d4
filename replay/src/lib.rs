//! Recorded allocation traces, and their replay through binpool on any device.
//!
//! The commands `binpool replay`, `binpool tune`, `binpool bench` and `binpool view` are thin shells around this library.

#![forbid(unsafe_code)]

mod axis;
mod bench_report;
mod candidates;
mod device;
mod device_costs;
mod device_pairs;
mod device_report;
mod devices_report;
mod import;
mod import_report;
mod labels;
mod need;
mod picture;
mod plot;
mod profile;
mod replay;
mod report;
mod scaling_plot;
mod source;
mod table;
mod tail_report;
mod text_plot;
mod trace;
mod trace_error;
mod trade_off;
mod tune;
mod tune_json;
mod tune_report;
mod tune_table;
pub mod view;

pub use bench_report::{BenchRow, bench_json, bench_table};
pub use candidates::{Candidate, candidates};
pub use device::{AllocatorChoice, Device, Measured, Settings};
pub use device_costs::{COST_STEPS, CostEffort, device_costs};
pub use device_pairs::{DevicePair, LeftOut, device_pairs};
pub use device_report::{device_json, device_table};
pub use devices_report::{DeviceEntry, devices_json, devices_text};
pub use import_report::{import_json, import_summary};
pub use need::smallest_capacity;
pub use plot::svg;
pub use profile::{Profile, ProfileError};
pub use replay::{Failure, Manner, Outcome, replay};
pub use report::{Header, Row, json, table};
pub use scaling_plot::scaling_svg;
pub use tail_report::{TailRow, tail_json, tail_table};
pub use text_plot::text_plot;
pub use trace::{Event, Shortage, Trace};
pub use trace_error::{ImportProblem, Problem, TraceError};
pub use trade_off::{Cost, best, pareto_front};
pub use tune::{Comparison, Trial, tune};
pub use tune_report::TuneReport;

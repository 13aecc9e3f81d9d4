//! Recorded allocation traces, and their replay through binpool on any device.
//!
//! The commands `binpool replay`, `binpool tune`, `binpool bench` and `binpool view` are thin shells around this library.

#![forbid(unsafe_code)]

mod bench;
mod device;
mod devices;
mod import;
mod import_report;
mod need;
mod plots;
mod profile;
mod replay;
mod report;
mod source;
mod table;
mod trace;
mod tune;
pub mod view;

pub use bench::report::{BenchRow, bench_json, bench_table};
pub use bench::tail::{TailRow, tail_json, tail_table};
pub use device::{AllocatorChoice, Device, Measured, Settings};
pub use devices::costs::{COST_STEPS, CostEffort, device_costs};
pub use devices::pairs::{DevicePair, LeftOut, device_pairs};
pub use devices::pairs_report::{device_json, device_table};
pub use devices::report::{DeviceEntry, devices_json, devices_text};
pub use import_report::{import_json, import_summary};
pub use need::smallest_capacity;
pub use plots::scaling::scaling_svg;
pub use plots::tuning::svg;
pub use plots::tuning_text::text_plot;
pub use profile::{Profile, ProfileError};
pub use replay::{Failure, Manner, Outcome, replay};
pub use report::{Header, Row, json, table};
pub use trace::error::{ImportProblem, Problem, TraceError};
pub use trace::{Event, Shortage, Trace};
pub use tune::candidates::{Candidate, candidates};
pub use tune::report::TuneReport;
pub use tune::trade_off::{Cost, best, pareto_front};
pub use tune::{Comparison, Trial, tune};

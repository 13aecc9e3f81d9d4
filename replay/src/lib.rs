//! Recorded allocation traces, and their replay through binpool on any device.
//!
//! The commands `binpool replay`, `binpool tune` and `binpool view` are thin layers over this library.

#![deny(unsafe_code)]

mod behind;
mod block_source;
mod capacity_search;
mod cuda_commands;
mod cuda_devices;
#[allow(
    unsafe_code,
    reason = "a kernel is what its declaration says, which only its author can know"
)]
mod cuda_use;
mod devices;
mod import;
mod import_report;
mod markdown_table;
mod mock_kernels;
mod mock_profile;
#[allow(
    unsafe_code,
    reason = "a kernel is what its declaration says, which only its author can know"
)]
mod opencl_kernels;
#[allow(
    unsafe_code,
    reason = "a kernel is what its declaration says, which only its author can know"
)]
mod opencl_use;
mod parts;
mod plots;
mod replay;
mod replay_device;
mod replay_report;
mod reserved;
mod rounds;
mod rounds_report;
mod stream_ordered;
mod touch;
mod trace;
mod tune;
pub mod view;
mod watermark;

pub use capacity_search::smallest_capacity;
pub use cuda_devices::{open_cuda, select_cuda};
pub use devices::call_costs::{COST_STEPS, CostEffort, device_costs, device_costs_with_pages};
pub use devices::device_report::{CudaEntry, DeviceEntry, devices_json, devices_text};
pub use import::content::Content;
pub use import_report::{import_json, import_summary};
pub use mock_profile::{Profile, ProfileError};
pub use plots::tuning_svg::svg;
pub use replay::{AtEnd, Failure, Manner, Outcome, replay};
pub use replay_device::{AllocatorChoice, Device, Measured, Settings};
pub use replay_report::{Header, Row, behind_table, end_table, json, table};
pub use rounds::{Pending, Round, Warm};
pub use rounds_report::rounds_tables;
pub use touch::Touch;
pub use trace::error::{ImportProblem, Problem, TraceError};
pub use trace::name::shown;
pub use trace::pool_step::{PoolAction, PoolStep, ShortageReport};
pub use trace::{Event, Shortage, Trace};
pub use tune::candidates::{Candidate, candidates, page_candidates};
pub use tune::report::TuneReport;
pub use tune::trade_off::{Cost, best, pareto_front};
pub use tune::{Comparison, Trial, tune};

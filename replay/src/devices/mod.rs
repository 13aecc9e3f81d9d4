//! The devices of a machine: their properties and costs.

mod call_costs;
mod cuda_devices;
mod device_report;

pub use call_costs::{COST_STEPS, CostEffort, device_costs, device_costs_with_pages};
pub(crate) use cuda_devices::open_cuda;
pub use cuda_devices::select_cuda;
pub use device_report::{CudaEntry, DeviceEntry, devices_json, devices_text};

//! The devices of a machine: their properties and costs.

mod call_costs;
mod device_report;
mod selection;

pub use call_costs::{COST_STEPS, CostEffort, device_costs, device_costs_with_pages};
pub use device_report::{DeviceEntry, devices_json, devices_text};
pub use selection::{Selectable, select_device};
pub(crate) use selection::{open_cuda, open_vulkan};

//! The devices of a machine: their properties and costs.

mod call_costs;
mod cuda;
mod device_report;
mod page_device;
mod vulkan;

pub use call_costs::{COST_STEPS, CostEffort, device_costs, device_costs_with_pages};
pub use device_report::{DeviceEntry, devices_json, devices_text};
pub use page_device::{PageDevice, open_for_replays, select_device};

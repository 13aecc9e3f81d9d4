//! The devices of a machine: their properties and costs.

pub(crate) mod call_costs;
pub(crate) mod device_report;

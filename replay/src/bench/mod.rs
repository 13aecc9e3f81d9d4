//! The reports of `binpool bench`.

pub(crate) mod device_pairs;
pub(crate) mod device_pairs_report;
pub(crate) mod scaling_svg;
mod side_by_side;
pub(crate) mod tail_report;
pub(crate) mod workload_report;

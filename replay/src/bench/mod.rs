//! The reports of `binpool bench`.

pub(crate) mod device_pairs;
pub(crate) mod device_pairs_report;
pub(crate) mod scaling_svg;
pub(crate) mod tail_report;
pub(crate) mod workload_report;

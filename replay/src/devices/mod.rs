//! The devices of a machine: what they are, and what they cost.

pub(crate) mod costs;
pub(crate) mod pairs;
pub(crate) mod pairs_report;
pub(crate) mod report;

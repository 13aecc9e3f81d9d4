//! What `binpool bench` says.

pub(crate) mod report;
pub(crate) mod tail;

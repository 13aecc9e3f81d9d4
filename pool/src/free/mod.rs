//! Where free memory lies: bins, the depot, thread caches, the quarantine.

pub(crate) mod bins;
pub(crate) mod depot;
pub(crate) mod fills;
pub(crate) mod quarantine;
pub(crate) mod spare_leases;
pub(crate) mod thread_cache;

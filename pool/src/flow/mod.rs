//! The paths of a block between the program, the pool and the allocator. This code takes the locks and calls the
//! device.

pub(crate) mod allocate;
pub(crate) mod carve;
mod carve_here;
pub(crate) mod drain;
pub(crate) mod fences;
pub(crate) mod free;
pub(crate) mod fresh;
pub(crate) mod grow;
mod hit_block;
mod limits;
pub(crate) mod reclaim;
pub(crate) mod release;
pub(crate) mod reuse;
pub(crate) mod scrub;
pub(crate) mod thread_cache;
pub(crate) mod trim;
pub(crate) mod viewed;
pub(crate) mod watch;

//! The adaptors: allocators that wrap other allocators.

pub(crate) mod budget;
pub(crate) mod failing;
pub(crate) mod fallback;
pub(crate) mod fault;
mod forward;
pub(crate) mod limit;
pub(crate) mod logging;
pub(crate) mod recording;
pub(crate) mod statistics;

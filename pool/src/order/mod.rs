//! The order of uses: timestamps, the clock, fences.

pub(crate) mod fence;
pub(crate) mod queue_uses;
pub(crate) mod timestamps;

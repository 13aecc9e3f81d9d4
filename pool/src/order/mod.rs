//! The order of uses: timestamps, the clock, fences, and how a request got its block.

pub(crate) mod clock;
pub(crate) mod fence;
pub(crate) mod hit_kind;
pub(crate) mod queue_uses;
pub(crate) mod timestamps;

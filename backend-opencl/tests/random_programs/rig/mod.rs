//! What runs random programs: processes, threads, and what they have in hand.

pub(crate) mod accepted;
pub(crate) mod child;
pub(crate) mod counts;
pub(crate) mod gates;
pub(crate) mod kernels;
pub(crate) mod object;
pub(crate) mod parent;
pub(crate) mod picture;
pub(crate) mod pools;
pub(crate) mod process;
pub(crate) mod program;
pub(crate) mod reducer;
pub(crate) mod settings;
pub(crate) mod worker;

//! Allocators that wrap other allocators.
//!
//! ```text
//! Limit       bounds the bytes, by a Budget that several may share
//! Statistics  counts calls and bytes
//! Fallback    asks a second allocator where the first one has no memory
//! ```

pub(crate) mod budget;
pub(crate) mod fallback;
mod forward;
pub(crate) mod limit;
pub(crate) mod statistics;

pub use budget::{Budget, BudgetUse};
pub use fallback::Fallback;
pub use limit::Limit;
pub use statistics::{AllocatorStatistics, Statistics};

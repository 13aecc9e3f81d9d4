//! Allocators that wrap other allocators.
//!
//! ```text
//! Limit       bounds the bytes, by a Budget that several may share
//! Statistics  counts calls and bytes
//! Fallback    asks a second allocator where the first one has no memory
//! Failing     makes calls fail, for tests
//! ```

pub(crate) mod budget;
pub(crate) mod failing;
pub(crate) mod fallback;
pub(crate) mod fault;
mod forward;
pub(crate) mod limit;
pub(crate) mod statistics;

pub use budget::{Budget, BudgetUse};
pub use failing::Failing;
pub use fallback::Fallback;
pub use fault::{AllocatorCall, AllocatorFault, FaultTrigger};
pub use limit::Limit;
pub use statistics::{AllocatorStatistics, Statistics};

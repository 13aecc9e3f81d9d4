//! Allocators that wrap other allocators.
//!
//! ```text
//! Limit       bounds the bytes, by a Budget that several may share
//! Statistics  counts calls and bytes
//! Logging     logs each call
//! Recording   writes a trace
//! Fallback    asks a second allocator where the first one has no memory
//! Failing     makes calls fail, for tests
//! ```

pub(crate) mod budget;
pub(crate) mod failing;
pub(crate) mod fallback;
pub(crate) mod fault;
mod forward;
pub(crate) mod limit;
pub(crate) mod logging;
pub(crate) mod recording;
pub(crate) mod statistics;

pub use budget::{Budget, BudgetUse};
pub use failing::Failing;
pub use fallback::Fallback;
pub use fault::{AllocatorCall, AllocatorFault, FaultTrigger};
pub use limit::Limit;
pub use logging::Logging;
pub use recording::Recording;
pub use statistics::{AllocatorStatistics, Statistics};

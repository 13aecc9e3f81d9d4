//! The workloads that binpool is measured with, and what is measured.
//!
//! A [`Subject`] is anything that hands out blocks: the pool as a user holds it, or a peer. A workload is a
//! sequence of allocations and frees that is the same, bit for bit, for every subject and on every machine.

mod mixed;
mod subject;

pub use mixed::Mixed;
pub use subject::{Bins, Malloc, Pool, Subject};

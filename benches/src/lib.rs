//! The workloads that binpool is measured with, and what is measured.
//!
//! A [`Subject`] is anything that hands out blocks: the pool as a user holds it, or a peer. A [`Workload`] is a
//! sequence of allocations and frees that is the same, bit for bit, for every subject and on every machine. The
//! benchmarks of this crate run this one code: [`race`] has threads work side by side, [`tail`] looks at single operations, and [`counted`] is for those who count
//! instructions.
//!
//! The pool works over [`NullBackend`], where nothing costs time, so that figures are those of the pool alone.

#![deny(unsafe_code)]

mod counted;
mod cross_thread;
mod direct;
mod failure;
mod host_heap;
mod lifo;
mod miss;
mod mixed;
mod noted_pools;
mod nothing;
mod null;
mod pair;
mod pools;
mod race;
mod ranges;
mod subject;
mod subject_choice;
mod tail;
mod workload;

pub use counted::{COUNTED_PAIRS, counted, counted_drops};
pub use direct::{Direct, DirectBlock};
pub use failure::{Failure, Refused};
pub use host_heap::{Heap, HostBlock, Malloc, Mimalloc, Snmalloc};
pub use mixed::Mixed;
pub use noted_pools::{Recorded, Watched};
pub use nothing::Nothing;
pub use null::{NullBackend, NullEvent, NullMemory, NullQueue};
pub use pools::{Bins, Pool};
pub use race::{Race, race};
pub use ranges::{Range, Ranges};
pub use subject::{Subject, Work};
pub use subject_choice::{SubjectChoice, Visitor};
pub use tail::{Tail, clock, tail};
pub use workload::Workload;

//! Large pieces of device memory, and the ranges that blocks are carved from: the bookkeeping of
//! [`SegmentAllocator`](crate::SegmentAllocator) and of the pool.
//!
//! Nothing here calls the device. What has to be called, and in which order, is said where something is handed out:
//! [`Carved`] and [`Leaving`].

mod growth;
mod segments;
mod space;

pub use segments::{Carved, Leaving, Segments};
pub use space::RangeKey;

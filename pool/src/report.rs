//! The report of a pool that is out of memory.

use std::{cmp::Ordering, error::Error as StdError, fmt};

use binpool_allocators::{Error, Scope, words};
use binpool_trace::ShortageReport;

pub use binpool_trace::Verdict;

use crate::LiveGroup;

/// The state of the pool when a request failed for lack of memory. Sizes in bytes.
///
/// `{}` and `{:?}` both print a table for people, also when `main` returns the error.
///
/// ```
/// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
/// # use binpool_mock::MockDevice;
/// # let backend = MockDevice::builder().capacity_bytes(64 << 20).build().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
/// let cache = pool.allocate(48 << 20)?;
/// let error = pool.allocate(32 << 20).unwrap_err();
/// let expected = "\
/// out of memory: could not allocate 32.0 MiB: the device is full
///
///   in use             48.0 MiB   in 1 block; `watch` the pool to see whose
///   free in the pool        0 B   at most 0 B in one piece
///     pending               0 B   the queue would have to wait for it
///   whole pool         48.0 MiB   obtained from its allocator
///   released                0 B   for this request, but not enough
///   the device         64.0 MiB   at most 64.0 MiB in one piece
///
/// advice: free blocks, or memory outside the pool, or have a reclaim hook do it";
/// assert_eq!(error.to_string(), expected);
/// # Ok::<(), binpool::PoolError>(())
/// ```
///
/// If the pool [watches](crate::MemoryPool::watch), the table also shows what holds the memory:
///
/// ```
/// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder, Tag, WatchOptions};
/// # use binpool_mock::MockDevice;
/// # let backend = MockDevice::builder().capacity_bytes(64 << 20).build().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
/// pool.watch(WatchOptions::new());
/// let weights = Tag::new("weights").within(|| pool.allocate(48 << 20))?;
/// let error = pool.allocate(32 << 20).unwrap_err();
/// // in use by
/// //     48.0 MiB in 1 block: weights, at src/main.rs:8:43
/// assert!(error.to_string().contains("48.0 MiB in 1 block: weights, at "));
/// let report = error.out_of_memory().ok_or("not for lack of memory")?;
/// assert_eq!(report.largest_groups[0].tag.as_deref(), Some("weights"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The verdict says what would help:
///
/// ```
/// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
/// # use binpool_mock::MockDevice;
/// use binpool::Verdict;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let backend = MockDevice::builder().capacity_bytes(64 << 20).build().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
/// let cache = pool.allocate(48 << 20)?;
/// let verdict_of = |bytes| {
///     let error = pool.allocate(bytes).err()?;
///     Some(error.out_of_memory()?.verdict)
/// };
/// // Freeing the cache would help the first request, but not the second.
/// assert_eq!(verdict_of(32 << 20), Some(Verdict::DeviceFull));
/// let verdict = verdict_of(128 << 20).ok_or("it fits")?;
/// assert_eq!(verdict, Verdict::NeverFits);
/// assert_eq!(verdict.name(), "never_fits"); // A label for a program's counters.
/// assert!(verdict.advice().starts_with("split the work"));
/// # Ok(())
/// # }
/// ```
#[non_exhaustive]
pub struct OutOfMemoryReport {
    /// The size of the request.
    pub requested_bytes: usize,
    /// The size of its class, in bytes: what the pool asked the device for.
    pub class_bytes: usize,
    /// Active bytes, as requested.
    pub active_bytes: u64,
    /// The number of active blocks.
    pub active_blocks: u64,
    /// Bytes of blocks that the program has dropped but still has views of, in whole blocks.
    pub viewed_bytes: u64,
    /// Active and held bytes together, in whole blocks.
    pub managed_bytes: u64,
    /// Bytes that the pool still holds.
    pub held_bytes: u64,
    /// Held bytes that are pending for the queue of the request: commands that may still use them have not ended.
    pub pending_bytes: u64,
    /// The size of the largest block that is still held.
    pub largest_held_bytes: u64,
    /// Bytes that the pool released to the allocator for this request, which was not enough.
    pub released_bytes: u64,
    /// The size of the largest block that the allocator can return.
    pub largest_block_bytes: usize,
    /// The bytes that the allocator can allocate in all: less than the device's if a limit applies.
    pub capacity_bytes: u64,
    /// The bytes of the device's memory.
    pub device_bytes: u64,
    /// The cause.
    pub verdict: Verdict,
    /// What holds the active blocks: the five groups with the most bytes, if the pool [watches](crate::MemoryPool::watch).
    pub largest_groups: Vec<LiveGroup>,
    /// The last error of the allocator; `None` if the pool did not ask it, because the block can never fit.
    pub source: Option<Error>,
}

impl OutOfMemoryReport {
    /// The bytes that a limit left at the end, if it refused the request.
    fn left_by_limits(&self) -> Option<u64> {
        match &self.source {
            Some(Error::OutOfMemory(refusal)) if refusal.scope == Scope::Limit => refusal.available,
            _ => None,
        }
    }

    /// Whether the request is larger than the limit, so that freeing blocks cannot make room for it.
    fn is_larger_than_the_limit(&self) -> bool {
        self.verdict == Verdict::Limited && self.class_bytes as u64 > self.capacity_bytes
    }

    /// Whether the program has nothing in this pool that it could free.
    fn has_nothing_in_use(&self) -> bool {
        self.active_blocks == 0 && self.viewed_bytes == 0
    }

    /// The sizes that a message names side by side: of the request, of its class, and of the limit.
    fn sizes(&self) -> [String; 3] {
        let (requested, class) = (self.requested_bytes as u64, self.class_bytes as u64);
        let limit = if self.is_larger_than_the_limit() {
            self.capacity_bytes
        } else {
            class
        };
        words::bytes_apart([requested, class, limit])
    }

    /// The cause, in words that fit the numbers.
    pub(crate) fn reason(&self) -> String {
        if self.is_larger_than_the_limit() {
            let [_, _, limit] = self.sizes();
            return format!("it is larger than the limit of {limit}");
        }
        let others_fill_it = self.verdict == Verdict::DeviceFull && self.has_nothing_in_use();
        if others_fill_it {
            return "the device is full of memory outside the pool".into();
        }
        self.verdict.to_string()
    }

    /// What the program can do, in words that fit the numbers.
    pub(crate) fn advice(&self) -> &'static str {
        match self.verdict {
            Verdict::Limited if self.is_larger_than_the_limit() => {
                "raise the limit, or split the work into smaller blocks"
            }
            Verdict::Limited if self.has_nothing_in_use() => {
                "raise the limit, or free memory elsewhere under it: this pool has no block in use"
            }
            Verdict::DeviceFull if self.has_nothing_in_use() => {
                "free memory outside the pool, or have a reclaim hook do it: this pool has no block in use"
            }
            verdict => verdict.advice(),
        }
    }

    /// The rows of the table for people: a name, bytes, and a remark.
    fn rows(&self) -> Vec<(&'static str, u64, String)> {
        let mut blocks = format!("in {}", words::blocks(self.active_blocks));
        if self.active_blocks > 0 && self.largest_groups.is_empty() {
            blocks.push_str("; `watch` the pool to see whose");
        }
        let piece = |bytes| format!("at most {} in one piece", words::bytes(bytes));
        let mut rows = vec![
            ("in use", self.active_bytes, blocks),
            (
                "free in the pool",
                self.held_bytes,
                piece(self.largest_held_bytes),
            ),
            (
                "  pending",
                self.pending_bytes,
                "the queue would have to wait for it".into(),
            ),
            (
                "whole pool",
                self.managed_bytes,
                "obtained from its allocator".into(),
            ),
            (
                "released",
                self.released_bytes,
                "for this request, but not enough".into(),
            ),
        ];
        match self.capacity_bytes.cmp(&self.device_bytes) {
            Ordering::Less => {
                let left = self.left_by_limits().map(|left| {
                    let [_, left] = words::bytes_apart([self.class_bytes as u64, left]);
                    format!("{left} left")
                });
                rows.push(("the limit", self.capacity_bytes, left.unwrap_or_default()));
            }
            Ordering::Equal => {}
            Ordering::Greater => {
                let remark = "more than the device alone".into();
                rows.push(("the allocator", self.capacity_bytes, remark));
            }
        }
        let largest = piece(self.largest_block_bytes as u64);
        rows.push(("the device", self.device_bytes, largest));
        if self.viewed_bytes > 0 {
            let remark = "freed, but views of it still exist".into();
            rows.insert(1, ("  in views", self.viewed_bytes, remark));
        }
        rows
    }
}

/// The report as a recording stores it.
impl From<&OutOfMemoryReport> for ShortageReport {
    fn from(report: &OutOfMemoryReport) -> Self {
        Self {
            class_bytes: report.class_bytes as u64,
            active_bytes: report.active_bytes,
            active_blocks: report.active_blocks,
            viewed_bytes: report.viewed_bytes,
            managed_bytes: report.managed_bytes,
            held_bytes: report.held_bytes,
            pending_bytes: report.pending_bytes,
            largest_held_bytes: report.largest_held_bytes,
            released_bytes: report.released_bytes,
            largest_block_bytes: report.largest_block_bytes as u64,
            capacity_bytes: report.capacity_bytes,
            device_bytes: report.device_bytes,
            ..Self::new(report.verdict)
        }
    }
}

/// A table for people.
impl fmt::Display for OutOfMemoryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [requested, class, _] = self.sizes();
        write!(f, "out of memory: could not allocate {requested}")?;
        if self.class_bytes != self.requested_bytes {
            write!(f, " (a block of {class})")?;
        }
        writeln!(f, ": {}\n", self.reason())?;
        for (what, bytes, remark) in self.rows() {
            let line = format!("  {what:<16} {:>10}   {remark}", words::bytes(bytes));
            writeln!(f, "{}", line.trim_end())?;
        }
        if !self.largest_groups.is_empty() {
            writeln!(f, "\nin use by")?;
        }
        for group in &self.largest_groups {
            let bytes = words::bytes(group.requested_bytes);
            write!(f, "{bytes:>12} in {}: ", words::blocks(group.blocks))?;
            group.write_caller(f, 16)?;
            writeln!(f)?;
        }
        write!(f, "\nadvice: {}", self.advice())
    }
}

/// The table of `Display`, then the last error of the allocator, as when `main` returns the error.
impl fmt::Debug for OutOfMemoryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)?;
        match &self.source {
            Some(source) => write!(f, "\n\ncause: {source:?}"),
            None => Ok(()),
        }
    }
}

impl StdError for OutOfMemoryReport {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use binpool_allocators::OutOfMemory;

    use super::*;

    /// The report of a request of 2 MiB where 1 MiB of a limit of 4 MiB is left.
    fn limited() -> OutOfMemoryReport {
        let refusal = OutOfMemory::new(2 << 20, Scope::Limit).with_available(1 << 20);
        OutOfMemoryReport {
            requested_bytes: 2 << 20,
            class_bytes: 2 << 20,
            active_bytes: 3 << 20,
            active_blocks: 3,
            viewed_bytes: 0,
            managed_bytes: 3 << 20,
            held_bytes: 0,
            pending_bytes: 0,
            largest_held_bytes: 0,
            released_bytes: 0,
            largest_block_bytes: 8 << 20,
            capacity_bytes: 4 << 20,
            device_bytes: 8 << 20,
            verdict: Verdict::Limited,
            largest_groups: Vec::new(),
            source: Some(refusal.into()),
        }
    }

    #[test]
    fn what_is_left_is_said_of_a_limit_alone() {
        let report = limited();
        assert!(report.to_string().contains("1.0 MiB left"), "{report}");
        let refusal = OutOfMemory::new(2 << 20, Scope::Device).with_available(1 << 20);
        let report = OutOfMemoryReport {
            source: Some(refusal.into()),
            ..limited()
        };
        assert!(!report.to_string().contains(" left"), "{report}");
    }

    #[test]
    fn a_request_of_the_limit_is_not_larger_than_it() {
        for (class_bytes, is_larger) in [(4 << 20, false), ((4 << 20) + 256, true)] {
            let report = OutOfMemoryReport {
                class_bytes,
                ..limited()
            };
            let larger = report.to_string().contains("larger than the limit");
            assert_eq!(larger, is_larger, "{report}");
        }
    }

    #[test]
    fn who_has_blocks_in_use_is_told_to_free_some() {
        let report = limited();
        let elsewhere = "this pool has no block in use";
        assert!(!report.advice().contains(elsewhere), "{report}");
        let report = OutOfMemoryReport {
            active_blocks: 0,
            ..limited()
        };
        assert!(report.advice().contains(elsewhere), "{report}");
    }

    #[test]
    fn who_does_not_watch_is_told_to_where_that_would_name_a_block() {
        let group = LiveGroup {
            tag: Some("weights".into()),
            call_site: None,
            blocks: 3,
            requested_bytes: 3 << 20,
            oldest: Duration::ZERO,
            youngest: Duration::ZERO,
        };
        for (active_blocks, largest_groups, is_told) in [
            (3, Vec::new(), true),
            (0, Vec::new(), false),
            (3, vec![group], false),
        ] {
            let report = OutOfMemoryReport {
                active_blocks,
                largest_groups,
                ..limited()
            };
            assert_eq!(
                report.to_string().contains("`watch` the pool"),
                is_told,
                "{report}"
            );
        }
    }
}

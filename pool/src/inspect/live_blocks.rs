//! The blocks that are in use, and their callers.

use std::{collections::HashMap, fmt, time::Duration};

use binpool_allocators::{Backend, words};

use crate::{
    LiveGroup, MemoryPool,
    shared::{Shared, State},
    track::{caller::Caller, names},
};

/// The active blocks of a pool, by caller. Sizes in bytes.
///
/// `Display` prints a table. At a moment when a program should have freed everything, it is a list of
/// leaks.
///
/// ```
/// use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder, Tag, WatchOptions};
/// # use binpool_mock::MockDevice;
///
/// # let backend = MockDevice::new().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
/// pool.watch(WatchOptions::new());
/// let weights = Tag::new("weights").within(|| pool.allocate(3 << 20))?;
/// drop(pool.allocate(1 << 20)?);
///
/// let live = pool.live_blocks();
/// assert_eq!((live.blocks, live.requested_bytes), (1, 3 << 20));
/// assert!(live.held_bytes >= 1 << 20, "free, and kept for the next request: cached, not leaked");
/// assert_eq!(live.groups[0].tag.as_deref(), Some("weights"));
/// println!("{live}");
/// # Ok::<(), binpool::PoolError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LiveBlocks {
    /// The active blocks: allocated and not freed.
    pub blocks: u64,
    /// Their bytes, as requested.
    pub requested_bytes: u64,
    /// The device memory that they take, in bytes, including gaps between them in segments: managed bytes that are not
    /// cached.
    pub device_bytes: u64,
    /// Free bytes that the pool keeps for the next requests. They are cached, not leaked:
    /// [`free_held`](MemoryPool::free_held) releases them.
    pub held_bytes: u64,
    /// Active blocks without a known caller: those allocated before the pool began to [watch](MemoryPool::watch), or
    /// all if it does not watch. May include a block that another thread is allocating at this moment.
    pub unknown_blocks: u64,
    /// Their bytes, as requested.
    pub unknown_bytes: u64,
    /// All other active blocks by tag and call site, the most bytes first.
    pub groups: Vec<LiveGroup>,
}

/// # Live blocks
impl<B: Backend> MemoryPool<B> {
    /// Returns the active blocks by caller, if the pool [watches](Self::watch). For finding leaks: at a moment when the
    /// program should have no blocks, every block listed is a leak. Takes the pool's lock.
    ///
    /// A watching pool logs this when its last handle is dropped while blocks are in use. That need not be a leak:
    /// blocks may outlive their pool.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder, WatchOptions};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// let weights = pool.allocate(64 << 20)?;
    /// pool.watch(WatchOptions::new());
    /// let mut forgotten = Vec::new();
    /// for step in 0..10 {
    ///     let block = pool.allocate(4096)?;
    ///     if step == 3 {
    ///         forgotten.push(block);
    ///     }
    /// }
    /// // Between two steps there should be the weights, and nothing else.
    /// let live = pool.live_blocks();
    /// assert_eq!((live.unknown_blocks, live.unknown_bytes), (1, 64 << 20)); // From before the watch.
    /// assert_eq!((live.blocks, live.groups[0].requested_bytes), (2, 4096));
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    #[must_use]
    pub fn live_blocks(&self) -> LiveBlocks {
        self.handle().live_blocks()
    }
}

impl<B: Backend> Shared<B> {
    pub(crate) fn live_blocks(&self) -> LiveBlocks {
        self.return_unviewed();
        self.inspect(State::live_blocks)
    }

    /// Logs which blocks outlive the pool, if it tracks blocks.
    pub(crate) fn log_live_blocks(&self) {
        if !self.tracking.is_on() {
            return;
        }
        let live = self.live_blocks();
        if live.blocks > 0 {
            tracing::warn!(
                blocks = live.blocks,
                bytes = live.requested_bytes,
                "blocks are still in use after the last handle of their pool was dropped:\n{live}"
            );
        }
    }
}

impl<B: Backend> State<B> {
    /// Must be called while the thread caches are empty and closed.
    fn live_blocks(&self) -> LiveBlocks {
        let mut groups: HashMap<Caller, LiveGroup> = HashMap::new();
        if let Some(event_buffer) = &self.watch.event_buffer {
            for (_, ownership) in self.watch.allocations.active() {
                let age = event_buffer.ticks().since(ownership.since);
                let group = groups.entry(ownership.caller).or_insert_with(|| LiveGroup {
                    tag: names::name_of(ownership.caller.tag),
                    call_site: names::name_of(ownership.caller.call_site),
                    blocks: 0,
                    requested_bytes: 0,
                    oldest: age,
                    youngest: age,
                });
                group.blocks += 1;
                group.requested_bytes += ownership.asked;
                group.oldest = group.oldest.max(age);
                group.youngest = group.youngest.min(age);
            }
        }
        let mut groups: Vec<_> = groups.into_values().collect();
        groups.sort_by(|one, other| {
            let by_bytes = other.requested_bytes.cmp(&one.requested_bytes);
            by_bytes.then_with(|| (&one.tag, &one.call_site).cmp(&(&other.tag, &other.call_site)))
        });
        let known_blocks: u64 = groups.iter().map(|group| group.blocks).sum();
        let known_bytes: u64 = groups.iter().map(|group| group.requested_bytes).sum();
        let statistics = self.statistics();
        LiveBlocks {
            blocks: statistics.active_blocks,
            requested_bytes: statistics.active_bytes,
            device_bytes: statistics
                .managed_bytes
                .saturating_sub(statistics.held_bytes),
            held_bytes: statistics.held_bytes,
            unknown_blocks: statistics.active_blocks.saturating_sub(known_blocks),
            unknown_bytes: statistics.active_bytes.saturating_sub(known_bytes),
            groups,
        }
    }
}

/// The ages from the youngest to the oldest, in the unit that fits the oldest.
fn ages(youngest: Duration, oldest: Duration) -> String {
    let (millis, unit) = match oldest.as_secs() {
        0 => (1, "ms"),
        1..120 => (1000, "s"),
        120..7200 => (60_000, "min"),
        _ => (3_600_000, "h"),
    };
    match [youngest, oldest].map(|age| age.as_millis() / millis) {
        [youngest, oldest] if youngest == oldest => format!("{oldest} {unit}"),
        [youngest, oldest] => format!("{youngest} - {oldest} {unit}"),
    }
}

impl fmt::Display for LiveBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "in use: {}, {} (leaked, if nothing should be in use now)\n\
             cached: {}, kept by the pool for the next requests (not leaked)",
            words::blocks(self.blocks),
            words::bytes(self.requested_bytes),
            words::bytes(self.held_bytes)
        )?;
        if self.blocks > 0 {
            let (head, oldest) = ("in use", "age");
            write!(f, "\n\n{:>10} {head:>12} {oldest:>16}  asked for", "blocks")?;
        }
        for group in &self.groups {
            let ages = ages(group.youngest, group.oldest);
            write!(
                f,
                "\n{:>10} {:>12} {ages:>16}  ",
                group.blocks,
                words::bytes(group.requested_bytes)
            )?;
            group.write_caller(f, 42)?;
        }
        if self.unknown_blocks > 0 {
            let bytes = words::bytes(self.unknown_bytes);
            let (blocks, ages) = (self.unknown_blocks, "?");
            write!(
                f,
                "\n{blocks:>10} {bytes:>12} {ages:>16}  before the pool watched: see `MemoryPool::watch`"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_told_in_the_unit_that_fits_it() {
        for (millis, text) in [
            (999, "999 ms"),
            (1_000, "1 s"),
            (119_999, "119 s"),
            (120_000, "2 min"),
            (7_199_000, "119 min"),
            (7_200_000, "2 h"),
        ] {
            let age = Duration::from_millis(millis);
            assert_eq!(ages(age, age), text);
        }
        let [young, old] = [753, 2_999].map(Duration::from_millis);
        assert_eq!(ages(young, old), "0 - 2 s", "of one unit");
    }

    #[test]
    fn the_table_has_a_line_for_each_group_and_one_for_the_blocks_of_before() {
        let group = |tag: &str, blocks, youngest, oldest| LiveGroup {
            tag: Some(tag.into()),
            call_site: None,
            blocks,
            requested_bytes: blocks << 20,
            oldest: Duration::from_secs(oldest),
            youngest: Duration::from_secs(youngest),
        };
        let mut live = LiveBlocks {
            blocks: 4,
            requested_bytes: 7 << 20,
            device_bytes: 8 << 20,
            held_bytes: 0,
            unknown_blocks: 1,
            unknown_bytes: 4 << 20,
            groups: vec![group("weights", 2, 3, 3), group("batch", 1, 3, 240)],
        };
        let text = live.to_string();
        let table = text.split_once("\n\n").map(|(_, table)| table);
        let expected = "    blocks       in use              age  asked for
         2      2.0 MiB              3 s  weights
         1      1.0 MiB        0 - 4 min  batch
         1      4.0 MiB                ?  before the pool watched: see `MemoryPool::watch`";
        assert_eq!(table, Some(expected));

        live.unknown_blocks = 0;
        assert!(!live.to_string().contains("before the pool watched"));
        (live.blocks, live.groups) = (0, Vec::new());
        assert_eq!(live.to_string().lines().count(), 2, "no table");
    }
}

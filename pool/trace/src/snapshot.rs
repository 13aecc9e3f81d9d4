//! A pool at one moment, as data.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{TraceError, TraceErrorKind};

/// The value of [`Snapshot::format`].
const FORMAT: &str = "binpool snapshot";

/// The version of the schema that this crate writes, and the only one that it reads.
const VERSION: u32 = 1;

/// A pool at one moment: its segments, blocks, counters and settings. All sizes in bytes, all times in nanoseconds.
///
/// `S` are the counters, which the pool has as a type of its own.
///
/// As JSON ([`to_json`](Self::to_json), [`from_json`](Self::from_json)) it is what `binpool view` draws. The schema is
/// the types here, field by field; enumerations are words in lower case with `_` for spaces; fields that are `None` are
/// left out. A new field does not change the [`version`](Self::version); a field that is removed or changes its meaning
/// does. Readers should ignore fields that they do not know.
///
/// ```
/// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
/// # use binpool_mock::MockDevice;
/// use binpool::Snapshot;
///
/// # let backend = MockDevice::new().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
/// let block = pool.allocate(64 << 20)?;
/// let file = tempfile::NamedTempFile::new()?;
/// std::fs::write(file.path(), pool.snapshot().to_json()?)?;
///
/// // Later, in a program that looks at it.
/// let snapshot = Snapshot::from_json(&std::fs::read_to_string(file.path())?)?;
/// assert_eq!(snapshot.version, 1);
/// assert_eq!(snapshot.statistics.active_bytes, 64 << 20);
/// assert_eq!((snapshot.segments.len(), snapshot.blocks.len()), (1, 0));
/// assert!(snapshot.out_of_memory.is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot<S = Counters> {
    /// `"binpool snapshot"`.
    pub format: String,
    /// The version of the schema: 1.
    pub version: u32,
    /// When it was taken, in milliseconds since 1970 (UTC).
    pub unix_time_ms: u64,
    /// The settings of the pool, and the limits of its allocator.
    pub settings: SnapshotSettings,
    /// Its counters.
    pub statistics: S,
    /// Its segments; empty for a pool without segments.
    pub segments: Vec<SnapshotSegment>,
    /// The blocks outside of segments. Active ones are included only if the pool watches
    /// blocks.
    pub blocks: Vec<SnapshotBlock>,
    /// The allocation that failed, if the snapshot was taken because of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out_of_memory: Option<SnapshotShortage>,
}

/// The settings of a pool and the limits of its allocator.
///
/// ```
/// # use binpool::{Backend, ImmediateAllocator, PoolOptions, Retain, QueueOrder, ReusePolicy};
/// # use binpool_mock::MockDevice;
/// # let backend = MockDevice::new().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let pool = PoolOptions::new()
///     .reuse(ReusePolicy::InsertWait)
///     .retain(Retain::new().at_most(256 << 20))
///     .build(ImmediateAllocator::new(&backend)?, &queue)?;
/// let settings = pool.snapshot().settings;
/// assert_eq!(settings.device, "mock device");
/// assert_eq!(settings.reuse, "insert_wait");
/// assert_eq!(settings.release_threshold_bytes, Some(256 << 20));
/// assert!(settings.segments && settings.is_holding && !settings.is_watching);
/// # Ok::<(), binpool::PoolError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotSettings {
    /// The name of the device.
    pub device: String,
    /// All memory of the device, in bytes.
    pub device_bytes: u64,
    /// The most that the allocator can allocate in all, in bytes.
    pub capacity_bytes: u64,
    /// The largest block that the allocator can allocate, in bytes.
    pub largest_block_bytes: u64,
    /// The alignment of blocks, in bytes.
    pub alignment_bytes: u64,
    /// True if blocks are carved from segments.
    pub segments: bool,
    /// How blocks are reused across queues: `same_queue`, `opportunistic`, `insert_wait`, `wait_on_host`.
    pub reuse: String,
    /// When blocks are filled with zeros: `never`, `on_free`, `on_hand_out`.
    pub scrub: String,
    /// Above this number of managed bytes, free memory is released at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release_threshold_bytes: Option<u64>,
    /// True if freed blocks are held.
    pub is_holding: bool,
    /// True if the pool watches which caller has which block.
    pub is_watching: bool,
}

/// A segment, with all of its bytes from the first to the last.
///
/// ```
/// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
/// # use binpool_mock::MockDevice;
/// # let backend = MockDevice::new().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
/// use binpool::BlockState;
///
/// let [first, second, third] = [(); 3].map(|()| pool.allocate(4096).unwrap());
/// drop(second);
/// // How much of each segment is free, and in how many pieces.
/// for segment in pool.snapshot().segments {
///     let mut free = segment.ranges;
///     free.retain(|range| range.state != BlockState::Active);
///     let sizes: Vec<_> = free.iter().map(|range| range.bytes).collect();
///     assert_eq!(sizes, [4096, segment.bytes - 3 * 4096]);
/// }
/// # Ok::<(), binpool::PoolError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotSegment {
    /// The identity of its memory.
    pub memory: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its ranges without gaps, the first at offset 0.
    pub ranges: Vec<SnapshotBlock>,
}

/// A block, or a free range of a segment.
///
/// ```
/// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder, Tag, WatchOptions};
/// # use binpool_mock::MockDevice;
/// # let backend = MockDevice::new().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
/// pool.watch(WatchOptions::new());
/// let weights = Tag::new("weights").within(|| pool.allocate(1000))?;
/// let snapshot = pool.snapshot();
/// let block = &snapshot.segments[0].ranges[0];
/// assert_eq!((block.offset, block.bytes), (0, 1024));
/// assert_eq!(block.requested_bytes, Some(1000));
/// assert_eq!(block.tag.as_deref(), Some("weights"));
/// assert!(block.call_site.is_some() && block.age_ns.is_some()); // `None` if the pool did not watch.
/// # Ok::<(), binpool::PoolError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotBlock {
    /// Its offset in its segment, in bytes; 0 outside of one.
    pub offset: u64,
    /// The bytes that it takes of the device.
    pub bytes: u64,
    /// Its state.
    pub state: BlockState,
    /// The requested bytes, if it is active and watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_bytes: Option<u64>,
    /// The tag of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// The call site of the request: `file:line:column`, or the frames of a backtrace, one a line, innermost first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_site: Option<String>,
    /// The number of the queue that it was requested for; for a held block or a free range, of the queue whose order alone keeps it
    /// from other users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<u64>,
    /// How long it has been active, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_ns: Option<u64>,
}

/// The state of a block or range.
///
/// ```
/// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
/// # use binpool_mock::MockDevice;
/// # let backend = MockDevice::new().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
/// use std::collections::HashMap;
///
/// use binpool::BlockState;
///
/// let kept = pool.allocate(16 << 20)?;
/// drop(pool.allocate(8 << 20)?);
/// // The device's memory, by state.
/// let mut bytes = HashMap::<_, u64>::new();
/// let segments = pool.snapshot().segments;
/// for range in segments.iter().flat_map(|segment| &segment.ranges) {
///     *bytes.entry(range.state).or_default() += range.bytes;
/// }
/// assert_eq!(bytes[&BlockState::Active], 16 << 20);
/// assert_eq!(bytes[&BlockState::Held], 8 << 20); // Cached, not leaked.
/// # Ok::<(), binpool::PoolError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockState {
    /// Allocated by the program.
    Active,
    /// Held by the pool as a block, for the next request of its class: cached, not leaked.
    Held,
    /// Held by the pool, but not reusable at once: commands on several queues, or on an out-of-order queue, may still use it.
    /// The pending blocks and ranges together have the pending bytes of the counters.
    Pending,
    /// Held by the pool: a range of a segment, for requests of any class.
    #[default]
    Free,
    /// Out of use until it can be filled with zeros, or released.
    Withheld,
}

/// An allocation that failed for lack of memory, from its report. Sizes in bytes.
///
/// ```
/// # use binpool::{Backend, ImmediateAllocator, PoolOptions, QueueOrder, Tag, WatchOptions};
/// # use binpool_mock::MockDevice;
/// use binpool::Snapshot;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let backend = MockDevice::builder().capacity_bytes(64 << 20).build().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let directory = tempfile::tempdir()?;
/// let pool = PoolOptions::new()
///     .snapshot_at_out_of_memory(directory.path())
///     .build(ImmediateAllocator::new(&backend)?, &queue)?;
/// pool.watch(WatchOptions::new());
/// let gradients = Tag::new("gradients");
/// assert!(gradients.within(|| pool.allocate(128 << 20)).is_err());
///
/// let mut files = std::fs::read_dir(&directory)?;
/// let path = files.next().ok_or("no snapshot")??.path();
/// let snapshot = Snapshot::from_json(&std::fs::read_to_string(path)?)?;
/// let shortage = snapshot.out_of_memory.ok_or("taken for another reason")?;
/// assert_eq!(shortage.requested_bytes, 128 << 20);
/// assert_eq!(shortage.verdict, "never_fits");
/// assert_eq!(shortage.tag.as_deref(), Some("gradients"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotShortage {
    /// The requested bytes.
    pub requested_bytes: u64,
    /// The size of its class.
    pub class_bytes: u64,
    /// The bytes that the pool still held.
    pub held_bytes: u64,
    /// The part of these that pending commands may still use.
    pub pending_bytes: u64,
    /// The largest block that was still held.
    pub largest_held_bytes: u64,
    /// What the pool released for this request, which was not enough.
    pub released_bytes: u64,
    /// The cause in a word: `never_fits`, `limited`, `fragmented`, `pending`, `device_full`.
    pub verdict: String,
    /// The cause in a sentence.
    pub reason: String,
    /// What can be done about it.
    pub advice: String,
    /// The tag of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// The call site of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_site: Option<String>,
}

/// The counters of a pool, by their names.
pub type Counters = serde_json::Map<String, serde_json::Value>;

impl<S> Snapshot<S> {
    /// The [`format`](field@Self::format) of a snapshot.
    pub const FORMAT: &'static str = FORMAT;

    /// The [`version`](field@Self::version) of the schema that this crate writes, and the only one that it reads.
    pub const VERSION: u32 = VERSION;
}

impl Snapshot {
    /// Returns the counter of this name; 0 if the snapshot does not have it.
    #[must_use]
    pub fn counter(&self, name: &str) -> u64 {
        let counter = self.statistics.get(name);
        counter.and_then(serde_json::Value::as_u64).unwrap_or(0)
    }
}

impl<S: Serialize> Snapshot<S> {
    /// Returns the snapshot as JSON, in several lines.
    ///
    /// # Errors
    ///
    /// None in practice: every snapshot can be written as JSON.
    pub fn to_json(&self) -> Result<String, TraceError> {
        serde_json::to_string_pretty(self).map_err(not_json)
    }
}

impl<S: DeserializeOwned> Snapshot<S> {
    /// Reads what [`to_json`](Self::to_json) wrote.
    ///
    /// # Errors
    ///
    /// [`TraceError`], if the text is not JSON, has another format, or an unknown version.
    ///
    /// ```
    /// use binpool::{Snapshot, TraceErrorKind};
    ///
    /// let kind = |json| Snapshot::from_json(json).unwrap_err().kind();
    /// assert_eq!(kind("a 0 4096 0 17"), TraceErrorKind::Malformed); // A trace, say.
    /// assert_eq!(kind(r#"{"format": "something else"}"#), TraceErrorKind::Foreign);
    /// let newer = r#"{"format": "binpool snapshot", "version": 2}"#;
    /// assert_eq!(kind(newer), TraceErrorKind::Version);
    /// ```
    pub fn from_json(json: &str) -> Result<Self, TraceError> {
        /// The fields that say whether the rest can be read.
        #[derive(Deserialize)]
        struct Head {
            #[serde(default)]
            format: String,
            #[serde(default)]
            version: u32,
        }

        let head: Head = serde_json::from_str(json).map_err(not_json)?;
        if head.format != FORMAT {
            return Err(TraceError::new(
                TraceErrorKind::Foreign,
                format_args!(
                    "not a snapshot of a pool: its format is {:?}, expected {FORMAT:?}",
                    head.format
                ),
            ));
        }
        if head.version != VERSION {
            return Err(TraceError::new(
                TraceErrorKind::Version,
                format_args!(
                    "a snapshot of version {}, where this binpool knows {VERSION}: \
                     read it with the version of binpool that wrote it",
                    head.version
                ),
            ));
        }
        serde_json::from_str(json).map_err(not_json)
    }
}

/// It is not JSON, or lacks fields of a snapshot.
fn not_json(error: serde_json::Error) -> TraceError {
    TraceError::malformed("not a snapshot of a pool").because(error)
}

//! A pool at one moment, as data.

mod files;
mod taking;

use serde::{Deserialize, Serialize};

use crate::PoolStatistics;

/// What a file of a snapshot calls itself.
const FORMAT: &str = "binpool snapshot";

/// The version of the schema that this crate writes, and the only one that it reads.
const VERSION: u32 = 1;

/// A pool at one moment: its segments, blocks, counters and settings. All sizes in bytes, all times in nanoseconds.
///
/// As JSON ([`to_json`](Self::to_json), [`from_json`](Self::from_json)) it is what `binpool view` draws. The schema is that
/// of the types here, field by field; enumerations are words in lower case with `_` for spaces; what is `None` is left out.
/// A new field does not change the [`version`](Self::version), a field that goes or changes its meaning does. Readers are
/// to ignore fields that they do not know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Snapshot {
    /// `"binpool snapshot"`.
    pub format: String,
    /// The version of the schema: 1.
    pub version: u32,
    /// When it was taken, in milliseconds since 1970 (UTC).
    pub unix_time_ms: u64,
    /// How the pool is set up, and on what.
    pub settings: SnapshotSettings,
    /// Its counters.
    pub statistics: PoolStatistics,
    /// Its segments; none in a pool of plain bins.
    pub segments: Vec<SnapshotSegment>,
    /// The blocks that are none of a segment. Those in users' hands are among them only where the pool
    /// [watches](crate::MemoryPool::watch) blocks.
    pub blocks: Vec<SnapshotBlock>,
    /// The allocation that failed, where this is why the snapshot was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out_of_memory: Option<SnapshotShortage>,
}

/// The settings of a pool and the limits of its allocator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SnapshotSettings {
    /// The name of the device.
    pub device: String,
    /// All memory of the device.
    pub device_bytes: u64,
    /// All that the allocator can give.
    pub capacity_bytes: u64,
    /// The largest block that it gives in one piece.
    pub largest_block_bytes: u64,
    /// What blocks start on a multiple of.
    pub alignment_bytes: u64,
    /// Whether blocks are carved from segments.
    pub segments: bool,
    /// How blocks are reused across queues: `same_queue`, `opportunistic`, `insert_wait`, `wait_on_host`.
    pub reuse: String,
    /// Whether blocks are filled with zeros: `never`, `on_free`, `on_hand_out`.
    pub scrub: String,
    /// Above so many managed bytes free memory goes back at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release_threshold_bytes: Option<u64>,
    /// Whether blocks that come back are held.
    pub is_holding: bool,
    /// Whether the pool [watches](crate::MemoryPool::watch) who has which block.
    pub is_watching: bool,
}

/// A segment, and all of its bytes from the first to the last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SnapshotSegment {
    /// The identity of its memory.
    pub memory: u64,
    /// Its size.
    pub bytes: u64,
    /// Its ranges, next to each other, the first at 0.
    pub ranges: Vec<SnapshotBlock>,
}

/// A block, or a free range of a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SnapshotBlock {
    /// Where it begins in its segment; 0 outside of one.
    pub offset: u64,
    /// What it takes of the device.
    pub bytes: u64,
    /// Who has it.
    pub state: BlockState,
    /// What was asked for, where it is active and watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_bytes: Option<u64>,
    /// The tag under which it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Where in the program it was asked for: `file:line:column`, or the frames of a backtrace, one a line, innermost first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_site: Option<String>,
    /// The number of the queue that it was asked for on, or whose order alone keeps it from its next user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<u64>,
    /// How long its user has had it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_ns: Option<u64>,
}

/// Who has a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BlockState {
    /// The program.
    Active,
    /// The pool, whole, for the next request of its class: cached, not leaked.
    Held,
    /// The pool; but commands may still use it.
    Pending,
    /// The pool: a range of a segment for requests of any class.
    #[default]
    Free,
    /// Nobody, until it can be filled with zeros, or given back: see
    /// [`ScrubPolicy`](crate::ScrubPolicy).
    Withheld,
}

/// An allocation that failed for lack of memory: what the [report](crate::OutOfMemoryReport) says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SnapshotShortage {
    /// What was asked for.
    pub requested_bytes: u64,
    /// The size of its class.
    pub class_bytes: u64,
    /// Still held by the pool.
    pub held_bytes: u64,
    /// The part of it that pending commands may still use.
    pub pending_bytes: u64,
    /// The largest block that is still held.
    pub largest_held_bytes: u64,
    /// What the pool gave back for this request, without avail.
    pub released_bytes: u64,
    /// Why, in a word: `never_fits`, `limited`, `fragmented`, `pending`, `device_full`.
    pub verdict: String,
    /// Why, in a sentence.
    pub reason: String,
    /// What can be done about it.
    pub advice: String,
    /// The tag under which it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Where in the program it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_site: Option<String>,
}

/// Why JSON is not a snapshot.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// It is no JSON, or has not the fields of a snapshot.
    #[error("not a snapshot of a pool: {0}")]
    Json(#[from] serde_json::Error),
    /// It is something else.
    #[error("not a snapshot of a pool: its format is {found:?}, expected {FORMAT:?}")]
    Format {
        /// What it calls itself.
        found: String,
    },
    /// It is of a version that this crate does not know.
    #[error(
        "a snapshot of version {found}, of which this binpool knows {VERSION}: \
         read it with the version of binpool that wrote it"
    )]
    Version {
        /// Its version.
        found: u32,
    },
}

impl Snapshot {
    /// The snapshot as JSON, in several lines.
    ///
    /// # Errors
    ///
    /// None that can happen: all of it can be written as JSON.
    pub fn to_json(&self) -> Result<String, SnapshotError> {
        Ok(serde_json::to_string_pretty(self)?)
    }

    /// Reads what [`to_json`](Self::to_json) wrote.
    ///
    /// # Errors
    ///
    /// [`SnapshotError`], which says what it is instead.
    pub fn from_json(json: &str) -> Result<Self, SnapshotError> {
        /// What tells whether the rest can be read.
        #[derive(Deserialize)]
        struct Head {
            #[serde(default)]
            format: String,
            #[serde(default)]
            version: u32,
        }

        let head: Head = serde_json::from_str(json)?;
        if head.format != FORMAT {
            return Err(SnapshotError::Format { found: head.format });
        }
        if head.version != VERSION {
            return Err(SnapshotError::Version {
                found: head.version,
            });
        }
        Ok(serde_json::from_str(json)?)
    }
}

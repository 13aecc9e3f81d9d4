//! The figures of a pool, and its blocks in use.

use binpool::{LiveGroup as Group, PoolStatistics};
use pyo3::prelude::*;

/// The figures of a pool at one moment. As a string, a table.
#[pyclass(frozen, module = "binpool", name = "Statistics")]
pub(crate) struct Statistics(pub(crate) PoolStatistics);

/// Makes an attribute of each of these fields.
macro_rules! attributes {
    ($($field:ident),*) => {
        #[pymethods]
        impl Statistics {
            $(#[getter]
            fn $field(&self) -> u64 {
                self.0.$field
            })*

            /// The part of all requests that needed no memory of the device, from 0 to 1.
            #[getter]
            fn hit_rate(&self) -> f64 {
                self.0.hit_rate()
            }

            fn __str__(&self) -> String {
                self.0.to_string()
            }

            fn __repr__(&self) -> String {
                let PoolStatistics { active_bytes, managed_bytes, .. } = self.0;
                format!("<binpool.Statistics: {active_bytes} bytes in use of {managed_bytes}>")
            }
        }
    };
}

attributes! {
    active_blocks, active_bytes, peak_active_bytes, viewed_blocks, viewed_bytes, held_blocks, held_bytes, pending_blocks,
    pending_bytes, managed_bytes, peak_managed_bytes, hits, ended_hits, device_wait_hits, host_wait_hits, carved_hits, misses,
    empty_allocations, out_of_memory, released_blocks, maps, unmaps
}

/// Blocks in use that one line of the program, or one tag, has requested.
#[pyclass(frozen, module = "binpool", get_all)]
pub(crate) struct LiveGroup {
    /// The line of the program, as `file.py:12 in function`; `None` for blocks from before `watch`.
    call_site: Option<String>,
    /// The number of blocks.
    blocks: u64,
    /// The bytes that were requested for them.
    bytes: u64,
    /// The seconds since the oldest was requested.
    oldest_seconds: f64,
}

impl From<Group> for LiveGroup {
    fn from(group: Group) -> Self {
        Self {
            call_site: group.tag.or(group.call_site),
            blocks: group.blocks,
            bytes: group.requested_bytes,
            oldest_seconds: group.oldest.as_secs_f64(),
        }
    }
}

#[pymethods]
impl LiveGroup {
    fn __repr__(&self) -> String {
        let Self { blocks, bytes, .. } = self;
        let line = self.call_site.as_deref().unwrap_or("unknown line");
        format!("<binpool.LiveGroup: {blocks} blocks, {bytes} bytes, {line}>")
    }
}

//! The figures of a pool, and its blocks in use.

use std::cmp::Reverse;

use binpool::{LiveBlocks, LiveGroup as Group, PoolStatistics};
use pyo3::prelude::*;

use crate::call_site::tag_and_line;

/// The figures of a pool at one moment. As a string, a table.
#[pyclass(frozen, module = "binpool", name = "Statistics")]
pub(crate) struct Statistics(pub(crate) PoolStatistics);

/// Makes an attribute of each of the pool's fields.
macro_rules! attributes {
    (gauges: { $($gauge:ident: $unit:ident, $gauge_text:literal;)* } counters: { $($counter:ident, $counter_text:literal;)* }) => {
        #[pymethods]
        impl Statistics {
            $(#[getter]
            fn $gauge(&self) -> u64 {
                self.0.$gauge
            })*

            $(#[getter]
            fn $counter(&self) -> u64 {
                self.0.$counter
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

binpool::for_each_counter!(attributes);

/// Blocks in use that one line of the program has requested, under one tag.
#[pyclass(frozen, module = "binpool", get_all)]
pub(crate) struct LiveGroup {
    /// The tag that the program has entered; `None` if there was none.
    tag: Option<String>,
    /// The line of the program, as `file.py:12 in function`; `None` for blocks from before `watch`.
    call_site: Option<String>,
    /// The number of blocks.
    blocks: u64,
    /// The bytes that were requested for them.
    bytes: u64,
    /// The seconds since the oldest was requested; `None` for blocks from before `watch`.
    oldest_seconds: Option<f64>,
}

impl From<Group> for LiveGroup {
    fn from(group: Group) -> Self {
        let caller = group.tag.or(group.call_site);
        let (tag, line) = caller.as_deref().map(tag_and_line).unzip();
        Self {
            tag: tag.flatten().map(str::to_owned),
            call_site: line.map(str::to_owned),
            blocks: group.blocks,
            bytes: group.requested_bytes,
            oldest_seconds: Some(group.oldest.as_secs_f64()),
        }
    }
}

/// Returns the blocks in use by line and tag, the most bytes first.
pub(crate) fn groups_of(live: LiveBlocks) -> Vec<LiveGroup> {
    let mut groups: Vec<_> = live.groups.into_iter().map(LiveGroup::from).collect();
    if live.unknown_blocks > 0 {
        groups.push(LiveGroup {
            tag: None,
            call_site: None,
            blocks: live.unknown_blocks,
            bytes: live.unknown_bytes,
            oldest_seconds: None,
        });
        groups.sort_by_key(|group| Reverse(group.bytes));
    }
    groups
}

#[pymethods]
impl LiveGroup {
    fn __repr__(&self) -> String {
        let Self { blocks, bytes, .. } = self;
        let of_one = |count: &u64| if *count == 1 { "" } else { "s" };
        let (s, of_bytes) = (of_one(blocks), of_one(bytes));
        let tag = self.tag.iter().map(|tag| format!("{tag}, at "));
        let tag: String = tag.collect();
        let line = self.call_site.as_deref().unwrap_or("unknown line");
        format!("<binpool.LiveGroup: {blocks} block{s}, {bytes} byte{of_bytes}, {tag}{line}>")
    }
}

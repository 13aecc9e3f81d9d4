//! Pictures of a program's memory: what `binpool view` shows.
//!
//! ```text
//! a recording with places -> History::happened -+
//! any other trace         -> record -----------+-> History -> History::numbers -> page_data -> page (HTML) or timeline (SVG)
//! a snapshot of a pool    -> SnapshotNumbers                                               -> page (HTML)
//! ```
//!
//! A page is one file with all of its data, scripts and styles in it. Figures over the whole program are computed
//! here ([`Numbers`]); the page only draws them.

mod comparison;
mod free_memory;
mod grouping;
mod happened;
mod history;
mod neighbours;
mod numbers;
mod out_of_memory;
mod page;
mod page_data;
mod record;
mod segment_record;
mod series;
mod snapshot_numbers;
mod timeline;

pub use comparison::{Change, ChangeRow, ChangeTable, Comparison, Figure};
pub use free_memory::FreeMemory;
pub use grouping::By;
pub use history::{FailedRequest, History, Life, Origin, PoolEvent, Segment};
pub use neighbours::{Neighbour, Neighbours};
pub use numbers::{At, GroupRow, Numbers, ShortageRow, StackRow};
pub use out_of_memory::{LargestGroup, OutOfMemory};
pub use page::page_of;
pub use record::record;
pub use snapshot_numbers::{SnapshotNumbers, SnapshotRow};

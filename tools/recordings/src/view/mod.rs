//! Pictures of a program's memory: what `binpool view` shows.
//!
//! ```text
//! a recording with places -> History::happened --+
//! a replay of any trace   -> History::simulated -+-> History -> History::numbers -> page_data -> page (HTML)
//! a snapshot of a pool    -> SnapshotNumbers                                                  -> page (HTML)
//! ```
//!
//! A page is one file with all of its data, scripts and styles in it. Figures over the whole program are computed
//! here ([`History::numbers`], [`SnapshotNumbers`]); the page only draws them.

mod comparison;
mod free_memory;
mod grouping;
mod happened;
mod history;
mod lives;
mod neighbours;
mod numbers;
mod out_of_memory;
mod page;
mod page_data;
mod series;
mod snapshot_numbers;

pub use comparison::{Change, ChangeTable, Comparison};
pub use grouping::By;
pub use history::{FailedRequest, History, Origin};
pub use lives::{Life, Lives, Segment};
pub use page::page_of;
pub use snapshot_numbers::SnapshotNumbers;

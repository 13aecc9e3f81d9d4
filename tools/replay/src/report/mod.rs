//! The reports of the command: tables for people, and JSON.

mod import;
pub(crate) mod markdown_table;
mod memory;
mod replay;
mod rounds;
mod rows;

pub use import::{import_json, import_summary};
pub use memory::{caller, memory_report, named_beyond};
pub use replay::{behind_table, end_table, json, table};
pub use rounds::rounds_tables;
pub use rows::{Header, Row};

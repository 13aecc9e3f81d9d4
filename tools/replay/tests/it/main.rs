//! The tests of the command `binpool` and of its library. The sweep is beside this one, in a process of its own.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failing test panics")]

mod behind;
mod browser;
mod command;
mod common;
#[cfg(target_os = "linux")]
mod cuda;
mod device_costs;
mod devices;
mod framework_reports;
mod happened;
mod hostile;
mod import;
mod json_fields;
mod manners;
mod messages;
mod record;
mod recordings;
mod replays;
mod rounds;
#[cfg(target_os = "linux")]
mod run;
mod tune;
mod view;
mod view_axis;
mod view_blocks;
mod view_comparison;
mod view_drawing;
mod view_failures;
mod view_files;
mod view_filter;
mod view_imports;
mod view_page;
mod view_selection;
mod view_stacks;
mod view_waiting;
mod view_widths;

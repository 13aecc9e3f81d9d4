//! The commands, one file each, and what they share.

pub(crate) mod backends;
pub(crate) mod cli;
pub(crate) mod devices;
pub(crate) mod documents;
pub(crate) mod histories;
pub(crate) mod import;
pub(crate) mod output;
mod progress_bar;
pub(crate) mod replay;
#[cfg(all(target_os = "linux", feature = "run"))]
pub(crate) mod run;
pub(crate) mod tune;
mod values;
pub(crate) mod view;
mod view_options;
mod whole_file;

//! The commands, one file each, and what they share.

#[cfg(feature = "bench")]
pub(crate) mod bench;
mod chosen_profile;
pub(crate) mod cli;
pub(crate) mod color_choice;
#[cfg(feature = "bench")]
mod device_bench;
pub(crate) mod devices;
pub(crate) mod documents;
pub(crate) mod histories;
pub(crate) mod import;
pub(crate) mod output;
#[cfg(feature = "bench")]
pub(crate) mod own_process;
mod progress_bar;
pub(crate) mod replay;
mod terminal;
pub(crate) mod tune;
pub(crate) mod view;
mod whole_file;

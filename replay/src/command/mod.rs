//! The commands, a file each, and what they share.

pub(crate) mod bench;
pub(crate) mod cli;
pub(crate) mod color;
mod device_bench;
pub(crate) mod devices;
pub(crate) mod documents;
pub(crate) mod import;
pub(crate) mod output;
mod progress;
pub(crate) mod replay;
pub(crate) mod tune;
pub(crate) mod view;

//! Devices: which there are, how one is chosen, what it can hold and do.

pub(crate) mod characterize;
pub(crate) mod info;
pub(crate) mod limits;
mod memory_choice;
pub(crate) mod selector;

pub use characterize::Characterization;
pub use info::{DeviceInfo, DeviceKind, list_devices};
pub use memory_choice::MemoryChoice;
pub use selector::DeviceSelector;

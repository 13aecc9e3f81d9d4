//! Devices: the list of them, the choice of one, and its limits.

pub(crate) mod characterize;
pub(crate) mod image_limits;
pub(crate) mod info;
pub(crate) mod kind;
pub(crate) mod limits;
mod memory_choice;
pub(crate) mod selector;

pub use characterize::Characterization;
pub use image_limits::ImageLimits;
pub use info::{DeviceInfo, list_devices};
pub use kind::DeviceKind;
pub use memory_choice::MemoryChoice;
pub use selector::DeviceSelector;

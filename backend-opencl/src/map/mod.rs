//! Maps: memory of a device as slices of the host.
//!
//! ```text
//! map -> Map, MapMut            waits until the memory is there
//! enqueue_map -> PendingMap     does not; `wait` gives the map
//! drop, unmap, unmap_on         the device may use the memory again
//! ```
//!
//! While a map stands, a command that conflicts with it is refused with
//! [`Mapped`](binpool_allocators::InvalidRequest::Mapped): any command on bytes that are mapped to be written, and
//! commands that write bytes that are mapped to be read. Commands that were enqueued before come first. A map that is
//! forgotten (`mem::forget`) keeps the commands out for ever.

mod guard;
mod image;
mod mapping;
mod memory;
#[cfg(feature = "ndarray")]
mod shaped;

pub use guard::{Map, MapGuard, MapMut, PendingMap};
pub use image::{ImageMap, ImageMapMut};

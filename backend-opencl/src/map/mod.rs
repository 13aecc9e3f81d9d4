//! Maps: memory of a device as slices of the host.
//!
//! ```text
//! map -> Map, MapMut            waits until the memory is there
//! enqueue_map -> PendingMap     does not wait; `wait` returns the map
//! drop, unmap, unmap_on         the device may use the memory again
//! ```
//!
//! As long as a map exists, a command that conflicts with it is refused with
//! [`Mapped`](binpool_allocators::InvalidRequest::Mapped): any command on bytes that are mapped to be written, and commands
//! that write bytes that are mapped to be read. The map comes after commands that were enqueued before it. If it is
//! forgotten (`mem::forget`), such commands are refused forever.

mod guard;
#[cfg(feature = "images")]
mod image;
mod mapping;
mod memory;

pub use guard::{HostMap, Map, MapMut, PendingMap, Reads, Writes};
#[cfg(feature = "images")]
pub use image::{ImageMap, ImageMapMut};
pub use mapping::MapMode;

//! Commands that move bytes between the host and the device, or between any two kinds of memory, as runs of bytes or
//! rectangles; and commands that only order others.

pub(crate) mod copy;
pub(crate) mod fill;
pub(crate) mod host;
mod linear;
mod markers;
pub(crate) mod migration;
pub(crate) mod p2p;
pub(crate) mod parts;
mod rect;
mod scope;

pub use host::{PendingTransfer, TransferPart};
pub use migration::MigrationFlags;
pub use rect::{Rect, RectPart};
pub use scope::TransferScope;

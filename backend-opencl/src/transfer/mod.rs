//! Transfers beyond those of `Backend`: with a host side that is borrowed or handed over, of rectangles, of as much as
//! both sides have, and migrations.

mod copies;
pub(crate) mod copy;
mod migration;
mod owned;
pub(crate) mod p2p;
mod rect;
mod scope;

pub use migration::MigrationFlags;
pub use owned::PendingTransfer;
pub use rect::Rect;
pub use scope::TransferScope;

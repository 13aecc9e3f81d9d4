//! A request for a block.

/// A request for a block, in terms of the pool's size classes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// The requested bytes.
    pub(crate) asked: usize,
    pub(crate) bin: usize,
    /// The size of the block: that of its class, or the requested one if the class is too large for the device.
    pub(crate) bytes: usize,
}

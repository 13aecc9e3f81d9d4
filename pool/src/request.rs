//! What is asked of a pool.

/// A request in the terms of the pool's size classes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// The bytes asked for.
    pub(crate) asked: usize,
    pub(crate) bin: usize,
    /// The size of the block: the class's, or the exact one where the class is too large for the device.
    pub(crate) bytes: usize,
}

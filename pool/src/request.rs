//! A request for a block.

/// The size of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// The requested bytes.
    pub(crate) asked: usize,
    /// The same, rounded up to the alignment.
    pub(crate) bytes: usize,
    pub(crate) bin: usize,
}

/// A request for a block, in terms of the pool's size classes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// The requested bytes.
    pub(crate) asked: usize,
    pub(crate) bin: usize,
    /// The size of the block: that of its class, or the requested one if the class is too large for the device.
    pub(crate) bytes: usize,
    /// The arena of the thread that asks.
    pub(crate) home: usize,
}

impl Request {
    /// Returns the request as a range serves it: a small block, of up to `small_bytes` bytes, has `widened` bytes, so that it serves
    /// every later request of its slot of a thread cache.
    pub(crate) fn widened_to(self, widened: usize, small_bytes: usize) -> Self {
        if (self.bytes..=small_bytes).contains(&widened) {
            Self {
                bytes: widened,
                ..self
            }
        } else {
            self
        }
    }
}

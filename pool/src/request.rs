//! A request for a block, and how it was served.

/// The size of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// The requested bytes.
    pub(crate) asked: usize,
    /// The same, rounded up to the alignment.
    pub(crate) bytes: usize,
    pub(crate) bin: usize,
    /// The slot of the bin in a thread cache.
    pub(crate) slot: usize,
}

/// A request for a block, in terms of the pool's size classes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// The requested bytes.
    pub(crate) asked: usize,
    pub(crate) bin: usize,
    /// The slot of the bin in a thread cache.
    pub(crate) slot: usize,
    /// The size of the block: that of its class, or the requested one if the class is too large for the device.
    pub(crate) bytes: usize,
    /// The arena of the thread that asks.
    pub(crate) home: usize,
}

/// The way in which a request got its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HitKind {
    /// The queue could use it at once: by its own order, or because no command used the block.
    Ready,
    /// Another queue or an out-of-order queue had used it, and the commands there had ended.
    Ended,
    /// The queue was made to wait for the commands of the former user.
    DeviceWait,
    /// The host waited for the commands of the former user.
    HostWait,
    /// It was carved from a segment of the pool.
    Carved,
    /// The allocator made the block, or the segment that it was carved from.
    Fresh,
}

/// Returns the bytes to carve for a block whose class has `bytes` bytes. A small block, of up to `small_bytes` bytes, gets the `widened`
/// bytes of the largest class in its slot of a thread cache, so that it serves every later request of the slot.
pub(crate) fn to_carve(bytes: usize, small_bytes: usize, widened: impl FnOnce() -> usize) -> usize {
    if bytes > small_bytes {
        return bytes;
    }
    let widened = widened();
    if (bytes..=small_bytes).contains(&widened) {
        widened
    } else {
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_block_is_carved_with_the_largest_class_of_its_slot_unless_that_is_not_small() {
        for (bytes, small_bytes, widened, carved) in [
            (1024, 4096, 1280, 1280),
            (4096, 4096, 5120, 4096),
            (3840, 4096, 4096, 4096),
            (5120, 4096, 5120, 5120),
            // The program's own size classes may be wrong.
            (1024, 4096, 512, 1024),
        ] {
            assert_eq!(to_carve(bytes, small_bytes, || widened), carved, "{bytes}");
        }
        to_carve(4096, 4095, || unreachable!("it is not small"));
        let mut has_asked = false;
        to_carve(4096, 4096, || {
            has_asked = true;
            4096
        });
        assert!(has_asked);
    }
}

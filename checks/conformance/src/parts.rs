//! Parts of memory: whatever is passed to a call, offsets count from its start, and the bytes beside it stay as they are.

use binpool_allocators::{AsMemory, Backend, Event, InvalidRequest, MemoryFlags, Region};

use crate::bench::{is_out_of_bounds, numbered, refusal, transfers_refused};

/// The bytes `region` of some memory, without a memory object of its own.
///
/// ```
/// use binpool_allocators::{AsMemory, Backend, MemoryFlags, QueueOrder, Region};
/// use binpool_conformance::{part_of, transfers_keep_to};
/// # use binpool_mock::MockDevice;
///
/// # let backend = MockDevice::new().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let block = backend.create_buffer(1000, MemoryFlags::empty())?;
/// let part = part_of(&block, Region::new(3, 600));
/// assert_eq!((part.start(), part.size()), (3, 600));
/// transfers_keep_to(&backend, &queue, (&block, 3), &part);
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
pub fn part_of<B: Backend>(of: &dyn AsMemory<B>, region: Region) -> impl AsMemory<B> {
    Part { of, region }
}

struct Part<'a, B> {
    of: &'a dyn AsMemory<B>,
    region: Region,
}

impl<B: Backend> AsMemory<B> for Part<'_, B> {
    fn size(&self) -> usize {
        self.region.bytes
    }

    fn start(&self) -> usize {
        self.of.start() + self.region.offset
    }

    fn memory_on(&self, queue: &B::Queue) -> Option<&B::Memory> {
        self.of.memory_on(queue)
    }
}

/// Checks that each transfer of [`Backend`] which is given `part`, a part of 512 bytes or more that starts at byte `start` of `whole`, counts
/// from the part's start, ends at its end, and changes no byte of `whole` beside it.
pub fn transfers_keep_to<B: Backend>(
    backend: &B,
    queue: &B::Queue,
    (whole, start): (&dyn AsMemory<B>, usize),
    part: &dyn AsMemory<B>,
) {
    let size = part.size();
    let other = backend.create_buffer(size, MemoryFlags::empty());
    let other = other.expect("a small buffer");
    backend.write(queue, &other, 0, &numbered(size)).unwrap();
    let mut expected = vec![255; whole.size()];
    backend.write(queue, whole, 0, &expected).unwrap();
    let mut changed = |call: &str, at: usize, data: &[u8]| {
        expected[start + at..][..data.len()].copy_from_slice(data);
        let mut bytes = vec![0; expected.len()];
        backend.read(queue, whole, 0, &mut bytes).unwrap();
        assert!(bytes == expected, "{call} at {at} of the part at {start}");
    };
    backend.write(queue, part, 3, &[2_u8; 5]).unwrap();
    changed("write", 3, &[2; 5]);
    backend.write(queue, part, size - 1, &[6_u8]).unwrap();
    changed("write", size - 1, &[6]);
    let written = backend.enqueue_write(queue, part, 9, [3, 4, 5].into());
    written.unwrap().wait().unwrap();
    changed("enqueue_write", 9, &[3, 4, 5]);
    for length in [1, 2, 3, 4, 8, 16, 64, 128] {
        let pattern: Vec<u8> = (1..).take(length).collect();
        let region = Region::new(length, 2 * length);
        let filled = backend.enqueue_fill(queue, part, region, &pattern);
        filled.unwrap().wait().unwrap();
        changed("enqueue_fill", length, &pattern.repeat(2));
    }
    let copied = backend.enqueue_copy(queue, &other, 7..107, part, 33);
    copied.unwrap().wait().unwrap();
    changed("enqueue_copy", 33, &numbered(107)[7..]);
    let copied = backend.enqueue_copy(queue, part, 1..101, &other, 5);
    copied.unwrap().wait().unwrap();
    let own = &expected[start..][..size];
    let mut bytes = vec![0; size];
    backend.read(queue, &other, 0, &mut bytes).unwrap();
    assert_eq!(bytes[5..105], own[1..101], "enqueue_copy from the part");
    backend.read(queue, part, 2, &mut bytes[2..]).unwrap();
    assert_eq!(bytes[2..], own[2..], "read of the part");
    let read = backend.enqueue_read(queue, part, 4..).unwrap();
    assert_eq!(read.wait().unwrap(), own[4..], "enqueue_read of the part");
    let mismatch = backend.enqueue_fill(queue, part, Region::new(2, 8), &[0_u8; 4]);
    let named = InvalidRequest::PatternMismatch {
        offset: 2,
        bytes: 8,
        pattern: 4,
    };
    assert_eq!(refusal(mismatch), named, "the offset is that in the part");
    let end = Region::new(size - 1, 2);
    transfers_refused(backend, queue, (part, end), &other, is_out_of_bounds);
}

/// Checks [`transfers_keep_to`] for parts, views, parts of views and parts of parts of `block`, which has 1600 bytes and three alignments more.
pub(crate) fn every_part<B: Backend>(backend: &B, queue: &B::Queue, block: &B::Memory) {
    let step = backend.limits().alignment.bytes();
    let view = backend.create_sub_region(block, Region::new(step, step + 1100));
    let view = view.expect("an aligned region within bounds");
    let outer = part_of(block, Region::new(1, 1200));
    let parts = |offset| {
        let region = Region::new(offset, 600);
        [
            (offset, part_of(block, region)),
            (1 + offset, part_of(&outer, region)),
            (step + offset, part_of(&view, region)),
        ]
    };
    for (start, part) in [0, 1, 2, 4, 6, 12, 100].into_iter().flat_map(parts) {
        transfers_keep_to(backend, queue, (block, start), &part);
    }
    transfers_keep_to(backend, queue, (block, step), &view);
}

//! Sizes, regions and bytes.

use binpool_allocators::Region;
use binpool_conformance::Random;

/// A size of a block, mostly small.
pub(crate) fn size(random: &mut Random) -> usize {
    const SIZES: [usize; 10] = [4, 64, 256, 1000, 1024, 2048, 4096, 4100, 8192, 20_000];
    SIZES[random.below(SIZES.len())]
}

/// A region of some of `bytes` bytes.
pub(crate) fn region(bytes: usize, random: &mut Random) -> Region {
    if random.below(4) == 0 {
        return Region::first(bytes);
    }
    let offset = random.below(bytes);
    Region::new(offset, 1 + random.below(bytes - offset))
}

/// A region of whole elements of this many bytes; `None` if the memory is smaller than one.
pub(crate) fn whole_region(bytes: usize, element: usize, random: &mut Random) -> Option<Region> {
    let elements = bytes / element;
    if elements == 0 {
        return None;
    }
    let Region { offset, bytes } = region(elements, random);
    Some(Region::new(offset * element, bytes * element))
}

pub(crate) fn bytes(count: usize, random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(count + 8);
    while bytes.len() < count {
        bytes.extend_from_slice(&random.next().to_ne_bytes());
    }
    bytes.truncate(count);
    bytes
}

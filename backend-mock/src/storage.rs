//! The bytes of a block, in the host's memory. All of this crate's unsafe code is here.
//!
//! # Invariants
//!
//! - S1: `allocation` came from `alloc_zeroed` with `layout`, and is freed only when the `Storage` drops.
//! - S2: the `bytes` bytes from `start` on lie inside the allocation.
//! - S3: references to the bytes exist only while a [`Claim`] is inside the storage's turnstile, which lets one in at a
//!   time.

use std::{
    alloc::{Layout, alloc_zeroed, dealloc},
    ptr::NonNull,
    slice,
    sync::Arc,
};

use binpool_allocators::{Align, Region};
use smallvec::SmallVec;

use crate::turnstile::Turnstile;

/// The alignment that the host's allocator gives zeroed memory without touching its pages.
const HOST_ALIGNMENT: usize = 16;

/// The bytes of one block. They start as zeros, and cost the host a page only where they are touched.
#[derive(Debug)]
pub(crate) struct Storage {
    allocation: NonNull<u8>,
    layout: Layout,
    start: NonNull<u8>,
    bytes: usize,
    turnstile: Turnstile,
}

// SAFETY: the allocation belongs to this value alone (S1), and does not care which thread frees it.
unsafe impl Send for Storage {}
// SAFETY: shared references give access to the bytes through claims only, one at a time (S3).
unsafe impl Sync for Storage {}

impl Storage {
    /// `bytes` bytes of zeros at a multiple of `alignment`, or `None` if the host has no room for them.
    pub(crate) fn zeroed(bytes: usize, alignment: Align) -> Option<Self> {
        // The start is rounded up by hand: for a larger alignment than its own, the host's allocator
        // writes the zeros itself, and would touch every page of the block.
        let slack = alignment.bytes().saturating_sub(HOST_ALIGNMENT);
        let size = bytes.max(1).checked_add(slack)?;
        let layout = Layout::from_size_align(size, HOST_ALIGNMENT).ok()?;
        // SAFETY: the layout has at least one byte.
        let allocation = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        let offset = allocation.align_offset(alignment.bytes());
        debug_assert!(offset <= slack, "the host aligns to {HOST_ALIGNMENT} bytes");
        Some(Self {
            // SAFETY: the allocation starts on a multiple of `HOST_ALIGNMENT`, so that the offset to the next
            // multiple of a larger power of two is at most `slack`, and `slack + bytes` at most the length of
            // the allocation.
            start: unsafe { allocation.add(offset) },
            allocation,
            layout,
            bytes,
            turnstile: Turnstile::default(),
        })
    }

    /// Where the bytes start.
    pub(crate) fn address(&self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        // SAFETY: S1. No reference is left: a claim keeps an `Arc` of the storage.
        unsafe { dealloc(self.allocation.as_ptr(), self.layout) };
    }
}

/// A range of a block's bytes.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) storage: Arc<Storage>,
    pub(crate) region: Region,
}

impl Span {
    /// Its first byte.
    fn first(&self) -> *mut u8 {
        self.storage.start.as_ptr().wrapping_add(self.region.offset)
    }
}

/// The bytes that a command reads, or that it writes.
#[derive(Clone, Debug)]
pub(crate) enum Bytes {
    /// Those of a block.
    Whole(Span),
    /// A copy of these, one after the other, which goes back to them if it is written: of pages, since the same ones may be mapped elsewhere,
    /// too, or of what a copy reads within the block that it writes.
    Copied(SmallVec<[Span; 1]>),
}

impl Bytes {
    fn spans(&self) -> &[Span] {
        match self {
            Self::Whole(span) => slice::from_ref(span),
            Self::Copied(spans) => spans,
        }
    }

    /// The bytes that are copied for the command.
    fn copied(&self) -> &[Span] {
        match self {
            Self::Whole(_) => &[],
            Self::Copied(spans) => spans,
        }
    }

    fn whole(&self) -> Option<&Span> {
        match self {
            Self::Whole(span) => Some(span),
            Self::Copied(_) => None,
        }
    }
}

pub(crate) type Operands = SmallVec<[Bytes; 2]>;

/// Why a claim was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Another claim holds one of the blocks.
    Busy,
    /// Bytes to write overlap others of the same block, or a span leaves its block.
    Malformed,
}

/// The exclusive right to touch some bytes, until it is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    reads: Operands,
    writes: Operands,
    /// The blocks that this claim holds, each once.
    held: SmallVec<[Arc<Storage>; 2]>,
}

impl Claim {
    /// Claims the blocks of all these bytes, or none.
    pub(crate) fn new(reads: Operands, writes: Operands) -> Result<Self, Refused> {
        let mut spans = reads.iter().chain(&writes).flat_map(Bytes::spans);
        let well_formed = spans.all(|span| span.region.check_within(span.storage.bytes).is_ok());
        let written = writes.iter().filter_map(Bytes::whole);
        let shared = written.clone().enumerate().any(|(index, write)| {
            let others = written.clone().skip(index + 1);
            let mut others = others.chain(reads.iter().filter_map(Bytes::whole));
            others.any(|other| {
                Arc::ptr_eq(&write.storage, &other.storage) && write.region.overlaps(other.region)
            })
        });
        if !well_formed || shared {
            return Err(Refused::Malformed);
        }
        let mut claim = Self {
            reads,
            writes,
            held: SmallVec::new(),
        };
        for span in claim
            .reads
            .iter()
            .chain(&claim.writes)
            .flat_map(Bytes::spans)
        {
            let mut held = claim.held.iter();
            if held.any(|held| Arc::ptr_eq(held, &span.storage)) {
                continue;
            }
            if !span.storage.turnstile.enter() {
                // Dropping the claim releases the blocks that it holds so far.
                return Err(Refused::Busy);
            }
            claim.held.push(Arc::clone(&span.storage));
        }
        Ok(claim)
    }

    /// Calls `body` with the bytes.
    pub(crate) fn touch<R>(self, body: impl FnOnce(&[&[u8]], &mut [&mut [u8]]) -> R) -> R {
        let copies = |operands: &Operands| -> SmallVec<[Vec<u8>; 2]> {
            let copies = operands.iter().map(|bytes| {
                let mut copy = Vec::new();
                for span in bytes.copied() {
                    // SAFETY: as below, and nothing has references to blocks yet.
                    copy.extend_from_slice(unsafe {
                        slice::from_raw_parts(span.first(), span.region.bytes)
                    });
                }
                copy
            });
            copies.collect()
        };
        let (read_copies, mut written_copies) = (copies(&self.reads), copies(&self.writes));
        let reads: SmallVec<[&[u8]; 2]> = (self.reads.iter().zip(&read_copies))
            .map(|(bytes, copy)| match bytes {
                // SAFETY: (1) the span lies inside its block (checked in `new`), and the block inside its
                // allocation (S2), which `self.held` keeps alive; (2) the bytes were zeroed when they were
                // made; (3) no other claim has references to the block (S3), and no span to write of this one
                // shares a byte with this span (checked in `new`); copies are made before and go back after.
                Bytes::Whole(span) => unsafe {
                    slice::from_raw_parts(span.first(), span.region.bytes)
                },
                Bytes::Copied(_) => copy,
            })
            .collect();
        let mut writes: SmallVec<[&mut [u8]; 2]> = (self.writes.iter().zip(&mut written_copies))
            .map(|(bytes, copy)| match bytes {
                // SAFETY: as above, and no two spans to write share a byte (checked in `new`).
                Bytes::Whole(span) => unsafe {
                    slice::from_raw_parts_mut(span.first(), span.region.bytes)
                },
                Bytes::Copied(_) => copy,
            })
            .collect();
        let result = body(&reads, &mut writes);
        drop((reads, writes));
        for (bytes, copy) in self.writes.iter().zip(&written_copies) {
            let mut rest = copy.as_slice();
            for span in bytes.copied() {
                let (bytes, others) = rest.split_at(span.region.bytes);
                // SAFETY: as above, and nothing has references to blocks any more.
                unsafe { slice::from_raw_parts_mut(span.first(), span.region.bytes) }
                    .copy_from_slice(bytes);
                rest = others;
            }
        }
        result
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        for storage in &self.held {
            storage.turnstile.leave();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        panic::{AssertUnwindSafe, catch_unwind},
        sync::Arc,
    };

    use binpool_allocators::{Align, Region};

    use super::{Bytes, Claim, Operands, Refused, Span, Storage};

    fn storage(bytes: usize) -> Arc<Storage> {
        Arc::new(Storage::zeroed(bytes, Align::new(64).unwrap()).unwrap())
    }

    fn span(storage: &Arc<Storage>, offset: usize, bytes: usize) -> Operands {
        spans(storage, &[(offset, bytes)])
    }

    fn spans(storage: &Arc<Storage>, regions: &[(usize, usize)]) -> Operands {
        let span = |(offset, bytes): &(usize, usize)| {
            Bytes::Whole(Span {
                storage: Arc::clone(storage),
                region: Region::new(*offset, *bytes),
            })
        };
        regions.iter().map(span).collect()
    }

    #[test]
    fn starts_as_zeros_on_its_alignment() {
        for bytes in [0, 1, 100, 1 << 17] {
            for alignment in [1, 2, 16, 32, 4096, 1 << 16] {
                let storage = Storage::zeroed(bytes, Align::new(alignment).unwrap()).unwrap();
                assert_eq!(storage.address().addr().get() % alignment, 0);
                let all = span(&Arc::new(storage), 0, bytes);
                let claim = Claim::new(all, Operands::new()).unwrap();
                assert!(claim.touch(|reads, _| reads[0].iter().all(|byte| *byte == 0)));
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri ends when its own host has no memory")]
    fn what_no_host_has_is_refused() {
        assert!(Storage::zeroed(usize::MAX, Align::ONE).is_none());
        assert!(Storage::zeroed(isize::MAX as usize, Align::new(4096).unwrap()).is_none());
        assert!(Storage::zeroed(1 << 60, Align::ONE).is_none());
    }

    #[test]
    fn a_block_is_claimed_by_one_at_a_time() {
        let (one, two) = (storage(64), storage(64));
        let claim = Claim::new(span(&one, 0, 8), span(&one, 8, 8)).unwrap();
        assert_eq!(
            Claim::new(span(&one, 32, 8), Operands::new()).unwrap_err(),
            Refused::Busy
        );
        // A claim that fails halfway holds no block.
        assert_eq!(
            Claim::new(span(&two, 0, 8), span(&one, 32, 8)).unwrap_err(),
            Refused::Busy
        );
        assert!(Claim::new(Operands::new(), span(&two, 0, 8)).is_ok());
        drop(claim);
        assert!(Claim::new(span(&one, 32, 8), Operands::new()).is_ok());
    }

    /// Wherever they stand among others that do neither.
    #[test]
    fn spans_that_alias_or_leave_their_block_are_refused() {
        let block = storage(64);
        let good = [(32, 4), (40, 4), (48, 4)];
        let is_refused = |reads: &[(usize, usize)], writes: &[(usize, usize)]| {
            let claim = Claim::new(spans(&block, reads), spans(&block, writes));
            claim.is_err_and(|refused| refused == Refused::Malformed)
        };
        assert!(!is_refused(&good, &[(0, 8)]));
        assert!(!is_refused(&[(0, 8)], &good));
        for place in 0..=good.len() {
            let among = |bad| {
                let mut all = good.to_vec();
                all.insert(place, bad);
                all
            };
            for outside in [(64, 1), (1, usize::MAX)] {
                assert!(is_refused(&among(outside), &[]), "{place}");
                assert!(is_refused(&[], &among(outside)), "{place}");
            }
            // One to read against one to write, and the other way round; and two to write.
            assert!(is_refused(&among((0, 9)), &[(8, 8)]), "{place}");
            assert!(is_refused(&[(8, 8)], &among((0, 9))), "{place}");
            for other in 0..=place {
                let mut both = among((0, 9));
                both.insert(other, (8, 8));
                assert!(is_refused(&[], &both), "{other}, {place}");
                // Spans to read may overlap.
                assert!(!is_refused(&both, &[(20, 4)]), "{other}, {place}");
            }
        }
    }

    #[test]
    fn copied_spans_are_one_slice_whose_bytes_go_back_to_them() {
        let pages = [storage(8), storage(8)];
        let of_both = |regions: [(usize, usize); 2]| {
            let spans = pages
                .iter()
                .zip(regions)
                .map(|(page, (offset, bytes))| Span {
                    storage: Arc::clone(page),
                    region: Region::new(offset, bytes),
                });
            Operands::from_iter([Bytes::Copied(spans.collect())])
        };
        let claim = Claim::new(Operands::new(), of_both([(6, 2), (0, 3)])).unwrap();
        assert!(Claim::new(span(&pages[1], 0, 1), Operands::new()).is_err());
        claim.touch(|_, writes| writes[0].copy_from_slice(&[1, 2, 3, 4, 5]));
        // The same bytes may be read and written: what is read is from before.
        let claim = Claim::new(of_both([(5, 3), (0, 4)]), of_both([(7, 1), (0, 1)])).unwrap();
        claim.touch(|reads, writes| {
            assert_eq!(*reads, [&[0, 1, 2, 3, 4, 5, 0]]);
            writes[0].fill(9);
            assert_eq!(*reads, [&[0, 1, 2, 3, 4, 5, 0]]);
        });
        for (page, (offset, expected)) in pages.iter().zip([(6, [1, 9]), (0, [9, 4])]) {
            let claim = Claim::new(span(page, offset, 2), Operands::new()).unwrap();
            claim.touch(|reads, _| assert_eq!(*reads, [&expected]));
        }
    }

    #[test]
    fn a_panic_gives_the_claim_back() {
        let block = storage(64);
        let claim = Claim::new(Operands::new(), span(&block, 0, 8)).unwrap();
        let result = catch_unwind(AssertUnwindSafe(|| {
            claim.touch(|_, _| panic!("on purpose"))
        }));
        assert!(result.is_err());
        assert!(Claim::new(Operands::new(), span(&block, 0, 8)).is_ok());
    }
}

//! Allocators that break their promises.

use std::sync::atomic::{AtomicU32, Ordering};

use binpool_allocators::{
    Align, Allocator, Backend, Event, ImmediateAllocator, InvalidRequest, MemoryFlags, Region,
    Result,
};
use binpool_conformance::{AllocatorFixture, allocator_checks, run_all};
use binpool_mock::{MockBackend, MockDevice, MockEvent, MockMemory};

use crate::{CAPACITY, assert_noticed};

/// What is wrong with an allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defect {
    None,
    BlocksAreOneByteShort,
    BlocksOverlap,
    NoBytesAreOneByte,
    TooLargeIsTheLargest,
    TheLargestIsTooLarge,
    NothingIsCommitted,
    ReleaseLeaks,
    ReleaseWaits,
    TheHostIsKeptOut,
    AnswersChange,
}

/// Each defect, and the check that is to notice it.
const DEFECTS: &[(Defect, &str)] = &[
    (Defect::BlocksAreOneByteShort, "blocks_are_large_enough"),
    (Defect::BlocksOverlap, "live_blocks_do_not_overlap"),
    (Defect::BlocksOverlap, "threads_share_an_allocator"),
    (
        Defect::BlocksOverlap,
        "a_view_of_a_released_block_keeps_its_bytes",
    ),
    (
        Defect::NoBytesAreOneByte,
        "sizes_that_never_fit_are_refused",
    ),
    (
        Defect::TooLargeIsTheLargest,
        "sizes_that_never_fit_are_refused",
    ),
    (
        Defect::TheLargestIsTooLarge,
        "a_block_of_the_largest_size_is_no_invalid_request",
    ),
    (
        Defect::NothingIsCommitted,
        "shortage_shows_when_the_allocator_says",
    ),
    (
        Defect::ReleaseLeaks,
        "shortage_shows_when_the_allocator_says",
    ),
    (
        Defect::ReleaseWaits,
        "a_block_can_be_released_while_commands_use_it",
    ),
    (
        Defect::TheHostIsKeptOut,
        "parts_of_blocks_keep_to_themselves",
    ),
    (
        Defect::AnswersChange,
        "a_boxed_allocator_is_the_same_allocator",
    ),
];

/// An allocator with one defect.
#[derive(Debug)]
struct Broken {
    defect: Defect,
    sound: ImmediateAllocator<MockBackend>,
    /// What all blocks are the first part of, where they overlap.
    block: MockMemory,
    /// How often it was asked whether it is deferred.
    questions: AtomicU32,
}

impl Allocator for Broken {
    type Backend = MockBackend;

    fn backend(&self) -> &MockBackend {
        self.sound.backend()
    }

    fn allocate(&self, bytes: usize) -> Result<MockMemory> {
        let largest = self.largest_block();
        match self.defect {
            Defect::BlocksAreOneByteShort => self.sound.allocate(bytes - 1),
            Defect::BlocksOverlap => {
                let part = Region::first(bytes);
                self.backend().create_sub_region(&self.block, part)
            }
            Defect::NoBytesAreOneByte => self.sound.allocate(bytes.max(1)),
            Defect::TooLargeIsTheLargest => self.sound.allocate(bytes.min(largest)),
            Defect::TheLargestIsTooLarge if bytes == largest => Err(InvalidRequest::TooLarge {
                requested: bytes,
                largest: largest - 1,
            }
            .into()),
            Defect::NothingIsCommitted => self.backend().create_buffer(bytes, MemoryFlags::empty()),
            Defect::TheHostIsKeptOut => self
                .backend()
                .create_buffer(bytes, MemoryFlags::HOST_NO_ACCESS),
            _ => self.sound.allocate(bytes),
        }
    }

    fn release(&self, memory: MockMemory, after: &[MockEvent]) -> Result<()> {
        match self.defect {
            Defect::ReleaseLeaks => {
                let _leaked = memory.into_handle();
                Ok(())
            }
            Defect::ReleaseWaits => {
                for event in after {
                    event.wait()?;
                }
                self.sound.release(memory, after)
            }
            _ => self.sound.release(memory, after),
        }
    }

    fn is_deferred(&self) -> bool {
        let questions = self.questions.fetch_add(1, Ordering::Relaxed);
        self.defect == Defect::AnswersChange && questions > 0
    }

    fn alignment(&self) -> Align {
        self.sound.alignment()
    }
}

impl AllocatorFixture for Defect {
    type Allocator = Broken;

    fn allocator(&self) -> Broken {
        let device = MockDevice::builder().capacity_bytes(CAPACITY).build();
        let backend = device.backend();
        Broken {
            defect: *self,
            sound: ImmediateAllocator::new(&backend).unwrap(),
            // Committed by its first use only, so that it takes no room from other defects.
            block: backend
                .create_buffer(1 << 18, MemoryFlags::empty())
                .unwrap(),
            questions: AtomicU32::new(0),
        }
    }

    fn enforced_capacity(&self) -> Option<u64> {
        Some(CAPACITY)
    }
}

#[test]
fn every_defect_of_an_allocator_is_noticed_by_the_check_of_its_promise() {
    let checks = allocator_checks();
    let report = run_all(&checks, &Defect::None);
    assert!(report.passed(), "{report}");
    assert_noticed(&checks, DEFECTS);
}

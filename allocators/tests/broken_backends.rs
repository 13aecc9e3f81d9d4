//! The conformance suite notices a broken backend, and the check that notices is the one that says so.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failing test panics")]

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use binpool_allocators::{
    Backend, DeviceLimits, Event, MemoryFlags, Outcome, PendingRead, QueueOrder, Region, Result,
    conformance::{Fixture, backend_checks},
};
use binpool_mock::{MockBackend, MockDevice, MockEvent, MockMemory, MockQueue};

const CAPACITY: u64 = 1 << 24;

/// What is wrong with a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defect {
    None,
    FillIgnoresItsOffset,
    FillIgnoresItsLength,
    CopyIsOneByteShort,
    CopyOverlaps,
    WriteIgnoresItsOffset,
    WaitListIsIgnored,
    CommitSucceedsAlways,
    ReleaseLeaks,
    RegionStartsAnywhere,
    RegionOfARegionIsOneOfTheBlock,
    QueueIsNotChecked,
    MarkerWaitsForNothing,
    BarrierIsAMarker,
    SizeIsRoundedUp,
    UserEventsCompleteAlways,
    ReadsComeEarly,
}

/// The mock, with one defect.
#[derive(Clone, Debug)]
struct Broken {
    backend: MockBackend,
    defect: Defect,
}

impl Broken {
    fn has(&self, defect: Defect) -> bool {
        self.defect == defect
    }

    fn heeded<'e>(&self, wait_for: &'e [MockEvent]) -> &'e [MockEvent] {
        if self.has(Defect::WaitListIsIgnored) {
            &[]
        } else {
            wait_for
        }
    }
}

impl Backend for Broken {
    type Memory = MockMemory;
    type Queue = MockQueue;
    type Event = MockEvent;

    fn limits(&self) -> &DeviceLimits {
        self.backend.limits()
    }

    fn create_queue(&self, order: QueueOrder) -> Result<MockQueue> {
        self.backend.create_queue(order)
    }

    fn check_queue(&self, queue: &MockQueue) -> Result<()> {
        if self.has(Defect::QueueIsNotChecked) {
            return Ok(());
        }
        self.backend.check_queue(queue)
    }

    fn create_buffer(&self, bytes: usize, flags: MemoryFlags) -> Result<MockMemory> {
        let bytes = if self.has(Defect::SizeIsRoundedUp) {
            bytes.checked_next_multiple_of(64).unwrap_or(bytes)
        } else {
            bytes
        };
        self.backend.create_buffer(bytes, flags)
    }

    fn create_sub_region(&self, parent: &MockMemory, mut region: Region) -> Result<MockMemory> {
        if self.has(Defect::RegionStartsAnywhere) {
            region.offset -= region.offset % self.limits().alignment.bytes();
        }
        if self.has(Defect::RegionOfARegionIsOneOfTheBlock) {
            region.offset = 0;
        }
        self.backend.create_sub_region(parent, region)
    }

    fn commit(&self, queue: &MockQueue, memory: &MockMemory) -> Result<()> {
        match self.backend.commit(queue, memory) {
            Err(error) if error.is_out_of_memory() && self.has(Defect::CommitSucceedsAlways) => {
                Ok(())
            }
            result => result,
        }
    }

    fn release(&self, memory: MockMemory, after: &[MockEvent]) -> Result<()> {
        if self.has(Defect::ReleaseLeaks) {
            std::mem::forget(memory);
            return Ok(());
        }
        self.backend.release(memory, after)
    }

    fn write(
        &self,
        queue: &MockQueue,
        memory: &MockMemory,
        offset: usize,
        data: &[u8],
        wait_for: &[MockEvent],
    ) -> Result<()> {
        let offset = match self.has(Defect::WriteIgnoresItsOffset) {
            true => 0,
            false => offset,
        };
        self.backend
            .write(queue, memory, offset, data, self.heeded(wait_for))
    }

    fn read(
        &self,
        queue: &MockQueue,
        memory: &MockMemory,
        offset: usize,
        data: &mut [u8],
        wait_for: &[MockEvent],
    ) -> Result<()> {
        self.backend
            .read(queue, memory, offset, data, self.heeded(wait_for))
    }

    fn enqueue_write(
        &self,
        queue: &MockQueue,
        memory: &MockMemory,
        offset: usize,
        data: Arc<[u8]>,
        wait_for: &[MockEvent],
    ) -> Result<MockEvent> {
        self.backend
            .enqueue_write(queue, memory, offset, data, self.heeded(wait_for))
    }

    fn enqueue_read(
        &self,
        queue: &MockQueue,
        memory: &MockMemory,
        region: Region,
        wait_for: &[MockEvent],
    ) -> Result<PendingRead<MockEvent>> {
        let read = self
            .backend
            .enqueue_read(queue, memory, region, self.heeded(wait_for))?;
        if !self.has(Defect::ReadsComeEarly) {
            return Ok(read);
        }
        let bytes = region.bytes;
        Ok(PendingRead::new(read.event().clone(), move || {
            vec![0; bytes]
        }))
    }

    fn enqueue_copy(
        &self,
        queue: &MockQueue,
        source: &MockMemory,
        mut from: Region,
        destination: &MockMemory,
        to: usize,
        wait_for: &[MockEvent],
    ) -> Result<MockEvent> {
        if self.has(Defect::CopyIsOneByteShort) {
            from.bytes = from.bytes.saturating_sub(1);
        }
        let copy =
            self.backend
                .enqueue_copy(queue, source, from, destination, to, self.heeded(wait_for));
        if self.has(Defect::CopyOverlaps) && copy.is_err() {
            return self.backend.enqueue_marker(queue, wait_for);
        }
        copy
    }

    fn enqueue_fill(
        &self,
        queue: &MockQueue,
        memory: &MockMemory,
        mut region: Region,
        pattern: &[u8],
        wait_for: &[MockEvent],
    ) -> Result<MockEvent> {
        if self.has(Defect::FillIgnoresItsOffset) {
            region.offset = 0;
        }
        if self.has(Defect::FillIgnoresItsLength) {
            region = Region::first(binpool_allocators::Memory::bytes(memory));
        }
        self.backend
            .enqueue_fill(queue, memory, region, pattern, self.heeded(wait_for))
    }

    fn enqueue_marker(&self, queue: &MockQueue, wait_for: &[MockEvent]) -> Result<MockEvent> {
        if self.has(Defect::MarkerWaitsForNothing) {
            self.backend.check_queue(queue)?;
            let event = self.backend.create_user_event()?;
            self.backend.resolve_user_event(&event, Outcome::Complete)?;
            return Ok(event);
        }
        self.backend.enqueue_marker(queue, wait_for)
    }

    fn enqueue_barrier(&self, queue: &MockQueue, wait_for: &[MockEvent]) -> Result<MockEvent> {
        if self.has(Defect::BarrierIsAMarker) {
            return self.backend.enqueue_marker(queue, wait_for);
        }
        self.backend.enqueue_barrier(queue, wait_for)
    }

    fn create_user_event(&self) -> Result<MockEvent> {
        self.backend.create_user_event()
    }

    fn resolve_user_event(&self, event: &MockEvent, outcome: Outcome) -> Result<()> {
        let outcome = match self.has(Defect::UserEventsCompleteAlways) {
            true => Outcome::Complete,
            false => outcome,
        };
        self.backend.resolve_user_event(event, outcome)?;
        let _seen = event.status();
        Ok(())
    }
}

impl Fixture for Defect {
    type Backend = Broken;

    fn backend(&self) -> Broken {
        let device = MockDevice::builder().capacity_bytes(CAPACITY).build();
        Broken {
            backend: device.backend(),
            defect: *self,
        }
    }

    fn enforced_capacity(&self) -> Option<u64> {
        Some(CAPACITY)
    }
}

/// The checks that a backend with this defect does not pass. The threaded ones are left out: a mock that reports
/// endless waits is not for threads.
fn failing(defect: Defect) -> Vec<&'static str> {
    let checks = backend_checks::<Defect>().into_iter();
    checks
        .filter(|check| !check.name.starts_with("threads_"))
        .filter(|check| catch_unwind(AssertUnwindSafe(|| (check.run)(&defect))).is_err())
        .map(|check| check.name)
        .collect()
}

#[test]
fn every_defect_is_noticed_by_the_check_of_its_promise() {
    assert_eq!(failing(Defect::None), [""; 0]);
    for (defect, check) in [
        (
            Defect::FillIgnoresItsOffset,
            "a_fill_stays_within_its_region",
        ),
        (
            Defect::FillIgnoresItsLength,
            "a_fill_stays_within_its_region",
        ),
        (Defect::CopyIsOneByteShort, "a_copy_moves_just_its_region"),
        (Defect::CopyOverlaps, "an_overlapping_copy_is_refused"),
        (Defect::WriteIgnoresItsOffset, "offsets_are_kept_to"),
        (
            Defect::WaitListIsIgnored,
            "a_gated_command_waits_for_its_gate",
        ),
        (
            Defect::CommitSucceedsAlways,
            "an_immediate_allocator_tells_of_shortage_and_leaks_nothing",
        ),
        (Defect::ReleaseLeaks, "freed_memory_can_be_had_again"),
        (
            Defect::RegionStartsAnywhere,
            "a_region_must_be_aligned_and_the_error_says_how",
        ),
        (
            Defect::RegionOfARegionIsOneOfTheBlock,
            "a_region_is_a_window_into_its_block",
        ),
        (Defect::QueueIsNotChecked, "a_foreign_queue_is_refused"),
        (
            Defect::MarkerWaitsForNothing,
            "a_marker_waits_for_everything_before",
        ),
        (
            Defect::BarrierIsAMarker,
            "a_barrier_holds_back_what_comes_after",
        ),
        (
            Defect::SizeIsRoundedUp,
            "a_buffer_has_the_size_that_was_asked_for",
        ),
        (
            Defect::UserEventsCompleteAlways,
            "a_failed_gate_fails_what_waits_for_it",
        ),
        (
            Defect::ReadsComeEarly,
            "transfers_with_events_move_the_same_bytes",
        ),
    ] {
        let failing = failing(defect);
        assert!(
            failing.contains(&check),
            "{defect:?}: only {failing:?} failed"
        );
    }
}

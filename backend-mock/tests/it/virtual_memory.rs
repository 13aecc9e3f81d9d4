//! What the mock does with virtual memory beside what every backend does: it reports misuse, its calls can fail, and the contents of pages
//! are in each place at which they are mapped.

use std::{sync::mpsc, thread};

use binpool_allocators::{
    Backend, Error, Event, InvalidRequest, Memory, Outcome, Queue, QueueOrder, Region,
    VirtualMemory,
};
use binpool_mock::{
    CallKind, Completion, Fault, MockBackend, MockDevice, MockEvent, MockMemory, MockQueue,
    Persistence, Violation,
};

const PAGE: usize = 2 << 20;

fn device() -> MockDevice {
    MockDevice::builder()
        .virtual_memory(true)
        .capacity_bytes(64 * PAGE as u64)
        .build()
}

fn queue(backend: &MockBackend) -> MockQueue {
    backend.create_queue(QueueOrder::InOrder).unwrap()
}

#[test]
fn fresh_pages_are_zeros_whatever_was_at_their_addresses() {
    let backend = device().backend();
    let queue = queue(&backend);
    let reservation = backend.reserve(PAGE).unwrap();
    for _ in 0..2 {
        let pages = backend.create_pages(PAGE).unwrap();
        backend.map(&reservation, 0, &pages).unwrap();
        let mut byte = [9_u8];
        backend.read(&queue, &reservation, 5, &mut byte).unwrap();
        assert_eq!(byte, [0]);
        backend.write(&queue, &reservation, 5, &[7_u8]).unwrap();
        backend.unmap(&reservation, Region::first(PAGE)).unwrap();
    }
}

#[test]
fn memory_is_found_by_each_of_its_addresses_and_by_no_other() {
    let backend = device().backend();
    let reservation = backend.reserve(2 * PAGE).unwrap();
    let start = reservation.device_address().unwrap();
    let end = start + 2 * PAGE as u64;
    for (address, bytes) in [(start, 2 * PAGE), (start + 5, 7), (end - 1, 1), (start, 0)] {
        let found = backend.memory_at(address, bytes).unwrap();
        let place = (found.device_address().unwrap(), found.bytes());
        assert_eq!(place, (address, bytes));
    }
    for (address, bytes) in [(start, usize::MAX), (end - 1, 2), (end, 1), (0, 1)] {
        assert!(backend.memory_at(address, bytes).is_err(), "{address:x}");
    }
    assert!(backend.memory_at(u64::MAX, 1).is_err());
}

#[test]
fn reservations_are_refused_once_no_addresses_are_left() {
    let backend = device().backend();
    let reserved: Vec<_> = (0..8).map(|_| backend.reserve(1 << 62)).collect();
    let (found, refused): (Vec<_>, Vec<_>) = reserved.into_iter().partition(Result::is_ok);
    assert_eq!((found.len(), refused.len()), (3, 5));
    let last = found.into_iter().next_back().unwrap().unwrap();
    let view = backend.create_sub_region(&last, Region::new(1 << 61, 256));
    let start = last.device_address().unwrap();
    assert_eq!(view.unwrap().device_address().unwrap(), start + (1 << 61));
}

#[test]
fn only_pages_take_of_the_device() {
    let device = device();
    let backend = device.backend();
    let committed = || device.statistics().committed_bytes;
    let reservation = backend.reserve(1 << 40).unwrap();
    assert_eq!(committed(), 0);
    let pages = backend.create_pages(60 * PAGE).unwrap();
    assert_eq!(committed(), 60 * PAGE as u64);
    assert!(
        backend
            .create_pages(5 * PAGE)
            .unwrap_err()
            .is_out_of_memory()
    );
    // Mapped pages stay until they are unmapped.
    backend.map(&reservation, 0, &pages).unwrap();
    drop(pages);
    assert_eq!(committed(), 60 * PAGE as u64);
    backend
        .unmap(&reservation, Region::first(60 * PAGE))
        .unwrap();
    assert_eq!(committed(), 0);
    backend
        .map(&reservation, 0, &backend.create_pages(PAGE).unwrap())
        .unwrap();
    // A view keeps the reservation, and the end of both unmaps what is left.
    let view = backend
        .create_sub_region(&reservation, Region::first(256))
        .unwrap();
    drop(reservation);
    assert_eq!(committed(), PAGE as u64);
    drop(view);
    assert_eq!((committed(), device.leaks().is_empty()), (0, true));
}

#[test]
fn a_command_on_addresses_without_memory_is_reported_and_fails() {
    let device = device();
    let backend = device.backend();
    let queue = queue(&backend);
    let reservation = backend.reserve(4 * PAGE).unwrap();
    backend
        .map(&reservation, 0, &backend.create_pages(PAGE).unwrap())
        .unwrap();
    let filled = backend.enqueue_fill(&queue, &reservation, Region::first(PAGE + 1), &[1_u8]);
    assert!(filled.unwrap().wait().is_err());
    let violations = device.violations();
    assert!(
        matches!(
            violations[..],
            [Violation::UseAfterFree {
                call: CallKind::Fill,
                ..
            }]
        ),
        "{violations:?}"
    );
}

#[test]
fn an_unmap_of_pages_that_a_command_will_use_is_refused_and_reported() {
    let device = MockDevice::builder()
        .virtual_memory(true)
        .completion(Completion::Manual)
        .build();
    let backend = device.backend();
    let queue = queue(&backend);
    let reservation = backend.reserve(4 * PAGE).unwrap();
    for page in 0..2 {
        backend
            .map(
                &reservation,
                page * PAGE,
                &backend.create_pages(PAGE).unwrap(),
            )
            .unwrap();
    }
    let gate = backend.create_user_event().unwrap();
    backend
        .enqueue_fill(
            queue.after(std::slice::from_ref(&gate)),
            &reservation,
            Region::first(PAGE),
            &[1_u8],
        )
        .unwrap();
    backend
        .unmap(&reservation, Region::new(PAGE, PAGE))
        .unwrap();
    assert!(device.violations().is_empty(), "no command uses those");
    let refused = backend.unmap(&reservation, Region::first(PAGE));
    assert!(
        matches!(
            refused,
            Err(Error::InvalidRequest(InvalidRequest::InUse { .. }))
        ),
        "{refused:?}"
    );
    let violations = device.violations();
    assert!(
        matches!(violations[..], [Violation::FreedInUse { .. }]),
        "{violations:?}"
    );
    backend
        .resolve_user_event(&gate, Outcome::Complete)
        .unwrap();
    device.run();
    backend.unmap(&reservation, Region::first(PAGE)).unwrap();
}

#[test]
fn each_call_can_fail_and_has_no_effect_then() {
    let device = device();
    let backend = device.backend();
    let reservation = backend.reserve(4 * PAGE).unwrap();
    let pages = backend.create_pages(PAGE).unwrap();
    let region = Region::first(PAGE);
    for kind in [
        CallKind::Reserve,
        CallKind::CreatePages,
        CallKind::Map,
        CallKind::Unmap,
    ] {
        device.fail_nth(kind, 1, Fault::Backend(-5), Persistence::Once);
        let call = || match kind {
            CallKind::Reserve => backend.reserve(PAGE).map(drop),
            CallKind::CreatePages => backend.create_pages(PAGE).map(drop),
            CallKind::Map => backend.map(&reservation, 0, &pages),
            _ => backend.unmap(&reservation, region),
        };
        assert!(call().is_err(), "{kind}");
        call().unwrap();
    }
    assert_eq!(device.statistics().committed_bytes, PAGE as u64);
}

#[test]
fn a_device_without_it_says_so() {
    let error = MockDevice::new().backend().reserve(PAGE).unwrap_err();
    assert!(error.to_string().contains("virtual memory"), "{error}");
}

/// A device with a queue and two reservations of 8 pages.
struct Rig {
    device: MockDevice,
    backend: MockBackend,
    queue: MockQueue,
    reservations: [MockMemory; 2],
}

/// A page of one of the reservations.
type Place = (usize, usize);

impl Rig {
    fn new(completion: Completion) -> Self {
        let device = MockDevice::builder()
            .virtual_memory(true)
            .completion(completion)
            .build();
        let backend = device.backend();
        Self {
            queue: queue(&backend),
            reservations: [(); 2].map(|()| backend.reserve(8 * PAGE).unwrap()),
            device,
            backend,
        }
    }

    fn pages(&self, count: usize) -> MockMemory {
        self.backend.create_pages(count * PAGE).unwrap()
    }

    fn map(&self, (reservation, page): Place, pages: &MockMemory) {
        let reservation = &self.reservations[reservation];
        self.backend.map(reservation, page * PAGE, pages).unwrap();
    }

    fn unmap(&self, (reservation, page): Place, count: usize) {
        let region = Region::new(page * PAGE, count * PAGE);
        self.backend
            .unmap(&self.reservations[reservation], region)
            .unwrap();
    }

    fn fill(
        &self,
        queue: &MockQueue,
        (reservation, page): Place,
        byte: u8,
        wait_for: &[MockEvent],
    ) -> MockEvent {
        let (memory, region) = (
            &self.reservations[reservation],
            Region::new(page * PAGE, PAGE),
        );
        self.backend
            .enqueue_fill(queue.after(wait_for), memory, region, &[byte])
            .unwrap()
    }

    /// The byte that fills a page.
    fn byte(&self, (reservation, page): Place) -> u8 {
        let mut bytes = vec![0_u8; PAGE];
        let memory = &self.reservations[reservation];
        self.backend
            .read(&self.queue, memory, page * PAGE, &mut bytes)
            .unwrap();
        assert!(bytes.iter().all(|byte| *byte == bytes[0]));
        bytes[0]
    }

    /// The number of races, where nothing else was reported.
    fn races(&self) -> usize {
        self.device.run();
        let violations = self.device.violations();
        let mut all = violations.iter();
        assert!(
            all.all(|violation| matches!(violation, Violation::Race(_))),
            "{violations:?}"
        );
        violations.len()
    }
}

#[test]
fn what_is_written_at_one_address_is_at_each_in_any_reservation() {
    let rig = Rig::new(Completion::AtOnce);
    let pages = rig.pages(1);
    let places = [(0, 0), (0, 3), (1, 2)];
    rig.map(places[0], &pages);
    rig.fill(&rig.queue, places[0], 1, &[]);
    // The first commands at the others, and at the same address again.
    for place in &places[1..] {
        rig.map(*place, &pages);
    }
    for (byte, written) in (2..).zip([0, 1, 2, 1, 0]) {
        assert_eq!(places.map(|place| rig.byte(place)), [byte - 1; 3]);
        rig.fill(&rig.queue, places[written], byte, &[]);
    }
    assert_eq!(places.map(|place| rig.byte(place)), [6; 3]);
    assert_eq!(rig.races(), 0);
}

#[test]
fn pages_keep_their_contents_whichever_addresses_are_unmapped() {
    let rig = Rig::new(Completion::AtOnce);
    // Used last at the address that goes, or at the one that stays; unmapped alone, or both at once.
    for (round, used_last) in (0..).zip([(0, 1), (0, 2), (0, 1), (0, 2)]) {
        let (pages, byte) = (rig.pages(1), round + 10);
        rig.map((0, 1), &pages);
        rig.map((0, 2), &pages);
        rig.fill(&rig.queue, used_last, byte, &[]);
        if round < 2 {
            rig.unmap((0, 1), 1);
            assert_eq!(rig.byte((0, 2)), byte);
            rig.unmap((0, 2), 1);
        } else {
            rig.unmap((0, 1), 2);
        }
        // Others were here meanwhile.
        let others = rig.pages(2);
        rig.map((0, 1), &others);
        rig.fill(&rig.queue, (0, 1), 1, &[]);
        assert_eq!(rig.byte((0, 2)), 0, "fresh pages are zeros");
        rig.map((1, 5), &pages);
        assert_eq!(rig.byte((1, 5)), byte);
        rig.unmap((0, 1), 2);
        rig.unmap((1, 5), 1);
        // The others have kept theirs, too.
        rig.map((0, 4), &others);
        assert_eq!((rig.byte((0, 4)), rig.byte((0, 5))), (1, 0));
        rig.unmap((0, 4), 2);
    }
}

#[test]
fn pages_that_move_by_a_part_of_their_size_keep_their_contents() {
    let rig = Rig::new(Completion::AtOnce);
    let pages = rig.pages(3);
    rig.map((0, 2), &pages);
    for (byte, page) in (1..).zip(2..5) {
        rig.fill(&rig.queue, (0, page), byte, &[]);
    }
    let mut before = 2;
    for page in [3, 1, 2] {
        rig.unmap((0, before), 3);
        rig.map((0, page), &pages);
        let bytes = [0, 1, 2].map(|offset| rig.byte((0, page + offset)));
        assert_eq!(bytes, [1, 2, 3]);
        before = page;
    }
}

#[test]
fn the_end_of_a_reservation_leaves_pages_their_contents_at_other_addresses() {
    for used_last in [(0, 0), (1, 0)] {
        let mut rig = Rig::new(Completion::AtOnce);
        let pages = [(); 2].map(|()| rig.pages(1));
        for (page, pages) in pages.iter().enumerate() {
            rig.map((0, page), pages);
            rig.map((0, page + 4), pages);
        }
        rig.map((1, 0), &pages[0]);
        rig.fill(&rig.queue, used_last, 7, &[]);
        rig.fill(&rig.queue, (0, 5), 8, &[]);
        let other = rig.backend.reserve(8 * PAGE).unwrap();
        drop(std::mem::replace(&mut rig.reservations[0], other));
        assert_eq!(rig.byte((1, 0)), 7);
        // The second pages are mapped nowhere, and were at two addresses there.
        rig.map((0, 0), &pages[1]);
        assert_eq!(rig.byte((0, 0)), 8);
        drop(pages);
        rig.unmap((0, 0), 1);
        assert_eq!(rig.device.statistics().committed_bytes, PAGE as u64);
    }
}

#[test]
fn commands_of_two_queues_race_on_the_same_pages_at_two_addresses() {
    for completion in [
        Completion::AtOnce,
        Completion::Manual,
        Completion::Seeded(1),
    ] {
        let rig = Rig::new(completion);
        let other = queue(&rig.backend);
        let pages = rig.pages(1);
        rig.map((0, 1), &pages);
        rig.map((1, 6), &pages);
        rig.fill(&rig.queue, (0, 1), 1, &[]);
        rig.fill(&other, (1, 6), 2, &[]);
        assert_eq!(rig.races(), 1, "{completion:?}");
        let violations = rig.device.violations();
        let [Violation::Race(race)] = &violations[..] else {
            panic!("{violations:?}");
        };
        let queues = [&race.first, &race.second].map(|touch| touch.queue);
        assert_ne!(queues[0], queues[1]);
        assert_eq!((race.memory, race.bytes), (pages.id(), PAGE));
    }
}

#[test]
fn commands_in_order_do_not_race_at_two_addresses() {
    let rig = Rig::new(Completion::Manual);
    let other = queue(&rig.backend);
    let pages = rig.pages(1);
    rig.map((0, 1), &pages);
    rig.map((1, 6), &pages);
    rig.fill(&rig.queue, (0, 1), 1, &[]);
    let filled = rig.fill(&rig.queue, (1, 6), 2, &[]);
    let filled = rig.fill(&other, (0, 1), 3, &[filled]);
    rig.device.run();
    filled.wait().unwrap();
    rig.fill(&rig.queue, (1, 6), 4, &[]);
    assert_eq!(rig.races(), 0);
}

#[test]
fn commands_race_on_the_parts_of_pages_that_they_share() {
    let rig = Rig::new(Completion::Manual);
    let other = queue(&rig.backend);
    let pages = rig.pages(2);
    rig.map((0, 1), &pages);
    rig.map((1, 4), &pages);
    rig.fill(&rig.queue, (0, 1), 1, &[]);
    rig.fill(&other, (1, 5), 2, &[]);
    assert_eq!(rig.races(), 0);
    rig.fill(&other, (1, 4), 3, &[]);
    assert_eq!(rig.races(), 1);
}

#[test]
fn commands_at_one_address_do_not_race_on_different_pages() {
    let rig = Rig::new(Completion::AtOnce);
    let other = queue(&rig.backend);
    rig.map((0, 1), &rig.pages(1));
    rig.fill(&rig.queue, (0, 1), 1, &[]);
    rig.unmap((0, 1), 1);
    // Nothing puts the one fill before the other.
    rig.map((0, 1), &rig.pages(1));
    rig.fill(&other, (0, 1), 2, &[]);
    assert_eq!(rig.races(), 0);
}

/// A kernel on another thread has its memory to itself. What lies beside is moved meanwhile, and used once the kernel has ended.
#[test]
fn a_command_at_another_address_waits_for_a_kernel_that_runs() {
    let rig = Rig::new(Completion::AtOnce);
    let [pages, beside] = [(); 2].map(|()| rig.pages(1));
    rig.map((0, 1), &pages);
    rig.map((0, 2), &beside);
    rig.map((1, 5), &pages);
    rig.fill(&rig.queue, (0, 2), 3, &[]);
    let region = Region::new(PAGE, PAGE);
    let view = rig.backend.create_sub_region(&rig.reservations[0], region);
    let view = view.unwrap();
    let (started, has_started) = mpsc::channel();
    let (end, may_end) = mpsc::channel();
    let other = queue(&rig.backend);
    thread::scope(|scope| {
        let kernel = scope.spawn(|| {
            let kernel = move |_: &[&[u8]], writes: &mut [&mut [u8]]| {
                started.send(()).unwrap();
                may_end.recv().unwrap();
                writes[0].fill(7);
            };
            let launched = rig.backend.launch(&rig.queue, "k", &[], &[&view], kernel);
            launched.unwrap()
        });
        has_started.recv().unwrap();
        rig.unmap((0, 2), 1);
        rig.map((1, 6), &beside);
        let reader = scope.spawn(|| {
            [(1, 5), (1, 6)].map(|(reservation, page)| {
                let mut byte = [0_u8];
                let memory = &rig.reservations[reservation];
                rig.backend
                    .read(&other, memory, page * PAGE, &mut byte)
                    .unwrap();
                byte[0]
            })
        });
        while rig.device.pending_commands() < 2 && !reader.is_finished() {
            thread::yield_now();
        }
        end.send(()).unwrap();
        kernel.join().unwrap().wait().unwrap();
        assert_eq!(reader.join().unwrap(), [7, 3]);
    });
}

#[test]
fn pages_are_mapped_beside_those_of_a_kernel_that_runs() {
    let rig = Rig::new(Completion::AtOnce);
    rig.map((0, 1), &rig.pages(1));
    let filled = rig.pages(1);
    rig.map((1, 0), &filled);
    rig.fill(&rig.queue, (1, 0), 5, &[]);
    // What lies at the address is of pages that have left.
    rig.map((0, 2), &rig.pages(1));
    rig.fill(&rig.queue, (0, 2), 9, &[]);
    rig.unmap((0, 2), 1);
    let view = rig
        .backend
        .create_sub_region(&rig.reservations[0], Region::new(PAGE, PAGE))
        .unwrap();
    let (started, has_started) = mpsc::channel();
    let (end, may_end) = mpsc::channel();
    thread::scope(|scope| {
        let kernel = scope.spawn(|| {
            let kernel = move |_: &[&[u8]], _: &mut [&mut [u8]]| {
                started.send(()).unwrap();
                may_end.recv().unwrap();
            };
            let launched = rig.backend.launch(&rig.queue, "k", &[], &[&view], kernel);
            launched.unwrap()
        });
        has_started.recv().unwrap();
        rig.unmap((1, 0), 1);
        rig.map((0, 2), &filled);
        end.send(()).unwrap();
        kernel.join().unwrap().wait().unwrap();
    });
    assert_eq!(rig.byte((0, 2)), 5);
}

#[test]
fn a_device_without_aliases_refuses_a_second_address_and_changes_nothing() {
    let device = MockDevice::builder()
        .virtual_memory(true)
        .page_aliases(false)
        .build();
    let backend = device.backend();
    let queue = queue(&backend);
    let reservation = backend.reserve(2 * PAGE).unwrap();
    let [pages, others] = [(); 2].map(|()| backend.create_pages(PAGE).unwrap());
    backend.map(&reservation, 0, &pages).unwrap();
    let refused = backend.map(&reservation, PAGE, &pages);
    assert!(matches!(refused, Err(Error::Unsupported { .. })));
    backend.map(&reservation, PAGE, &others).unwrap();
    backend.write(&queue, &reservation, 0, &[1_u8]).unwrap();
    backend.write(&queue, &reservation, PAGE, &[2_u8]).unwrap();
    let mut byte = [0_u8];
    backend.read(&queue, &reservation, 0, &mut byte).unwrap();
    assert_eq!(byte, [1]);
    backend.unmap(&reservation, Region::first(PAGE)).unwrap();
    drop(pages);
    assert_eq!(device.statistics().committed_bytes, PAGE as u64);
}

//! Virtual memory of CUDA beside what every backend does with it: what the driver refuses, and what takes of the device.

use std::{
    fmt::Debug,
    slice::from_ref,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread,
};

use binpool_allocators::{
    Backend, Error, Event, InvalidRequest, Memory, MemoryFlags, Outcome, Queue, Region, Result,
    VirtualMemory,
};
use binpool_cuda::{Argument, CudaBackend, CudaEvent, CudaMemory, CudaModule, CudaQueue, Grid};

use crate::{
    common::{Device, PAGE, queue},
    hand_overs::{HandOvers, at_new_addresses, between_addresses},
};

fn device() -> Device {
    Device::new(64 * PAGE)
}

fn refusal<T: Debug>(result: Result<T>) -> InvalidRequest {
    match result {
        Err(Error::InvalidRequest(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

#[test]
fn only_pages_take_of_the_device() {
    let device = device();
    let backend = device.backend();
    let reservation = backend.reserve(1 << 40).unwrap();
    assert_eq!(device.used(), 0);
    let pages = backend.create_pages(60 * PAGE).unwrap();
    assert!(
        backend
            .create_pages(5 * PAGE)
            .unwrap_err()
            .is_out_of_memory()
    );
    // Mapped pages stay until they are unmapped.
    backend.map(&reservation, 0, &pages).unwrap();
    drop(pages);
    assert_eq!(device.used(), 60 * PAGE);
    backend
        .unmap(&reservation, Region::first(60 * PAGE))
        .unwrap();
    assert_eq!(device.used(), 0);
    backend
        .map(&reservation, 0, &backend.create_pages(PAGE).unwrap())
        .unwrap();
    // A view keeps the reservation, and the end of both unmaps what is left.
    let view = backend
        .create_sub_region(&reservation, Region::first(256))
        .unwrap();
    drop(reservation);
    assert_eq!(device.used(), PAGE);
    drop(view);
    assert_eq!(device.used(), 0);
    drop(backend);
    assert_eq!(device.objects(), 0);
}

#[test]
fn a_transfer_without_memory_behind_it_is_refused() {
    let backend = device().backend();
    let queue = queue(&backend);
    let reservation = backend.reserve(4 * PAGE).unwrap();
    backend
        .map(&reservation, 0, &backend.create_pages(PAGE).unwrap())
        .unwrap();
    let fill = backend.enqueue_fill(&queue, &reservation, Region::first(PAGE + 1), &[1_u8]);
    assert!(matches!(refusal(fill), InvalidRequest::NotMapped { .. }));
    let view = backend
        .create_sub_region(&reservation, Region::new(PAGE, PAGE))
        .unwrap();
    let write = backend.write(&queue, &view, 0, &[1_u8]);
    assert!(matches!(refusal(write), InvalidRequest::NotMapped { .. }));
    backend
        .map(&view, 0, &backend.create_pages(PAGE).unwrap())
        .unwrap();
    let fill = backend.enqueue_fill(&queue, &reservation, Region::first(PAGE + 1), &[1_u8]);
    fill.unwrap().wait().unwrap();
    assert!(!backend.is_lost());
}

#[test]
fn each_call_can_fail_and_has_no_effect_then() {
    let device = device();
    let backend = device.backend();
    let reservation = backend.reserve(4 * PAGE).unwrap();
    let pages = backend.create_pages(PAGE).unwrap();
    let region = Region::first(PAGE);
    for name in [
        "cuMemAddressReserve",
        "cuMemCreate",
        "cuMemMap",
        "cuMemSetAccess",
        "cuMemUnmap",
    ] {
        let call = || match name {
            "cuMemAddressReserve" => backend.reserve(PAGE).map(drop),
            "cuMemCreate" => backend.create_pages(PAGE).map(drop),
            "cuMemUnmap" => backend.unmap(&reservation, region),
            _ => backend.map(&reservation, 0, &pages),
        };
        if name == "cuMemSetAccess" {
            backend.unmap(&reservation, region).unwrap();
        }
        device.fail(name, 0, 1, 999);
        let objects = device.objects();
        assert!(call().is_err(), "{name}");
        assert_eq!(device.objects(), objects, "{name}");
        call().unwrap();
    }
    assert_eq!(device.used(), PAGE);
}

#[test]
fn pages_that_a_failed_map_has_left_are_unmapped_by_the_next_one() {
    let device = device();
    let backend = device.backend();
    let [one, two] = [(); 2].map(|()| backend.reserve(4 * PAGE).unwrap());
    let [pages, others, third] = [(); 3].map(|()| backend.create_pages(PAGE).unwrap());
    let left = |unmaps| {
        device.fail("cuMemSetAccess", 0, 1, 999);
        device.fail("cuMemUnmap", 0, unmaps, 999);
        assert!(backend.map(&one, 0, &pages).is_err());
    };
    // The same pages elsewhere, and others there; then the same pages where they were.
    left(1);
    backend.map(&two, 0, &pages).unwrap();
    backend.map(&one, 0, &others).unwrap();
    for reservation in [&one, &two] {
        backend.unmap(reservation, Region::first(PAGE)).unwrap();
    }
    left(1);
    backend.map(&one, 0, &pages).unwrap();
    backend.unmap(&one, Region::first(PAGE)).unwrap();
    // As long as they cannot be unmapped, their addresses do not serve, but others do, for them too.
    left(5);
    for refused in [&pages, &others] {
        assert!(matches!(
            backend.map(&one, 0, refused),
            Err(Error::Backend(_))
        ));
    }
    backend.map(&two, 0, &pages).unwrap();
    backend.map(&two, PAGE, &others).unwrap();
    let fill = backend.enqueue_fill(&queue(&backend), &one, Region::first(PAGE), &[1_u8]);
    assert!(matches!(refusal(fill), InvalidRequest::NotMapped { .. }));
    backend.map(&one, 0, &third).unwrap();
    backend.unmap(&one, Region::first(PAGE)).unwrap();
    left(1);
    drop((one, two, pages, others, third));
    assert_eq!(device.used(), 0);
    drop(backend);
    assert_eq!(device.objects(), 0);
}

#[test]
fn pages_stay_mapped_under_a_kernel_and_a_read_that_blocks() {
    let device = device();
    let backend = device.backend();
    let queue = queue(&backend);
    let reservation = backend.reserve(4 * PAGE).unwrap();
    for at in [0, PAGE] {
        let pages = backend.create_pages(PAGE).unwrap();
        backend.map(&reservation, at, &pages).unwrap();
    }
    let unmap = |at| backend.unmap(&reservation, Region::new(at, PAGE));
    let in_use = |offset| InvalidRequest::InUse {
        offset,
        bytes: PAGE,
    };
    let kernel = CudaModule::load_ptx(&backend, ".version 6.4\n.visible .entry add_to(").unwrap();
    let kernel = kernel.kernel("add_to").unwrap();
    let half = backend
        .create_sub_region(&reservation, Region::new(PAGE, 2 * PAGE))
        .unwrap();
    let arguments = [
        Argument::Memory(&half),
        Argument::Memory(&half),
        Argument::U64(16),
    ];
    let gate = backend.create_user_event().unwrap();
    // SAFETY: These are its parameters, and it touches bytes that are mapped.
    let launch = unsafe {
        kernel.launch(
            &queue,
            Grid::of_threads(16, 16),
            &arguments,
            from_ref(&gate),
        )
    };
    // It does not use all of the memory that is an argument: a part has no pages.
    assert_eq!(refusal(unmap(PAGE)), in_use(PAGE));
    unmap(0).unwrap();
    drop(gate);
    launch.unwrap().wait().unwrap();
    let gate = backend.create_user_event().unwrap();
    let waits = device.calls("cuEventSynchronize");
    thread::scope(|scope| {
        let read = scope.spawn(|| {
            let (mut byte, wait_for) = ([1_u8], from_ref(&gate));
            backend.read(queue.after(wait_for), &reservation, PAGE, &mut byte)
        });
        while device.calls("cuEventSynchronize") == waits {
            thread::yield_now();
        }
        let refused = unmap(PAGE);
        backend
            .resolve_user_event(&gate, Outcome::Complete)
            .unwrap();
        assert_eq!(refusal(refused), in_use(PAGE));
        read.join().unwrap().unwrap();
    });
    unmap(PAGE).unwrap();
    assert!(!backend.is_lost());
}

#[test]
fn pages_stay_mapped_under_a_command_of_which_no_event_tells_the_end() {
    let device = device();
    let backend = device.backend();
    let queue = queue(&backend);
    let reservation = backend.reserve(PAGE).unwrap();
    backend
        .map(&reservation, 0, &backend.create_pages(PAGE).unwrap())
        .unwrap();
    let gate = backend.create_user_event().unwrap();
    device.fail("cuEventRecord", 0, 1, 999);
    let all = Region::first(PAGE);
    let fill = backend.enqueue_fill(queue.after(from_ref(&gate)), &reservation, all, &[1_u8]);
    fill.unwrap_err();
    let in_use = InvalidRequest::InUse {
        offset: 0,
        bytes: PAGE,
    };
    assert_eq!(refusal(backend.unmap(&reservation, all)), in_use);
    drop(gate);
    backend.unmap(&reservation, all).unwrap();
    assert!(!backend.is_lost());
}

#[test]
fn no_command_uses_addresses_that_are_just_being_mapped() {
    const NOT_READY: i32 = 600;

    let device = device();
    let backend = device.backend();
    let reservation = backend.reserve(PAGE).unwrap();
    let pages = backend.create_pages(PAGE).unwrap();
    device.fail("cuMemSetAccess", 0, 10_000, NOT_READY); // The map fails in the end.
    let queue = queue(&backend);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(backend.map(&reservation, 0, &pages).is_err());
            is_over.store(true, Ordering::Release);
        });
        while !is_over.load(Ordering::Acquire) {
            let all = Region::first(PAGE);
            let fill = backend.enqueue_fill(&queue, &reservation, all, &[1_u8]);
            assert!(matches!(refusal(fill), InvalidRequest::NotMapped { .. }));
        }
    });
    assert!(!backend.is_lost());
}

#[test]
fn access_is_asked_for_again_where_the_device_is_busy_but_not_for_ever() {
    const NOT_READY: i32 = 600;

    let device = device();
    let backend = device.backend();
    let reservation = backend.reserve(4 * PAGE).unwrap();
    let pages = backend.create_pages(PAGE).unwrap();
    device.fail("cuMemSetAccess", 0, 10, NOT_READY);
    backend.map(&reservation, 0, &pages).unwrap();
    assert_eq!(device.calls("cuMemSetAccess"), 11);
    backend.unmap(&reservation, Region::first(PAGE)).unwrap();
    device.fail("cuMemSetAccess", 0, 10_000, NOT_READY);
    let error = backend.map(&reservation, 0, &pages).unwrap_err();
    assert!(matches!(error, Error::Backend(_)), "{error:?}");
    assert_eq!(
        (device.calls("cuMemMap"), device.calls("cuMemUnmap")),
        (2, 2)
    );
}

#[test]
fn a_reservation_is_dropped_behind_the_commands_that_use_it() {
    let device = device();
    let backend = device.backend();
    let queue = queue(&backend);
    let reservation = backend.reserve(PAGE).unwrap();
    backend
        .map(&reservation, 0, &backend.create_pages(PAGE).unwrap())
        .unwrap();
    let gate = backend.create_user_event().unwrap();
    let fill = backend
        .enqueue_fill(
            queue.after(from_ref(&gate)),
            &reservation,
            Region::first(PAGE),
            &[1_u8],
        )
        .unwrap();
    drop(reservation);
    assert_eq!(device.used(), PAGE);
    drop(gate);
    fill.wait().unwrap();
    backend.enqueue_marker(&queue).unwrap().wait().unwrap();
    assert_eq!((device.used(), backend.is_lost()), (0, false));
}

#[test]
fn addresses_with_pages_are_freed_after_a_wait_for_the_device_and_others_at_once() {
    let device = device();
    let backend = device.backend();
    let queue = queue(&backend);
    let [with_pages, without] = [(); 2].map(|()| backend.reserve(PAGE).unwrap());
    backend
        .map(&with_pages, 0, &backend.create_pages(PAGE).unwrap())
        .unwrap();
    // A command of the program itself, which the backend knows nothing of.
    let word = AtomicU32::new(0);
    device.hold(queue.raw(), &word);
    device.fill(queue.raw(), with_pages.device_address().unwrap(), PAGE);
    drop(without);
    let calls =
        || ["cuCtxSynchronize", "cuMemUnmap", "cuMemAddressFree"].map(|call| device.calls(call));
    let at_once = calls();
    let while_held = thread::scope(|scope| {
        let dropped = scope.spawn(|| drop(with_pages));
        while device.calls("cuCtxSynchronize") == at_once[0] && !dropped.is_finished() {
            thread::yield_now();
        }
        let while_held = calls();
        word.store(1, Ordering::Release);
        while_held
    });
    assert_eq!(
        (at_once, while_held, calls()),
        ([0, 0, 1], [1, 0, 1], [1, 1, 2])
    );
    assert!(!backend.is_lost());
}

#[test]
fn pages_that_cannot_be_unmapped_keep_nothing_from_it_when_the_reservation_ends() {
    let device = device();
    let backend = device.backend();
    let [one, two] = [(); 2].map(|()| backend.reserve(2 * PAGE).unwrap());
    let [a, b] = [(); 2].map(|()| backend.create_pages(PAGE).unwrap());
    backend.map(&one, 0, &a).unwrap();
    backend.map(&one, PAGE, &b).unwrap();
    device.fail("cuMemUnmap", 0, 1, 999);
    let unmaps = device.calls("cuMemUnmap");
    drop(one);
    assert_eq!(device.calls("cuMemUnmap"), unmaps + 2);
    for (at, pages) in [(0, &a), (PAGE, &b)] {
        backend.map(&two, at, pages).unwrap();
    }
    // The first address stays mapped until a later call frees it, and so does its memory.
    drop((two, a, b));
    drop(backend);
    assert_eq!((device.used(), device.objects()), (0, 0));
}

/// A reservation of 8 pages with the same pages at two addresses, and a queue.
struct AtTwo {
    device: Device,
    backend: CudaBackend,
    queue: CudaQueue,
    reservation: CudaMemory,
    pages: CudaMemory,
    /// The addresses, as parts of the reservation.
    places: [Region; 2],
}

impl AtTwo {
    fn new() -> Self {
        let device = device();
        let backend = device.backend();
        let reservation = backend.reserve(8 * PAGE).unwrap();
        let pages = backend.create_pages(PAGE).unwrap();
        let places = [PAGE, 4 * PAGE].map(|at| Region::new(at, PAGE));
        for place in places {
            backend.map(&reservation, place.offset, &pages).unwrap();
        }
        Self {
            queue: queue(&backend),
            device,
            backend,
            reservation,
            pages,
            places,
        }
    }

    /// Fills the pages through one of the addresses.
    fn fill(&self, queue: &CudaQueue, place: usize, byte: u8, wait_for: &[CudaEvent]) -> CudaEvent {
        let region = self.places[place];
        self.backend
            .enqueue_fill(queue.after(wait_for), &self.reservation, region, &[byte])
            .unwrap()
    }

    /// The word that fills the pages, read at one of the addresses.
    fn word(&self, place: usize) -> [u8; 4] {
        let part = self.places[place];
        let read = self
            .backend
            .enqueue_read(&self.queue, &self.reservation, part);
        let bytes = read.unwrap().wait().unwrap();
        let words = bytes.as_chunks().0;
        assert!(words.iter().all(|word| *word == words[0]));
        words[0]
    }

    fn unmap(&self, place: usize) -> Result<()> {
        self.backend.unmap(&self.reservation, self.places[place])
    }
}

#[test]
fn what_is_written_at_one_address_is_read_at_the_other() {
    let at_two = AtTwo::new();
    let (backend, queue) = (&at_two.backend, &at_two.queue);
    assert_eq!(at_two.device.used(), PAGE);
    for (byte, [written, seen]) in [(1, [0, 1]), (2, [1, 0])] {
        at_two.fill(queue, written, byte, &[]);
        assert_eq!(at_two.word(seen), [byte; 4]);
    }
    // A kernel that adds the floats at one address, and a copy to the other.
    let views = at_two.places.map(|place| {
        backend
            .create_sub_region(&at_two.reservation, place)
            .unwrap()
    });
    let ones = backend.create_buffer(PAGE, MemoryFlags::empty()).unwrap();
    let all = Region::first(PAGE);
    for memory in [&views[0], &ones] {
        backend
            .enqueue_fill(queue, memory, all, &1_f32.to_ne_bytes())
            .unwrap();
    }
    let module = CudaModule::load_ptx(backend, ".version 6.4\n.visible .entry add_to(").unwrap();
    let kernel = module.kernel("add_to").unwrap();
    for view in [&views[1], &views[0]] {
        let arguments = [
            Argument::Memory(view),
            Argument::Memory(&ones),
            Argument::U64(PAGE as u64 / 4),
        ];
        let grid = Grid::of_threads(u32::try_from(PAGE / 4).unwrap(), 256);
        // SAFETY: These are its parameters.
        unsafe { kernel.launch(queue, grid, &arguments, &[]) }.unwrap();
    }
    assert_eq!(at_two.word(1), 3_f32.to_ne_bytes());
    backend
        .enqueue_copy(queue, &ones, all, &views[1], 0)
        .unwrap();
    assert_eq!(at_two.word(0), 1_f32.to_ne_bytes());
    assert!(!backend.is_lost());
}

#[test]
fn an_address_is_unmapped_while_a_command_uses_the_same_pages_at_another() {
    let at_two = AtTwo::new();
    let AtTwo {
        backend, places, ..
    } = &at_two;
    let gate = backend.create_user_event().unwrap();
    at_two.fill(&at_two.queue, 0, 1, from_ref(&gate));
    // A command that comes after it uses the other address.
    let filled = at_two.fill(&at_two.queue, 1, 2, &[]);
    let in_use = |place: usize| InvalidRequest::InUse {
        offset: places[place].offset,
        bytes: PAGE,
    };
    for place in [0, 1] {
        assert_eq!(refusal(at_two.unmap(place)), in_use(place));
    }
    let third = Region::new(6 * PAGE, PAGE);
    backend
        .map(&at_two.reservation, third.offset, &at_two.pages)
        .unwrap();
    backend.unmap(&at_two.reservation, third).unwrap();
    drop(gate);
    filled.wait().unwrap();
    // Only the second address is used from now on.
    let gate = backend.create_user_event().unwrap();
    let filled = at_two.fill(&at_two.queue, 1, 3, from_ref(&gate));
    at_two.unmap(0).unwrap();
    assert_eq!(refusal(at_two.unmap(1)), in_use(1));
    drop(gate);
    filled.wait().unwrap();
    assert_eq!(at_two.word(1), [3; 4]);
    assert!(!backend.is_lost());
}

#[test]
fn pages_at_two_addresses_are_freed_once_they_are_mapped_nowhere() {
    for order in [[0, 1], [1, 0]] {
        let AtTwo {
            device,
            backend,
            queue,
            reservation,
            pages,
            places,
        } = AtTwo::new();
        drop((pages, queue));
        for place in order {
            assert_eq!(device.used(), PAGE);
            backend.unmap(&reservation, places[place]).unwrap();
        }
        assert_eq!(device.used(), 0);
        drop((reservation, backend));
        assert_eq!(device.objects(), 0);
    }
}

#[test]
fn the_end_of_a_reservation_leaves_pages_at_other_addresses() {
    let at_two = AtTwo::new();
    let other = at_two.backend.reserve(2 * PAGE).unwrap();
    at_two.backend.map(&other, PAGE, &at_two.pages).unwrap();
    at_two.fill(&at_two.queue, 1, 7, &[]);
    let AtTwo {
        device,
        backend,
        queue,
        reservation,
        pages,
        ..
    } = at_two;
    drop((reservation, pages));
    let pass = || backend.enqueue_marker(&queue).unwrap().wait().unwrap();
    pass();
    pass(); // This call finds that the fill has ended.
    assert_eq!(device.calls("cuMemAddressFree"), 1);
    let mut seen = [0_u8; 2];
    backend
        .read(&queue, &other, 2 * PAGE - 2, &mut seen)
        .unwrap();
    assert_eq!((seen, device.used()), ([7; 2], PAGE));
    drop(other);
    pass();
    assert_eq!((device.used(), backend.is_lost()), (0, false));
}

#[test]
fn a_second_map_that_the_driver_refuses_leaves_the_first() {
    for call in ["cuMemMap", "cuMemSetAccess"] {
        let at_two = AtTwo::new();
        let AtTwo {
            device,
            backend,
            queue,
            reservation,
            pages,
            ..
        } = &at_two;
        at_two.fill(queue, 0, 7, &[]);
        let objects = device.objects();
        device.fail(call, 0, 1, 999);
        let third = backend.map(reservation, 6 * PAGE, pages);
        assert!(matches!(third, Err(Error::Backend(_))), "{call}");
        assert_eq!((device.objects(), device.used()), (objects, PAGE));
        for place in [0, 1] {
            assert_eq!(at_two.word(place), [7; 4], "{call}");
        }
        backend.map(reservation, 6 * PAGE, pages).unwrap();
    }
}

/// The check of a real device, which does it a hundred thousand times and more.
#[test]
fn words_are_handed_over_from_address_to_address() {
    let device = device();
    let backend = device.backend();
    for streams in [1, 2] {
        assert_eq!(between_addresses(&backend, 300, 200, streams), 0);
    }
    // Each address is unmapped at least once.
    let unmaps = device.calls("cuMemUnmap");
    assert_eq!(at_new_addresses(&backend, 300, 6100), 0);
    assert!(device.calls("cuMemUnmap") >= unmaps + 64);
    drop(backend);
    assert_eq!((device.used(), device.objects()), (0, 0));
}

#[test]
fn words_that_are_wrong_are_counted_when_they_are_read_and_in_the_end() {
    let backend = device().backend();
    let queue = queue(&backend);
    let mut pages = HandOvers::new(&backend, 300);
    pages.map(1);
    // By each kind of hand-over.
    for spoiled in 1..6 {
        let event = pages.hand_over(&queue, [1, 0], &[]);
        event.wait().unwrap();
        assert_eq!(pages.wrong(&queue, 1), spoiled - 1);
        backend
            .write(&queue, &pages.views[1], 40, &[0xff_u8; 4])
            .unwrap();
        assert_eq!(pages.wrong(&queue, 0), spoiled);
    }
}

//! Checks of virtual memory.

use std::slice::from_ref;

use binpool_allocators::{
    Backend, Error, Event, InvalidRequest, Memory, MemoryFlags, MemoryKind, ObjectKind, Queue,
    Region, Result, VirtualMemory,
};

use crate::{
    Fixture,
    bench::{Bench, refusal, refused_as_foreign, refused_as_out_of_bounds},
    sweep::on_threads,
};

/// A bench with a reservation of 8 pages.
struct Mapped<B: VirtualMemory> {
    bench: Bench<B>,
    page: usize,
    reservation: B::Memory,
}

impl<B: VirtualMemory> Mapped<B> {
    fn new(fixture: &impl Fixture<Backend = B>) -> Self {
        let bench = Bench::new(fixture);
        let page = bench.backend.page_bytes();
        let reservation = bench.backend.reserve(8 * page).unwrap();
        Self {
            bench,
            page,
            reservation,
        }
    }

    fn pages(&self, count: usize) -> B::Memory {
        self.bench.backend.create_pages(count * self.page).unwrap()
    }

    fn map(&self, page: usize, pages: &B::Memory) -> Result<()> {
        let offset = page * self.page;
        self.bench.backend.map(&self.reservation, offset, pages)
    }

    /// Maps pages that are mapped already at a further place. Returns false if the backend maps pages at one place at a time.
    fn map_again(&self, page: usize, pages: &B::Memory) -> bool {
        let mapped = self.map(page, pages);
        let is_refused = matches!(mapped, Err(Error::Unsupported { .. }));
        if !is_refused {
            mapped.unwrap();
        }
        !is_refused
    }

    fn unmap(&self, page: usize, count: usize) -> Result<()> {
        let region = Region::new(page * self.page, count * self.page);
        self.bench.backend.unmap(&self.reservation, region)
    }

    fn write(&self, memory: &B::Memory, at: usize, byte: u8) -> Result<()> {
        let Bench { backend, queue } = &self.bench;
        backend.write(queue, memory, at, &[byte])
    }

    fn read(&self, memory: &B::Memory, at: usize) -> u8 {
        let mut byte = [0_u8];
        let Bench { backend, queue } = &self.bench;
        backend.read(queue, memory, at, &mut byte).unwrap();
        byte[0]
    }
}

/// The bytes of pages move with them, and neighbours are one block of memory.
pub fn pages_keep_their_contents_wherever_they_are_mapped<F: Fixture<Backend: VirtualMemory>>(
    fixture: &F,
) {
    let mapped = Mapped::new(fixture);
    let page = mapped.page;
    let other = mapped.bench.backend.reserve(8 * page).unwrap();
    let [a, b] = [(); 2].map(|()| mapped.pages(1));
    mapped.map(0, &a).unwrap();
    mapped.map(1, &b).unwrap();
    let Bench { backend, queue } = &mapped.bench;
    let write = backend.write(queue, &mapped.reservation, page - 1, &[1_u8, 2]);
    write.unwrap();
    mapped.unmap(0, 2).unwrap();
    backend.map(&other, 5 * page, &a).unwrap();
    mapped.map(0, &b).unwrap();
    assert_eq!(mapped.read(&other, 6 * page - 1), 1);
    assert_eq!(mapped.read(&mapped.reservation, 0), 2);
}

/// Sizes are rounded up to whole pages; a reservation is memory as any, and pages are of their own kind.
pub fn reservations_and_pages_are_whole_pages<F: Fixture<Backend: VirtualMemory>>(fixture: &F) {
    let mapped = Mapped::new(fixture);
    let (backend, page) = (&mapped.bench.backend, mapped.page);
    assert!(page.is_power_of_two());
    let pages = backend.create_pages(page + 1).unwrap();
    assert_eq!((pages.bytes(), pages.kind()), (2 * page, MemoryKind::Pages));
    let reservation = backend.reserve(page - 1).unwrap();
    let is = (reservation.bytes(), reservation.kind());
    assert_eq!(is, (page, MemoryKind::Buffer));
}

/// No bytes, and more than there can be.
pub fn impossible_sizes_of_pages_are_refused<F: Fixture<Backend: VirtualMemory>>(fixture: &F) {
    let backend = fixture.backend();
    assert_eq!(refusal(backend.reserve(0)), InvalidRequest::ZeroSize);
    assert_eq!(refusal(backend.create_pages(0)), InvalidRequest::ZeroSize);
    let refusals = [
        backend.reserve(usize::MAX),
        backend.create_pages(usize::MAX),
    ];
    for result in refusals {
        let refusal = refusal(result);
        assert!(
            matches!(refusal, InvalidRequest::TooLarge { .. }),
            "{refusal:?}"
        );
    }
}

/// Where something is mapped, nothing else is mapped.
pub fn a_map_over_other_pages_is_refused<F: Fixture<Backend: VirtualMemory>>(fixture: &F) {
    let mapped = Mapped::new(fixture);
    let (page, reservation) = (mapped.page, &mapped.reservation);
    let [two, other] = [(); 2].map(|()| mapped.pages(2));
    mapped.map(2, &two).unwrap();
    mapped.write(reservation, 3 * page, 7).unwrap();
    for at in [1, 2, 3] {
        let (offset, bytes) = (at * page, other.bytes());
        let expected = InvalidRequest::AlreadyMapped { offset, bytes };
        assert_eq!(refusal(mapped.map(at, &other)), expected);
    }
    assert_eq!(mapped.read(reservation, 3 * page), 7);
    mapped.map(4, &other).unwrap();
}

/// The place of pages is a multiple of a page, within the reservation.
pub fn a_map_off_a_page_or_beyond_the_end_is_refused<F: Fixture<Backend: VirtualMemory>>(
    fixture: &F,
) {
    let mapped = Mapped::new(fixture);
    let (backend, pages) = (&mapped.bench.backend, mapped.pages(2));
    let off = refusal(backend.map(&mapped.reservation, mapped.page / 2, &pages));
    assert!(matches!(off, InvalidRequest::Misaligned { .. }), "{off:?}");
    for at in [7, 8] {
        refused_as_out_of_bounds(mapped.map(at, &pages));
    }
    mapped.map(6, &pages).unwrap();
}

/// What is written through one address is read through the others, and pages stay at those that are not unmapped. Where the backend maps pages
/// at one place at a time, it says so, and nothing has changed.
pub fn pages_at_two_addresses_are_the_same_bytes<F: Fixture<Backend: VirtualMemory>>(fixture: &F) {
    let mapped = Mapped::new(fixture);
    let (bench, page, reservation) = (&mapped.bench, mapped.page, &mapped.reservation);
    let pages = mapped.pages(2);
    let [first, second] = [0, 4].map(|at| (at + 1) * page + 9);
    mapped.map(0, &pages).unwrap();
    mapped.write(reservation, first, 1).unwrap();
    if !mapped.map_again(4, &pages) {
        mapped.map(4, &mapped.pages(2)).unwrap();
        mapped.write(reservation, second, 2).unwrap();
        assert_eq!(mapped.read(reservation, first), 1);
        mapped.unmap(0, 2).unwrap();
        mapped.map(0, &pages).unwrap();
        assert_eq!(mapped.read(reservation, first), 1);
        return;
    }
    assert_eq!(mapped.read(reservation, second), 1);
    for (written, seen, byte) in [(second, first, 2), (first, second, 3)] {
        mapped.write(reservation, written, byte).unwrap();
        assert_eq!(mapped.read(reservation, seen), byte);
    }
    // The third is in another reservation, which ends.
    let other = bench.backend.reserve(2 * page).unwrap();
    bench.backend.map(&other, 0, &pages).unwrap();
    mapped.write(&other, page + 9, 4).unwrap();
    drop(other);
    for (unmapped, stays, byte) in [((0, first), second, 5), ((4, second), first, 6)] {
        assert_eq!(mapped.read(reservation, stays), byte - 1);
        let (place, used_last) = unmapped;
        mapped.write(reservation, used_last, byte).unwrap();
        mapped.unmap(place, 2).unwrap();
        assert_eq!(mapped.read(reservation, stays), byte);
        mapped.map(place, &pages).unwrap();
    }
    // All addresses at once.
    mapped.map(2, &pages).unwrap();
    mapped.write(reservation, 2 * page + 9, 7).unwrap();
    mapped.write(reservation, 3 * page + 9, 8).unwrap();
    mapped.unmap(0, 6).unwrap();
    mapped.map(6, &pages).unwrap();
    let seen = [6, 7].map(|at| mapped.read(reservation, at * page + 9));
    assert_eq!(seen, [7, 8]);
}

/// They are mapped at another address while a command uses them, later commands use them there, and then the first address is unmapped. Not
/// where the backend maps pages at one place at a time.
pub fn pages_move_while_a_command_uses_them<F: Fixture<Backend: VirtualMemory>>(fixture: &F) {
    let mapped = Mapped::new(fixture);
    let (bench, page, reservation) = (&mapped.bench, mapped.page, &mapped.reservation);
    let Bench { backend, queue } = bench;
    let pages = mapped.pages(1);
    mapped.map(0, &pages).unwrap();
    let copies = [(); 2].map(|()| bench.filled(page, 1));
    let [first, second] = [0, 4 * page].map(|at| Region::new(at, page));
    let gate = bench.gate();
    let fill = |region, byte: u8, wait_for: &[_]| {
        let fill = backend.enqueue_fill(queue.after(wait_for), reservation, region, &[byte]);
        fill.unwrap()
    };
    fill(first, 7, from_ref(&gate));
    if mapped.map_again(4, &pages) {
        let copied = backend.enqueue_copy(queue, reservation, second, &copies[0], 0);
        copied.unwrap();
        let filled = fill(second, 8, &[]);
        // A queue that waits for the command comes after it, too.
        let other = bench.another_queue();
        let copied =
            backend.enqueue_copy(other.after(&[filled]), reservation, first, &copies[1], 0);
        bench.open(&gate);
        copied.unwrap().wait().unwrap();
        assert_eq!(bench.read(&copies[0]), vec![7; page]);
        assert_eq!(bench.read(&copies[1]), vec![8; page]);
        mapped.unmap(0, 1).unwrap();
        assert_eq!(mapped.read(reservation, second.offset), 8);
        mapped.unmap(4, 1).unwrap();
    } else {
        bench.open(&gate);
        assert_eq!(mapped.read(reservation, first.offset), 7);
        mapped.unmap(0, 1).unwrap();
    }
}

/// An unmap is of whole pages that are there. One that is refused changes nothing.
pub fn an_unmap_that_cuts_pages_or_finds_none_is_refused<F: Fixture<Backend: VirtualMemory>>(
    fixture: &F,
) {
    let mapped = Mapped::new(fixture);
    let (backend, page) = (&mapped.bench.backend, mapped.page);
    let pages = mapped.pages(2);
    mapped.map(1, &pages).unwrap();
    mapped.write(&mapped.reservation, page, 7).unwrap();
    let cuts = [
        (page, page),
        (0, 3 * page),
        (page, 3 * page),
        (3 * page, page),
        (page + 256, page),
        (page, page + 256),
    ];
    for (offset, bytes) in cuts {
        let refusal = refusal(backend.unmap(&mapped.reservation, Region::new(offset, bytes)));
        assert_eq!(refusal, InvalidRequest::NotMapped { offset, bytes });
    }
    assert_eq!(mapped.read(&mapped.reservation, page), 7);
    mapped.unmap(1, 2).unwrap();
}

/// Commands and views are of what is mapped, not of the pages themselves.
pub fn pages_have_no_addresses_of_their_own<F: Fixture<Backend: VirtualMemory>>(fixture: &F) {
    let mapped = Mapped::new(fixture);
    let Bench { backend, queue } = &mapped.bench;
    let pages = mapped.pages(1);
    assert!(
        backend
            .create_sub_region(&pages, Region::first(256))
            .is_err()
    );
    assert!(backend.commit(queue, &pages).is_err());
    assert!(mapped.write(&pages, 0, 1).is_err());
    let fill = backend.enqueue_fill(queue, &pages, Region::first(256), &[1_u8]);
    assert!(fill.is_err());
}

/// Neither is any other memory mapped, nor anything mapped to it.
pub fn only_pages_are_mapped_and_only_to_reservations<F: Fixture<Backend: VirtualMemory>>(
    fixture: &F,
) {
    let mapped = Mapped::new(fixture);
    let (backend, page) = (&mapped.bench.backend, mapped.page);
    let pages = mapped.pages(1);
    let buffer = backend.create_buffer(page, MemoryFlags::empty()).unwrap();
    assert!(backend.map(&mapped.reservation, 0, &buffer).is_err());
    assert!(backend.map(&buffer, 0, &pages).is_err());
    assert!(backend.unmap(&buffer, Region::first(page)).is_err());
    mapped.map(0, &pages).unwrap();
}

/// The end of the reservation unmaps them, and they can be mapped elsewhere.
pub fn pages_outlive_their_reservation<F: Fixture<Backend: VirtualMemory>>(fixture: &F) {
    let mapped = Mapped::new(fixture);
    let (backend, page) = (&mapped.bench.backend, mapped.page);
    let pages = mapped.pages(1);
    let first = backend.reserve(page).unwrap();
    backend.map(&first, 0, &pages).unwrap();
    mapped.write(&first, 5, 7).unwrap();
    drop(first);
    mapped.map(4, &pages).unwrap();
    assert_eq!(mapped.read(&mapped.reservation, 4 * page + 5), 7);
}

/// Dropping pages frees them once they are unmapped, and not before.
pub fn mapped_pages_may_be_dropped<F: Fixture<Backend: VirtualMemory>>(fixture: &F) {
    let mapped = Mapped::new(fixture);
    mapped.map(2, &mapped.pages(1)).unwrap();
    let at = 2 * mapped.page + 3;
    mapped.write(&mapped.reservation, at, 7).unwrap();
    assert_eq!(mapped.read(&mapped.reservation, at), 7);
    mapped.unmap(2, 1).unwrap();
    mapped.map(2, &mapped.pages(1)).unwrap();
    mapped.write(&mapped.reservation, at, 8).unwrap();
    assert_eq!(mapped.read(&mapped.reservation, at), 8);
}

/// A view has the addresses of its part, and keeps the reservation with what is mapped.
pub fn a_view_of_a_reservation_is_a_window_that_keeps_it<F: Fixture<Backend: VirtualMemory>>(
    fixture: &F,
) {
    let mapped = Mapped::new(fixture);
    let (backend, page) = (&mapped.bench.backend, mapped.page);
    let reservation = backend.reserve(4 * page).unwrap();
    let part = Region::new(page, 2 * page);
    let view = backend.create_sub_region(&reservation, part).unwrap();
    backend
        .map(&reservation, 2 * page, &mapped.pages(1))
        .unwrap();
    mapped.write(&reservation, 2 * page + 9, 7).unwrap();
    assert_eq!(mapped.read(&view, page + 9), 7);
    drop(reservation);
    assert_eq!(mapped.read(&view, page + 9), 7);
}

/// Pages and reservations of another backend.
pub fn foreign_pages_and_reservations_are_refused<F: Fixture<Backend: VirtualMemory>>(fixture: &F) {
    let (mapped, other) = (Mapped::new(fixture), Mapped::new(fixture));
    let (pages, foreign) = (mapped.pages(1), other.pages(1));
    let kind = ObjectKind::Memory;
    let backend = &mapped.bench.backend;
    refused_as_foreign(kind, mapped.map(0, &foreign));
    refused_as_foreign(kind, backend.map(&other.reservation, 0, &pages));
    other.map(0, &foreign).unwrap();
    let region = Region::first(mapped.page);
    refused_as_foreign(kind, backend.unmap(&other.reservation, region));
    other.unmap(0, 1).unwrap();
}

/// Addresses take nothing of the device, pages do until they are gone.
pub fn only_pages_take_of_the_device<F: Fixture<Backend: VirtualMemory>>(fixture: &F) {
    let Some(capacity) = fixture.enforced_capacity() else {
        return;
    };
    let mapped = Mapped::new(fixture);
    let (backend, page) = (&mapped.bench.backend, mapped.page);
    let capacity = usize::try_from(capacity).unwrap();
    let _addresses = backend.reserve(4 * capacity).unwrap();
    let count = capacity / page;
    assert!(
        count >= 2,
        "the capacity of the fixture holds fewer than 2 pages"
    );
    for _ in 0..2 {
        let all: Vec<_> = (0..count).map(|_| mapped.pages(1)).collect();
        mapped.map(0, &all[0]).unwrap();
        // A second address takes nothing.
        let is_at_two = mapped.map_again(1, &all[0]);
        let shortage = backend.create_pages(page).unwrap_err();
        assert!(shortage.is_out_of_memory(), "{shortage:?}");
        // Those that are mapped stay, wherever that is.
        drop(all);
        let most: Vec<_> = (1..count).map(|_| mapped.pages(1)).collect();
        assert!(backend.create_pages(page).is_err());
        mapped.unmap(0, 1).unwrap();
        if is_at_two {
            assert!(backend.create_pages(page).is_err());
            mapped.unmap(1, 1).unwrap();
        }
        drop(most);
    }
}

/// Each thread maps and unmaps a part of one reservation.
pub fn threads_share_a_reservation<F: Fixture<Backend: VirtualMemory>>(fixture: &F) {
    const ROUNDS: usize = 20;

    let mapped = Mapped::new(fixture);
    on_threads(0..2_u8, |part| {
        let pages = mapped.pages(1);
        for round in 0..ROUNDS {
            let at = usize::from(part) * 2 + round % 2;
            mapped.map(at, &pages).unwrap();
            let offset = at * mapped.page + 9;
            if round > 0 {
                assert_eq!(mapped.read(&mapped.reservation, offset), part);
            }
            mapped.write(&mapped.reservation, offset, part).unwrap();
            mapped.unmap(at, 1).unwrap();
        }
    });
}

/// What is mapped when the reservation is dropped stays mapped until the commands that were enqueued before have ended.
pub fn a_reservation_may_be_dropped_while_a_command_uses_it<F: Fixture<Backend: VirtualMemory>>(
    fixture: &F,
) {
    let mapped = Mapped::new(fixture);
    let (bench, page, reservation) = (mapped.bench, mapped.page, mapped.reservation);
    let Bench { backend, queue } = &bench;
    let pages = backend.create_pages(page).unwrap();
    backend.map(&reservation, 0, &pages).unwrap();
    let copy = bench.filled(page, 1);
    let gate = bench.gate();
    let on = queue.after(from_ref(&gate));
    let fill = backend.enqueue_fill(on, &reservation, ..page, &[7_u8]);
    fill.unwrap();
    let copied = backend.enqueue_copy(queue, &reservation, ..page, &copy, 0);
    copied.unwrap();
    drop(reservation);
    bench.open(&gate);
    assert_eq!(bench.read(&copy)[page - 1], 7);
}

/// Commands that have not ended keep the pages that they use where these are, and no others: not the same pages at another address either. A
/// refused unmap changes nothing.
pub fn pages_that_a_command_uses_are_not_unmapped<F: Fixture<Backend: VirtualMemory>>(fixture: &F) {
    let mapped = Mapped::new(fixture);
    let (bench, page, reservation) = (&mapped.bench, mapped.page, &mapped.reservation);
    let Bench { backend, queue } = bench;
    let pages = mapped.pages(1);
    mapped.map(0, &pages).unwrap();
    for at in 1..5 {
        mapped.map(at, &mapped.pages(1)).unwrap();
    }
    // Pages 0 to 2 are filled through a view, and page 3 is copied.
    let part = Region::new(page / 2, 4 * page);
    let view = bench.region(reservation, part);
    let copy = bench.buffer(page);
    let gate = bench.gate();
    let filled = Region::new(page - 1 - part.offset, page + 2);
    let fill = backend.enqueue_fill(queue.after(from_ref(&gate)), &view, filled, &[7_u8]);
    fill.unwrap();
    let third = Region::new(3 * page, page);
    let copied = backend.enqueue_copy(queue, reservation, third, &copy, 0);
    copied.unwrap();
    let is_at_two = mapped.map_again(5, &pages);
    for (at, count) in [(0, 1), (1, 1), (2, 1), (3, 1), (0, 5)] {
        let expected = InvalidRequest::InUse {
            offset: at * page,
            bytes: count * page,
        };
        assert_eq!(refusal(mapped.unmap(at, count)), expected);
    }
    mapped.unmap(4, 1).unwrap();
    if is_at_two {
        mapped.unmap(5, 1).unwrap();
    }
    bench.open(&gate);
    assert_eq!(mapped.read(reservation, 2 * page), 7);
    mapped.unmap(0, 4).unwrap();
}

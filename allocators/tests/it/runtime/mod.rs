//! What the core does for every runtime.

mod conflicts;
mod defaults;
mod device;
mod ends;
mod events;
mod failures;
mod foreign;
mod lifetimes;
mod mapping;
mod queues;
mod requests;
mod unmapping;

use std::{
    fmt::Debug,
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash},
};

use binpool_allocators::{
    Backend, Error, InvalidRequest, MemoryFlags, QueueOrder, Region, Result, VirtualMemory, Work,
    runtime::{CoreMemory, CoreQueue, Part, Runtime, enqueue},
};

use device::{Mark, PAGE, Scripted};

type Memory = CoreMemory<Scripted>;
type StreamQueue = CoreQueue<Scripted>;

fn rig() -> (Scripted, [StreamQueue; 2], Memory) {
    let device = Scripted::new();
    let queues = [(); 2].map(|()| in_order(&device));
    let memory = buffer(&device);
    (device, queues, memory)
}

fn in_order(device: &Scripted) -> StreamQueue {
    device.create_queue(QueueOrder::InOrder).unwrap()
}

fn buffer(device: &Scripted) -> Memory {
    device.create_buffer(256, MemoryFlags::empty()).unwrap()
}

fn view(device: &Scripted, memory: &Memory, region: Region) -> Memory {
    device.create_sub_region(memory, region).unwrap()
}

/// A reservation of six pages.
fn reservation(device: &Scripted) -> Memory {
    VirtualMemory::reserve(device, 6 * PAGE).unwrap()
}

fn pages(device: &Scripted, count: usize) -> Memory {
    VirtualMemory::create_pages(device, count * PAGE).unwrap()
}

/// Maps fresh pages, which the reservation alone keeps, to the first pages of a reservation.
fn map_first(device: &Scripted, reservation: &Memory, counts: &[usize]) {
    let mut at = 0;
    for count in counts {
        let pages = pages(device, *count);
        VirtualMemory::map(device, reservation, at * PAGE, &pages).unwrap();
        at += count;
    }
}

/// The region of pages of a reservation.
const fn of_pages(first: usize, count: usize) -> Region {
    Region::new(first * PAGE, count * PAGE)
}

fn fill(device: &Scripted, queue: &StreamQueue, memory: &Memory, region: Region) -> Mark {
    let filled = device.enqueue_fill(queue, memory, region, &[1_u8]);
    filled.unwrap().mark().clone()
}

fn read(device: &Scripted, queue: &StreamQueue, memory: &Memory, region: Region) -> Mark {
    let read = device.enqueue_read(queue, memory, region).unwrap();
    read.event().mark().clone()
}

fn copy(device: &Scripted, queue: &StreamQueue, from: &Memory, to: &Memory) -> Mark {
    let copied = device.enqueue_copy(queue, from, LOW, to, HIGH.offset);
    copied.unwrap().mark().clone()
}

/// A kernel.
fn launch(device: &Scripted, queue: &StreamQueue, parts: &[&Part<'_, Scripted>]) -> Result<Mark> {
    let launch = |stream: &_, after: &[Mark]| {
        // SAFETY: a marker has no parts, and the core has checked the rest.
        unsafe { Runtime::submit(device, stream, after, Work::Marker) }
    };
    // SAFETY: it returns the mark of its command, which uses no memory.
    let launched = unsafe { enqueue(device, queue, parts, &[], launch) }?;
    Ok(launched.mark().clone())
}

/// A kernel on all of this memory.
fn launch_on(device: &Scripted, queue: &StreamQueue, memory: &Memory) -> Mark {
    launch(device, queue, &[&memory.part_of_kernel().unwrap()]).unwrap()
}

/// Checks that the last command comes after these, and after no others.
#[track_caller]
fn assert_after(device: &Scripted, marks: &[&Mark]) {
    let after = device.last().after;
    let is_there = |mark: &&&Mark| after.iter().any(|other| other.is(mark));
    let found = marks.iter().filter(is_there).count();
    assert_eq!((found, after.len()), (marks.len(), marks.len()));
}

/// Returns why a request was refused.
#[track_caller]
fn refusal<T: Debug>(result: Result<T>) -> InvalidRequest {
    match result {
        Err(Error::InvalidRequest(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

fn hash(of: &impl Hash) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(of)
}

const LOW: Region = Region::new(0, 128);
const HIGH: Region = Region::new(128, 128);
const ALL: Region = Region::first(256);

/// All orders in which three commands may end.
const ORDERS: [[usize; 3]; 6] = [
    [0, 1, 2],
    [0, 2, 1],
    [1, 0, 2],
    [1, 2, 0],
    [2, 0, 1],
    [2, 1, 0],
];

//! What the allocator that is built against PyTorch calls.

use std::{
    ffi::{CStr, c_int, c_void},
    ops::Range,
    ptr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use binpool::{Backend, Outcome, Queue, QueueOrder};
use binpool_capi::{
    Status, binpool_last_error_message,
    torch::{
        Granted, binpool_torch_allocate_segment, binpool_torch_drop_received,
        binpool_torch_empty_cache, binpool_torch_enable_peer_access, binpool_torch_figures,
        binpool_torch_free, binpool_torch_free_segment, binpool_torch_pages, binpool_torch_receive,
        binpool_torch_request, binpool_torch_reset_peaks, binpool_torch_set_limit,
        binpool_torch_share, binpool_torch_take_back, binpool_torch_watch_pages, pool_of,
    },
};
use binpool_cuda::{CudaBackend, CudaEvent, CudaQueue};
use libloading::os::unix::Library;

use crate::child::over_stand_in;

const MIB: usize = 1 << 20;

fn request(bytes: usize, stream: *mut c_void) -> Result<Granted, Status> {
    let mut granted = Granted {
        address: ptr::null_mut(),
        bytes: 0,
    };
    // SAFETY: The streams here live as long as the process, and there is a place for the result.
    match unsafe { binpool_torch_request(bytes, 0, stream, &raw mut granted) } {
        Status::Ok => Ok(granted),
        other => Err(other),
    }
}

fn free(granted: Granted, stream: *mut c_void) {
    // SAFETY: As above.
    unsafe { binpool_torch_free(granted.address, 0, 0, stream) };
}

/// A stream whose commands wait until the program lets them run.
fn held_back() -> (CudaBackend, CudaQueue, CudaEvent) {
    let backend = CudaBackend::open(0).unwrap();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let gate = backend.create_user_event().unwrap();
    backend
        .enqueue_marker(queue.after(std::slice::from_ref(&gate)))
        .unwrap();
    (backend, queue, gate)
}

#[test]
fn a_request_says_what_its_block_takes_and_a_failed_one_why() {
    over_stand_in(
        "class::a_request_says_what_its_block_takes_and_a_failed_one_why",
        || {
            let granted = request(1000, ptr::null_mut()).unwrap();
            assert!(granted.bytes >= 1000 && !granted.address.is_null());
            let figures = binpool_torch_figures(0);
            assert_eq!(figures.managed - figures.held, granted.bytes as u64);
            assert_eq!(binpool_torch_set_limit(0, 4 * MIB as u64), Status::Ok);
            let lacking = request(64 * MIB, ptr::null_mut()).err();
            assert_eq!(lacking, Some(Status::OutOfMemory));
            // SAFETY: It is a text until the next failure of this thread.
            let report = unsafe { CStr::from_ptr(binpool_last_error_message()) };
            let report = report.to_str().unwrap();
            assert!(
                report.contains("could not allocate 64.0 MiB") && report.contains("the limit"),
                "{report}"
            );
            free(granted, ptr::null_mut());
        },
    );
}

#[test]
fn a_device_without_a_pool_has_no_figures() {
    over_stand_in("class::a_device_without_a_pool_has_no_figures", || {
        let figures = binpool_torch_figures(1);
        assert_eq!((figures.managed, figures.maps), (0, 0));
    });
}

#[test]
fn peaks_begin_again() {
    over_stand_in("class::peaks_begin_again", || {
        free(request(64 * MIB, ptr::null_mut()).unwrap(), ptr::null_mut());
        binpool_torch_empty_cache();
        let figures = binpool_torch_figures(0);
        assert!(figures.peak_managed >= 64 * MIB as u64 && figures.managed == 0);
        assert_eq!(figures.unmapped, figures.peak_managed);
        binpool_torch_reset_peaks(0);
        assert_eq!(binpool_torch_figures(0).peak_managed, 0);
    });
}

#[test]
fn a_segment_is_given_out_after_all_commands_on_its_memory() {
    over_stand_in(
        "class::a_segment_is_given_out_after_all_commands_on_its_memory",
        || {
            let (backend, queue, gate) = held_back();
            let block = request(8 * MIB, queue.raw()).unwrap();
            free(block, queue.raw());
            // The pool has nothing else to give.
            let managed = binpool_torch_figures(0).managed;
            assert_eq!(binpool_torch_set_limit(0, managed), Status::Ok);
            let is_let_run = Arc::new(AtomicBool::new(false));
            let segment = thread::spawn({
                let is_let_run = Arc::clone(&is_let_run);
                move || {
                    let segment =
                        binpool_torch_allocate_segment(8 << 20, 0, ptr::null_mut()).addr();
                    (segment, is_let_run.load(Ordering::SeqCst))
                }
            });
            is_let_run.store(true, Ordering::SeqCst);
            backend
                .resolve_user_event(&gate, Outcome::Complete)
                .unwrap();
            let (segment, was_let_run) = segment.join().unwrap();
            assert!(segment == block.address.addr() && was_let_run);
            binpool_torch_free_segment(block.address, 8 << 20, 0, ptr::null_mut());
            assert_eq!(pool_of(0).unwrap().active_blocks(), 0);
        },
    );
}

#[test]
fn a_segment_is_freed_after_everything_on_the_device() {
    over_stand_in(
        "class::a_segment_is_freed_after_everything_on_the_device",
        || {
            let segment = binpool_torch_allocate_segment(8 << 20, 0, ptr::null_mut()).addr();
            let (backend, queue, gate) = held_back();
            let is_let_run = Arc::new(AtomicBool::new(false));
            let freed = thread::spawn({
                let is_let_run = Arc::clone(&is_let_run);
                move || {
                    let segment = ptr::without_provenance_mut(segment);
                    binpool_torch_free_segment(segment, 8 << 20, 0, ptr::null_mut());
                    is_let_run.load(Ordering::SeqCst)
                }
            });
            is_let_run.store(true, Ordering::SeqCst);
            backend
                .resolve_user_event(&gate, Outcome::Complete)
                .unwrap();
            assert!(freed.join().unwrap());
            queue.finish().unwrap();
            assert_eq!(pool_of(0).unwrap().active_blocks(), 0);
        },
    );
}

static SEEN: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

extern "C" fn see(_device: c_int, _address: u64, bytes: usize, is_mapped: c_int) {
    let seen = &SEEN[usize::from(is_mapped != 0)];
    seen.fetch_add(bytes as u64, Ordering::SeqCst);
}

extern "C" fn add(context: *mut c_void, _address: u64, bytes: usize) {
    // SAFETY: It is the sum of the caller below.
    let sum = unsafe { &*context.cast::<AtomicU64>() };
    sum.fetch_add(bytes as u64, Ordering::SeqCst);
}

#[test]
fn pages_are_told_of_and_listed() {
    over_stand_in("class::pages_are_told_of_and_listed", || {
        binpool_torch_watch_pages(Some(see));
        let block = request(40 * MIB, ptr::null_mut()).unwrap();
        let figures = binpool_torch_figures(0);
        let listed = AtomicU64::new(0);
        // SAFETY: `add` takes the sum.
        unsafe { binpool_torch_pages(0, add, (&raw const listed).cast_mut().cast()) };
        let [unmapped, mapped] = SEEN.each_ref().map(|seen| seen.load(Ordering::SeqCst));
        assert_eq!(
            [mapped, unmapped, listed.into_inner()],
            [figures.managed, 0, figures.managed]
        );
        free(block, ptr::null_mut());
        binpool_torch_empty_cache();
        assert_eq!(SEEN[0].load(Ordering::SeqCst), mapped);
        binpool_torch_watch_pages(None);
        free(request(MIB, ptr::null_mut()).unwrap(), ptr::null_mut());
        assert_eq!(SEEN[1].load(Ordering::SeqCst), mapped);
    });
}

extern "C" fn note(context: *mut c_void, address: u64, bytes: usize) {
    // SAFETY: It is the list of the caller below.
    let pages = unsafe { &mut *context.cast::<Vec<Range<u64>>>() };
    pages.push(address..address + bytes as u64);
}

/// Returns whether the pages that are mapped now hold all of a block.
fn is_mapped(block: Granted) -> bool {
    let mut pages = Vec::<Range<u64>>::new();
    // SAFETY: `note` takes the list.
    unsafe { binpool_torch_pages(0, note, (&raw mut pages).cast()) };
    let start = block.address.addr() as u64;
    let mut rest = start..start + block.bytes as u64;
    for page in pages {
        if page.contains(&rest.start) {
            rest.start = page.end;
        }
    }
    rest.is_empty()
}

#[test]
fn pages_are_listed_where_they_are_mapped_and_no_more_once_they_are_not() {
    over_stand_in(
        "class::pages_are_listed_where_they_are_mapped_and_no_more_once_they_are_not",
        || {
            let blocks = [(); 3].map(|()| request(40 * MIB, ptr::null_mut()).unwrap());
            assert!(blocks.into_iter().all(is_mapped));
            let [first, second, third] = blocks;
            free(second, ptr::null_mut());
            binpool_torch_empty_cache();
            assert!(is_mapped(first) && !is_mapped(second) && is_mapped(third));
            let listed = AtomicU64::new(0);
            // SAFETY: `add` takes the sum.
            unsafe { binpool_torch_pages(0, add, (&raw const listed).cast_mut().cast()) };
            assert_eq!(listed.into_inner(), binpool_torch_figures(0).managed);
        },
    );
}

extern "C" fn list(context: *mut c_void, descriptor: c_int, bytes: usize) {
    // SAFETY: It is the list of the caller below.
    let pages = unsafe { &mut *context.cast::<Vec<(c_int, usize)>>() };
    pages.push((descriptor, bytes));
}

/// Returns where a block begins in its pages, and these.
fn share(block: Granted) -> (usize, Vec<(c_int, usize)>) {
    let (mut pages, mut offset) = (Vec::new(), 0);
    // SAFETY: `list` takes the list, and there is a place for the offset.
    let status = unsafe {
        let context = (&raw mut pages).cast();
        binpool_torch_share(
            block.address,
            0,
            ptr::null_mut(),
            list,
            context,
            &raw mut offset,
        )
    };
    assert_eq!(status, Status::Ok);
    (offset, pages)
}

#[test]
fn shared_blocks_of_one_page_share_its_descriptor_until_both_are_taken_back() {
    over_stand_in(
        "class::shared_blocks_of_one_page_share_its_descriptor_until_both_are_taken_back",
        || {
            let [one, two] = [(); 2].map(|()| request(1000, ptr::null_mut()).unwrap());
            let (first, second) = (share(one), share(two));
            assert_eq!(first.1, second.1);
            assert_ne!(first.0, second.0);
            assert_eq!(first, share(one));
            let descriptor = format!("/proc/self/fd/{}", first.1[0].0);
            binpool_torch_take_back(one.address);
            assert!(std::fs::symlink_metadata(&descriptor).is_ok());
            binpool_torch_take_back(two.address);
            assert!(std::fs::symlink_metadata(&descriptor).is_err());
            for block in [one, two] {
                free(block, ptr::null_mut());
            }
        },
    );
}

#[test]
fn a_block_shares_the_last_page_of_another_that_lies_on_several() {
    over_stand_in(
        "class::a_block_shares_the_last_page_of_another_that_lies_on_several",
        || {
            // Half a page, the other half with one of the next, and the rest of that.
            let sizes = [MIB, 2 * MIB, MIB];
            let blocks = sizes.map(|bytes| request(bytes, ptr::null_mut()).unwrap());
            let [_, middle, last] = blocks.map(|block| share(block).1);
            assert_eq!((middle.len(), last.len()), (2, 1));
            assert_eq!(middle[1], last[0]);
            for block in blocks {
                binpool_torch_take_back(block.address);
                free(block, ptr::null_mut());
            }
        },
    );
}

#[test]
fn pages_of_another_process_are_mapped_until_they_are_dropped() {
    over_stand_in(
        "class::pages_of_another_process_are_mapped_until_they_are_dropped",
        || {
            type Objects = extern "system" fn(c_int) -> usize;
            // SAFETY: It is the stand-in.
            let driver = unsafe { Library::new("libcuda.so.1") }.unwrap();
            // SAFETY: The signature is right.
            let objects = unsafe { driver.get::<Objects>(b"stand_in_objects") }.unwrap();
            let block = request(1000, ptr::null_mut()).unwrap();
            let (_, pages) = share(block);
            let (descriptors, bytes): (Vec<_>, Vec<_>) = pages.into_iter().unzip();
            let before = objects(0);
            let (mut address, mut received) = (ptr::null_mut(), ptr::null_mut());
            // SAFETY: There are as many of both, and places for the results.
            let status = unsafe {
                binpool_torch_receive(
                    0,
                    descriptors.as_ptr(),
                    bytes.as_ptr(),
                    descriptors.len(),
                    &raw mut address,
                    &raw mut received,
                )
            };
            assert_eq!(status, Status::Ok);
            assert!(!address.is_null() && objects(0) > before);
            // SAFETY: It was received, and is dropped once.
            unsafe { binpool_torch_drop_received(received) };
            // SAFETY: Null does nothing.
            unsafe { binpool_torch_drop_received(ptr::null_mut()) };
            assert_eq!(objects(0), before);
            binpool_torch_take_back(block.address);
            free(block, ptr::null_mut());
        },
    );
}

#[test]
fn a_device_that_becomes_a_peer_may_use_what_was_mapped_before() {
    over_stand_in(
        "class::a_device_that_becomes_a_peer_may_use_what_was_mapped_before",
        || {
            let block = request(MIB, ptr::null_mut()).unwrap();
            let other = CudaBackend::open(1).unwrap();
            let queue = other.create_queue(QueueOrder::InOrder).unwrap();
            assert_eq!(binpool_torch_enable_peer_access(1, 0), Status::Ok);
            let block = pool_of(0).unwrap().allocate(block.bytes).unwrap();
            block.enqueue_fill(&queue, .., &[7_u8]).unwrap();
            queue.finish().unwrap();
        },
    );
}

//! When a block that was freed serves again.

use std::{
    ffi::c_void,
    ptr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use binpool::{Backend, Outcome, Queue, QueueOrder, Tag, WatchOptions};
use binpool_capi::torch::{
    binpool_torch_allocate, binpool_torch_empty_cache, binpool_torch_free, binpool_torch_pool,
    binpool_torch_record_stream, binpool_torch_try_allocate, name_requests, pool_of,
};
use binpool_capi::{Statistics, Status, binpool_pool_free, binpool_pool_statistics};
use binpool_cuda::{CudaBackend, CudaEvent, CudaQueue};

use crate::child::over_stand_in;

const BYTES: isize = 1 << 20;

/// The device's streams, as a program has them that uses the driver by itself.
struct Program {
    backend: CudaBackend,
    one: CudaQueue,
    two: CudaQueue,
}

impl Program {
    fn new() -> Self {
        let backend = CudaBackend::open(0).unwrap();
        let [one, two] = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
        Self { backend, one, two }
    }

    /// Enqueues a command on a stream that runs once the event is resolved.
    fn held_back(&self, queue: &CudaQueue) -> CudaEvent {
        let gate = self.backend.create_user_event().unwrap();
        self.backend
            .enqueue_marker(queue.after(std::slice::from_ref(&gate)))
            .unwrap();
        gate
    }

    fn run(&self, gate: &CudaEvent) {
        let outcome = Outcome::Complete;
        self.backend.resolve_user_event(gate, outcome).unwrap();
        self.one.finish().unwrap();
        self.two.finish().unwrap();
    }
}

fn allocate(queue: &CudaQueue) -> *mut c_void {
    // SAFETY: The streams here live as long as the process uses them.
    let pointer = unsafe { binpool_torch_allocate(BYTES, 0, queue.raw()) };
    assert!(!pointer.is_null());
    pointer
}

/// Returns the counters of the device's pool, as a program in C asks for them.
fn statistics() -> Statistics {
    let (mut pool, mut found) = (ptr::null_mut(), Statistics::default());
    // SAFETY: There is a place for the handle, which is freed below.
    assert_eq!(unsafe { binpool_torch_pool(0, &raw mut pool) }, Status::Ok);
    // SAFETY: The pool is alive, and there is room for the counters.
    let asked = unsafe { binpool_pool_statistics(pool, &raw mut found, size_of::<Statistics>()) };
    assert_eq!(asked, Status::Ok);
    // SAFETY: It is freed once.
    assert_eq!(unsafe { binpool_pool_free(pool) }, Status::Ok);
    found
}

fn free(pointer: *mut c_void, queue: &CudaQueue) {
    // SAFETY: As above.
    unsafe { binpool_torch_free(pointer, BYTES, 0, queue.raw()) };
}

#[test]
fn a_freed_block_serves_its_own_stream_at_once() {
    over_stand_in(
        "streams::a_freed_block_serves_its_own_stream_at_once",
        || {
            let program = Program::new();
            let block = allocate(&program.one);
            let gate = program.held_back(&program.one);
            free(block, &program.one);
            assert_eq!(allocate(&program.one), block);
            program.run(&gate);
        },
    );
}

#[test]
fn a_freed_block_serves_another_stream_once_its_commands_have_ended() {
    over_stand_in(
        "streams::a_freed_block_serves_another_stream_once_its_commands_have_ended",
        || {
            let program = Program::new();
            let block = allocate(&program.one);
            let gate = program.held_back(&program.one);
            free(block, &program.one);
            let other = allocate(&program.two);
            assert_ne!(other, block);
            program.run(&gate);
            free(other, &program.two);
            let pool = pool_of(0).unwrap();
            assert_eq!(pool.statistics().active_bytes, 0);
            // A pool that may not grow looks at what other streams have left.
            pool.set_limit(pool.statistics().managed_bytes);
            let both = [allocate(&program.two), allocate(&program.two)];
            assert!(both.contains(&block), "{both:?}");
        },
    );
}

#[test]
fn a_noted_use_keeps_a_freed_block_until_it_has_ended() {
    over_stand_in(
        "streams::a_noted_use_keeps_a_freed_block_until_it_has_ended",
        || {
            let program = Program::new();
            let block = allocate(&program.one);
            let gate = program.held_back(&program.two);
            // SAFETY: The stream lives as long as the process uses it.
            unsafe { binpool_torch_record_stream(block, program.two.raw()) };
            free(block, &program.one);
            let other = allocate(&program.one);
            assert_ne!(other, block);
            program.run(&gate);
            free(other, &program.one);
            let pool = pool_of(0).unwrap();
            let held = pool.statistics().managed_bytes;
            let both = [allocate(&program.one), allocate(&program.one)];
            assert!(both.contains(&block), "{both:?}");
            assert_eq!(pool.statistics().managed_bytes, held);
        },
    );
}

#[test]
fn the_stream_that_a_block_is_freed_on_is_a_use() {
    over_stand_in(
        "streams::the_stream_that_a_block_is_freed_on_is_a_use",
        || {
            let program = Program::new();
            let block = allocate(&program.one);
            let gate = program.held_back(&program.two);
            free(block, &program.two);
            assert_ne!(allocate(&program.one), block);
            program.run(&gate);
        },
    );
}

#[test]
fn null_is_the_legacy_default_stream() {
    over_stand_in("streams::null_is_the_legacy_default_stream", || {
        let program = Program::new();
        // SAFETY: The default stream lives as long as the process.
        let block = unsafe { binpool_torch_allocate(BYTES, 0, ptr::null_mut()) };
        // SAFETY: As above.
        unsafe { binpool_torch_free(block, BYTES, 0, ptr::null_mut()) };
        assert_eq!(allocate(&program.backend.legacy_default_queue()), block);
    });
}

#[test]
fn zero_bytes_are_null_and_null_is_freed_without_effect() {
    over_stand_in(
        "streams::zero_bytes_are_null_and_null_is_freed_without_effect",
        || {
            // SAFETY: The default stream lives as long as the process.
            let nothing = unsafe { binpool_torch_allocate(0, 0, ptr::null_mut()) };
            assert!(nothing.is_null());
            // SAFETY: As above.
            unsafe { binpool_torch_free(nothing, 0, 0, ptr::null_mut()) };
            // SAFETY: As above.
            unsafe { binpool_torch_record_stream(nothing, ptr::null_mut()) };
            assert_eq!(pool_of(0).unwrap().statistics().active_blocks, 0);
        },
    );
}

#[test]
fn an_unknown_address_is_logged_and_ignored() {
    over_stand_in("streams::an_unknown_address_is_logged_and_ignored", || {
        let program = Program::new();
        let block = allocate(&program.one);
        let errors = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&errors);
        let subscriber = Errors(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        tracing::subscriber::with_default(subscriber, || {
            free(ptr::without_provenance_mut(4096), &program.one);
            free(block, &program.one);
            assert_eq!(errors.load(Ordering::Relaxed), 1);
            free(block, &program.one); // For the second time.
            // SAFETY: The stream lives as long as the process uses it.
            unsafe { binpool_torch_record_stream(block, program.two.raw()) };
        });
        assert_eq!(errors.load(Ordering::Relaxed), 3);
        assert_eq!(allocate(&program.one), block);
        assert_ne!(allocate(&program.one), block);
    });
}

#[test]
fn each_device_has_a_pool_which_answers_questions_and_takes_a_limit() {
    over_stand_in(
        "streams::each_device_has_a_pool_which_answers_questions_and_takes_a_limit",
        || {
            let program = Program::new();
            let block = allocate(&program.one);
            let pools = [0, 1].map(|device| pool_of(device).unwrap());
            let active = pools.each_ref().map(|pool| pool.statistics().active_bytes);
            assert_eq!(active, [1 << 20, 0]);
            let held = pools[0].statistics().managed_bytes;
            let now = statistics();
            assert_eq!((now.active_bytes, now.managed_bytes), (1 << 20, held));
            free(block, &program.one);
            binpool_torch_empty_cache();
            assert_eq!(pools[0].statistics().managed_bytes, 0);
            let now = statistics();
            assert_eq!(
                (now.peak_active_bytes, now.peak_managed_bytes),
                (1 << 20, held)
            );

            pools[0].set_limit(0);
            let stream = program.one.raw();
            // SAFETY: The stream lives as long as the process uses it.
            assert!(unsafe { binpool_torch_try_allocate(BYTES, 0, stream) }.is_null());
            pools[0].set_limit(u64::MAX);
            allocate(&program.one);
        },
    );
}

#[test]
fn a_request_has_the_tag_that_the_program_says() {
    over_stand_in(
        "streams::a_request_has_the_tag_that_the_program_says",
        || {
            static ASKED: AtomicU32 = AtomicU32::new(0);
            name_requests(|| {
                ASKED.fetch_add(1, Ordering::Relaxed);
                Some(Tag::new("model.py:7 in forward"))
            });
            let program = Program::new();
            let pool = pool_of(0).unwrap();
            free(allocate(&program.one), &program.one);
            assert_eq!(ASKED.load(Ordering::Relaxed), 0, "no pool watches");
            pool.watch(WatchOptions::new());
            let block = allocate(&program.one);
            let live = pool.live_blocks();
            let [group] = live.groups.as_slice() else {
                panic!("{live}")
            };
            assert_eq!(group.tag.as_deref(), Some("model.py:7 in forward"));
            assert_eq!(group.requested_bytes, 1 << 20);
            free(block, &program.one);
            pool.stop_watching();
            free(allocate(&program.one), &program.one);
            assert_eq!(ASKED.load(Ordering::Relaxed), 1, "no pool watches any more");
        },
    );
}

/// Calls a function where an error is logged.
struct Errors<F>(F);

impl<F: Fn() + Send + Sync + 'static> tracing::Subscriber for Errors<F> {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::ERROR
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::Id {
        tracing::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::Id, _: &tracing::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {
        (self.0)();
    }
    fn enter(&self, _: &tracing::Id) {}
    fn exit(&self, _: &tracing::Id) {}
}

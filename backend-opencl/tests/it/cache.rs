//! Values that are built once for each context.

use std::{
    hash::{Hash, Hasher},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Barrier, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use binpool_allocators::{Backend, InvalidRequest, MemoryFlags, Queue, QueueOrder};
use binpool_opencl::{ClKernel, ClProgram, Extent, OpenClBackend, OpenClError, Parameter};
use opencl3::{context::Context, device::Device};

use crate::common::{Bench, Error, open, refusal};

/// What `cached` gives for `key`, and whether it was built for this call.
fn number(backend: &OpenClBackend, key: &'static str, value: usize) -> (usize, bool) {
    let mut built = false;
    let cached = backend.cached(key, || {
        built = true;
        Ok::<_, Error>(value)
    });
    (*cached.unwrap(), built)
}

#[test]
fn a_value_is_built_once_for_its_key() {
    let backend = open();
    assert_eq!(number(&backend, "one", 1), (1, true));
    assert_eq!(number(&backend, "one", 2), (1, false));
    assert_eq!(number(&backend.clone(), "one", 3), (1, false));
    assert_eq!(number(&backend, "two", 4), (4, true));
}

#[test]
fn types_of_keys_and_values_do_not_meet() {
    let backend = open();
    number(&backend, "key", 1);
    let text: Result<_, Error> = backend.cached("key", || Ok("a text".to_owned()));
    assert_eq!(*text.unwrap(), "a text");
    let by_number: Result<_, Error> = backend.cached(7_u32, || Ok(2_usize));
    let by_other_number: Result<_, Error> = backend.cached(7_u64, || Ok(3_usize));
    assert_eq!((*by_number.unwrap(), *by_other_number.unwrap()), (2, 3));
}

#[test]
fn threads_that_ask_at_once_get_one_value() {
    let backend = open();
    let (builds, start) = (AtomicUsize::new(0), Barrier::new(8));
    let values: Vec<Arc<usize>> = thread::scope(|scope| {
        let ask = || {
            start.wait();
            let build = || {
                thread::yield_now();
                Ok::<_, Error>(builds.fetch_add(1, Ordering::Relaxed))
            };
            backend.cached("shared", build).unwrap()
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        let values = threads.into_iter().map(|thread| thread.join().unwrap());
        values.collect()
    });
    assert_eq!(builds.into_inner(), 1);
    assert!(values.iter().all(|value| Arc::ptr_eq(value, &values[0])));
}

#[test]
fn different_keys_do_not_wait_for_one_another() {
    let backend = open();
    // Each build waits for the other to begin.
    let both = Barrier::new(2);
    thread::scope(|scope| {
        for key in [1, 2] {
            let (backend, both) = (&backend, &both);
            scope.spawn(move || {
                let build = || {
                    both.wait();
                    Ok::<_, Error>(key)
                };
                backend.cached(key, build).unwrap()
            });
        }
    });
}

#[test]
fn a_build_may_ask_for_other_values() {
    let backend = open();
    let outer = backend.cached("outer", || {
        let (inner, _) = number(&backend, "inner", 20);
        Ok::<_, Error>(inner + 1)
    });
    assert_eq!(*outer.unwrap(), 21);
    assert_eq!(number(&backend, "inner", 0), (20, false));
}

#[test]
fn a_build_that_asks_for_its_own_value_is_refused() {
    let backend = open();
    let mut asked = None;
    let built = backend.cached("key", || {
        // By way of another value, too.
        let by_another = backend.cached("other", || {
            let own: Result<Arc<usize>, Error> = backend.cached("key", || Ok(1));
            own.map(|own| *own)
        });
        assert_eq!(refusal(by_another), InvalidRequest::AsksForItself);
        asked = Some(backend.cached("key", || Ok::<usize, Error>(2)));
        Ok::<usize, Error>(3)
    });
    assert_eq!(refusal(asked.unwrap()), InvalidRequest::AsksForItself);
    assert_eq!(*built.unwrap(), 3);
    assert_eq!(number(&backend, "key", 4), (3, false));
}

/// A key whose comparison asks for a value of another kind.
#[derive(Clone)]
struct Curious(OpenClBackend);

impl Hash for Curious {
    fn hash<H: Hasher>(&self, _state: &mut H) {}
}

impl PartialEq for Curious {
    fn eq(&self, _other: &Self) -> bool {
        number(&self.0, "in a comparison", 1);
        true
    }
}

impl Eq for Curious {}

#[test]
fn keys_hold_up_none_but_keys_of_their_type() {
    let backend = open();
    for built in [5, 6] {
        let key = Curious(backend.clone());
        let value: Result<Arc<usize>, Error> = backend.cached(key, || Ok(built));
        assert_eq!(*value.unwrap(), 5);
    }
    assert_eq!(number(&backend, "in a comparison", 2), (1, false));
    backend.clear_cache(); // The key keeps the backend.
}

#[test]
fn an_error_is_not_kept() {
    let backend = open();
    let failed = backend.cached("key", || Err::<usize, _>(Error::unsupported("luck")));
    assert!(matches!(failed, Err(Error::Unsupported { .. })));
    assert_eq!(number(&backend, "key", 5), (5, true));
}

#[test]
fn threads_that_waited_for_a_build_that_failed_build_one_after_another() {
    let backend = open();
    let (building, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let failed = backend.cached("key", || {
                        let now = building.fetch_add(1, Ordering::SeqCst) + 1;
                        most.fetch_max(now, Ordering::SeqCst);
                        thread::yield_now();
                        building.fetch_sub(1, Ordering::SeqCst);
                        Err::<usize, _>(Error::unsupported("luck"))
                    });
                    assert!(failed.is_err());
                }
            });
        }
    });
    assert_eq!(most.into_inner(), 1);
}

#[test]
fn a_panic_while_building_leaves_the_key_free() {
    let backend = open();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _: Result<Arc<usize>, Error> = backend.cached("key", || panic!("on purpose"));
    }));
    assert!(panicked.is_err());
    assert_eq!(number(&backend, "key", 6), (6, true));
}

#[test]
fn contexts_share_nothing() {
    let (one, other) = (open(), open());
    assert_eq!(number(&one, "key", 1), (1, true));
    assert_eq!(number(&other, "key", 2), (2, true));
    assert_eq!(number(&one, "key", 3), (1, false));
}

#[test]
fn a_context_of_the_programs_own_has_one_cache_however_often_it_is_wrapped() {
    let device = Device::new(open().raw_device());
    let context = Context::from_device(&device).unwrap();
    // SAFETY: `opencl3` has made the context by a call of OpenCL.
    let open = || unsafe { OpenClBackend::from_raw(context.get(), device.id()) }.unwrap();
    let backend = open();
    assert_eq!(number(&backend, "key", 1), (1, true));
    let again = open();
    assert_eq!(number(&again, "key", 2), (1, false));
    // The last backend takes it along, though the context itself lives on.
    drop((backend, again));
    let later = open();
    assert_eq!(number(&later, "key", 3), (3, true));
}

/// A value that is kept for `backend`, to see when it goes.
fn watched(backend: &OpenClBackend) -> Weak<[u8; 64]> {
    let value: Result<_, Error> = backend.cached("watched", || Ok([0_u8; 64]));
    Arc::downgrade(&value.unwrap())
}

#[test]
fn values_go_with_the_last_object_of_the_context() {
    let Bench { backend, queue } = Bench::new();
    let value = watched(&backend);
    let memory = backend.create_buffer(64, MemoryFlags::empty()).unwrap();
    drop(backend);
    queue.finish().unwrap();
    drop(queue);
    assert!(value.upgrade().is_some());
    drop(memory);
    assert!(value.upgrade().is_none());
}

#[test]
fn clearing_drops_the_values_that_are_not_in_use() {
    let backend = open();
    let value = watched(&backend);
    let held: Result<_, Error> = backend.cached("held", || Ok([1_u8; 64]));
    let held = held.unwrap();
    backend.clear_cache();
    assert!(value.upgrade().is_none());
    assert_eq!(*held, [1; 64]);
    let again: Result<_, Error> = backend.cached("held", || Ok([2_u8; 64]));
    assert_eq!(*again.unwrap(), [2; 64]);
}

/// The kernel that fills bytes with one byte.
fn filler(backend: &OpenClBackend) -> Result<Arc<ClKernel>, OpenClError> {
    backend.cached("filler", || {
        let source = "kernel void fill(global uchar *data, uchar value)
            { data[get_global_id(0)] = value; }";
        let program = ClProgram::build(backend, source, "")?;
        let parameters = [
            Parameter::output::<u8>(Extent::PerItem(1)),
            Parameter::value::<u8>(),
        ];
        // SAFETY: Each work item writes the byte of its id, and touches nothing else.
        unsafe { program.kernel("fill", &parameters) }
    })
}

#[test]
fn a_cached_kernel_is_one_kernel_and_keeps_no_context() {
    let backend = open();
    let kernel = filler(&backend).unwrap();
    assert!(Arc::ptr_eq(&kernel, &filler(&backend).unwrap()));
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let memory = backend.create_buffer(64, MemoryFlags::empty()).unwrap();
    let launch = kernel.launch(&queue, &[64]).memory(&memory).value(&9_u8);
    launch.enqueue().unwrap();
    let mut data = [0_u8; 64];
    backend.read(&queue, &memory, 0, &mut data).unwrap();
    assert_eq!(data, [9; 64]);

    let (kept, value) = (Arc::downgrade(&kernel), watched(&backend));
    drop((kernel, backend, queue, memory));
    assert!(kept.upgrade().is_none());
    assert!(value.upgrade().is_none());
}

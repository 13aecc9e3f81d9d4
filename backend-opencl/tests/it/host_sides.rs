//! Transfers whose host side is borrowed or handed over.

use std::{
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    slice::from_ref,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use binpool_allocators::{
    Backend, Error, Event, EventStatus, InvalidRequest, Queue, SvmBackend, SvmGrain,
};
use binpool_opencl::{ClMemory, Rect, RectPart};

use crate::common::{Bench, let_commands_run, numbered, refusal};

const SIZE: usize = 4096;

/// A buffer and, where there is any, shared virtual memory.
fn memories(bench: &Bench) -> Vec<ClMemory> {
    let shared = bench.backend.limits().svm.coarse.then(|| {
        let shared = bench
            .backend
            .allocate_svm(SIZE, None, SvmGrain::Coarse, None);
        shared.unwrap()
    });
    [bench.buffer(SIZE)].into_iter().chain(shared).collect()
}

#[test]
fn a_vector_that_is_handed_over_comes_back() {
    let bench = Bench::new();
    for memory in memories(&bench) {
        bench.write(&memory, &[0; SIZE]);
        let numbers = vec![1.5_f32, 2.5, 3.5];
        let address = numbers.as_ptr();
        let written = bench
            .backend
            .enqueue_write_owned(&bench.queue, (&memory, 4), numbers)
            .unwrap();
        let read = bench
            .backend
            .enqueue_read_owned(&bench.queue, (&memory, 0), vec![9.0_f32; 5])
            .unwrap();
        assert_eq!(read.wait().unwrap(), [0.0, 1.5, 2.5, 3.5, 0.0]);
        let numbers = written.wait().unwrap();
        assert_eq!(
            (numbers.as_ptr(), &numbers[..]),
            (address, &[1.5, 2.5, 3.5][..])
        );
    }
}

#[test]
fn a_transfer_that_is_refused_gives_the_vector_back() {
    let bench = Bench::new();
    for memory in memories(&bench) {
        let refused =
            bench
                .backend
                .enqueue_write_owned(&bench.queue, (&memory, SIZE - 4), vec![7_u64]);
        let refused = refused.unwrap_err();
        assert_eq!(refused.value, [7]);
        let beyond = InvalidRequest::OutOfBounds {
            offset: SIZE - 4,
            bytes: 8,
            size: SIZE,
        };
        assert_eq!(refusal::<()>(Err(Error::from(refused))), beyond);
    }
}

#[test]
fn a_transfer_that_fails_gives_the_vector_back() {
    let bench = Bench::new();
    for memory in memories(&bench) {
        let gate = bench.gate();
        let queue = bench.another_queue();
        let read = bench
            .backend
            .enqueue_read_owned(queue.after(from_ref(&gate)), (&memory, 0), vec![3_u8; 8])
            .unwrap();
        bench.fail_gate(&gate);
        assert_eq!(read.wait().unwrap_err().value.len(), 8);
    }
}

#[test]
fn a_transfer_may_be_dropped_or_forgotten_before_it_has_ended() {
    let bench = Bench::new();
    for memory in memories(&bench) {
        let gate = bench.gate();
        let queue = bench.another_queue();
        let read = || {
            bench.backend.enqueue_read_owned(
                queue.after(from_ref(&gate)),
                (&memory, 0),
                vec![0_u8; SIZE],
            )
        };
        drop(read().unwrap());
        mem::forget(read().unwrap());
        let data = numbered(SIZE);
        drop(
            bench
                .backend
                .enqueue_write_owned(queue.after(from_ref(&gate)), (&memory, 0), data)
                .unwrap(),
        );
        bench.open_gate(&gate);
        assert_eq!(bench.read(&memory), numbered(SIZE));
    }
}

#[test]
fn a_scope_waits_for_its_transfers() {
    let bench = Bench::new();
    for memory in memories(&bench) {
        let (queue, gate) = (bench.another_queue(), bench.gate());
        let (data, mut seen) = (numbered(SIZE), vec![0; SIZE]);
        thread::scope(|threads| {
            let (bench, gate) = (&bench, &gate);
            let (data, seen, memory, queue) = (&data[..], &mut seen[..], &memory, &queue);
            let (tell, told) = mpsc::channel();
            let transfers = threads.spawn(move || {
                bench.backend.transfer_scope(|scope| {
                    let written =
                        scope.enqueue_write(queue.after(from_ref(gate)), (memory, 0), data);
                    let read = scope.enqueue_read(queue, (memory, 0), seen);
                    assert_eq!(written.unwrap().status().unwrap(), EventStatus::Pending);
                    tell.send(()).unwrap();
                    read.map(drop)
                })
            });
            // A thread that fails before waits for the gate, too.
            let _enqueued = told.recv_timeout(Duration::from_secs(60));
            thread::sleep(Duration::from_millis(20));
            assert!(!transfers.is_finished());
            bench.open_gate(gate);
            transfers.join().unwrap().unwrap();
        });
        assert_eq!(seen, data);
    }
}

/// A command that the scope does not wait for works on memory that its owner may have freed.
#[test]
fn a_scope_waits_for_each_kind_of_transfer() {
    let bench = Bench::new();
    let tight = Rect::default();
    for kind in [
        "write",
        "read",
        "write of a rectangle",
        "read of a rectangle",
    ] {
        for memory in memories(&bench) {
            let (queue, gate) = (bench.another_queue(), bench.gate());
            let (data, mut seen) = ([1_u8; 16], [0_u8; 16]);
            let is_over = AtomicBool::new(false);
            let was_over = thread::scope(|threads| {
                let (tell, told) = mpsc::channel();
                let (bench, memory, queue) = (&bench, &memory, &queue);
                let (data, seen, is_over) = (&data, &mut seen, &is_over);
                let gates = from_ref(&gate);
                threads.spawn(move || {
                    let ended = bench.backend.transfer_scope(|scope| {
                        let on = queue.after(gates);
                        let region = [4, 4, 1];
                        let enqueued = match kind {
                            "write" => scope.enqueue_write(on, (memory, 0), data),
                            "read" => scope.enqueue_read(on, (memory, 0), seen),
                            "write of a rectangle" => {
                                let sides = ((memory, tight), (&data[..], tight));
                                scope.enqueue_write(
                                    on,
                                    RectPart::new(sides.0, sides.1.1, region),
                                    sides.1.0,
                                )
                            }
                            _ => {
                                let sides = ((memory, tight), (&mut seen[..], tight));
                                scope.enqueue_read(
                                    on,
                                    RectPart::new(sides.0, sides.1.1, region),
                                    sides.1.0,
                                )
                            }
                        };
                        tell.send(()).unwrap();
                        enqueued.map(drop)
                    });
                    is_over.store(true, Ordering::SeqCst);
                    ended.unwrap();
                });
                // A thread that fails before waits for the gate, too.
                let _enqueued = told.recv_timeout(Duration::from_secs(60));
                let_commands_run(bench);
                let was_over = is_over.load(Ordering::SeqCst);
                bench.open_gate(&gate);
                was_over
            });
            assert!(!was_over, "{kind}");
        }
    }
}

#[test]
fn a_scope_waits_for_its_transfers_even_where_the_program_panics() {
    let bench = Bench::new();
    for memory in memories(&bench) {
        bench.write(&memory, &[6; SIZE]);
        let mut seen = vec![0_u8; SIZE];
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            bench.backend.transfer_scope(|scope| {
                scope
                    .enqueue_read(&bench.queue, (&memory, 0), &mut seen)
                    .unwrap();
                panic!("on purpose");
                #[allow(unreachable_code, reason = "what the closure would return")]
                Ok(())
            })
        }));
        assert!(panicked.is_err());
        assert_eq!(seen, [6; SIZE]);
    }
}

#[test]
fn a_scope_tells_of_a_transfer_that_failed() {
    let bench = Bench::new();
    for memory in memories(&bench) {
        let (queue, gate) = (bench.another_queue(), bench.gate());
        let mut seen = [0_u8; 8];
        let result = bench.backend.transfer_scope(|scope| {
            let read = scope.enqueue_read(queue.after(from_ref(&gate)), (&memory, 0), &mut seen);
            bench.fail_gate(&gate);
            read.map(drop)
        });
        assert!(result.is_err());
    }
}

#[test]
fn rectangles_have_borrowed_sides_too() {
    let bench = Bench::new();
    for memory in memories(&bench) {
        bench.write(&memory, &[0; SIZE]);
        let (data, mut seen) = ([5_u8; 12], [0_u8; 12]);
        let (queue, inner) = (&bench.queue, Rect::in_rows([2, 3, 0], 64));
        bench
            .backend
            .transfer_scope(|scope| {
                let region = [4, 3, 1];
                let written = scope.enqueue_write(
                    queue,
                    RectPart::new((&memory, inner), Rect::default(), region),
                    &data,
                );
                written.unwrap();
                scope.enqueue_read(
                    queue,
                    RectPart::new((&memory, inner), Rect::default(), region),
                    &mut seen,
                )
            })
            .unwrap();
        assert_eq!(seen, data);
        assert_eq!(
            bench.read(&memory)[64 * 3..64 * 3 + 7],
            [0, 0, 5, 5, 5, 5, 0]
        );
    }
}

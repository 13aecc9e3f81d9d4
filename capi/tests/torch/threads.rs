//! Many threads at once.

use std::{collections::HashSet, ffi::c_void, ptr, sync::mpsc, thread};

use binpool_capi::torch::{binpool_torch_allocate, binpool_torch_free, pool_of};

use crate::child::over_stand_in;

const THREADS: isize = 8;
const ROUNDS: isize = 500;

fn allocate(bytes: isize) -> *mut c_void {
    // SAFETY: The default stream lives as long as the process.
    unsafe { binpool_torch_allocate(bytes, 0, ptr::null_mut()) }
}

fn free(pointer: *mut c_void, bytes: isize) {
    // SAFETY: As above.
    unsafe { binpool_torch_free(pointer, bytes, 0, ptr::null_mut()) };
}

#[test]
fn blocks_of_threads_are_apart_and_any_thread_frees_them() {
    over_stand_in(
        "threads::blocks_of_threads_are_apart_and_any_thread_frees_them",
        || {
            let (give, taken) = mpsc::channel();
            thread::scope(|scope| {
                for thread in 1..=THREADS {
                    let give = give.clone();
                    scope.spawn(move || {
                        for round in 1..=ROUNDS {
                            let bytes = 512 * (1 + (thread * round) % 40);
                            let [kept, own] = [allocate(bytes), allocate(bytes)];
                            assert_ne!(kept, own);
                            free(own, bytes);
                            give.send((kept.addr(), bytes)).unwrap();
                        }
                    });
                }
                drop(give);
                let mut held = HashSet::new();
                for (count, block) in taken.iter().enumerate() {
                    assert!(held.insert(block));
                    if count % 50 == 0 {
                        for (address, bytes) in held.drain() {
                            free(ptr::without_provenance_mut(address), bytes);
                        }
                    }
                }
                for (address, bytes) in held {
                    free(ptr::without_provenance_mut(address), bytes);
                }
            });
            assert_eq!(pool_of(0).unwrap().statistics().active_blocks, 0);
        },
    );
}

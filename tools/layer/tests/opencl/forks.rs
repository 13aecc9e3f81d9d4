//! Children of a process that has the layer.

use std::sync::{
    OnceLock,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use crate::{
    child::{fork, pooled, recorded},
    driver::Device,
};

fn by_the_library() -> i32 {
    unsafe { libc::fork() }
}

/// A fork that no function of `pthread_atfork` is called for.
fn by_the_system() -> i32 {
    let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    i32::try_from(child).unwrap()
}

/// Ends the process as a program does, whatever the test around it would do.
fn exit() -> ! {
    unsafe { libc::exit(0) }
}

/// Creates a buffer `depth` frames deeper.
#[inline(never)]
fn touch_at_depth(device: Device, depth: u32) {
    if depth > 0 {
        touch_at_depth(device, depth - 1);
    } else {
        // Of another size, so that a pool grows each time.
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        device.touch(NEXT.fetch_add(1, Ordering::Relaxed));
    }
    std::hint::black_box(depth);
}

/// Forks while other threads walk their stacks, and write what they do: no child may find a lock taken forever.
fn fork_beside_busy_threads(device: Device) {
    let buffer = device.create(1);
    let is_over = &AtomicBool::new(false);
    let failed = std::thread::scope(|scope| {
        for first in 0..3 {
            scope.spawn(move || {
                // A stack from another depth is none that the layer remembers.
                let mut depths = (70..1000).cycle().skip(first * 300);
                while !is_over.load(Ordering::Relaxed) {
                    touch_at_depth(device, depths.next().unwrap());
                }
            });
        }
        let failed = (0..40).find(|depth| {
            let child = || {
                touch_at_depth(device, *depth);
                device.release(buffer);
            };
            fork(by_the_library, child) != 0
        });
        is_over.store(true, Ordering::Relaxed);
        failed
    });
    assert_eq!(failed, None);
}

#[test]
fn no_child_hangs_whatever_other_threads_record_during_the_fork() {
    let ran = recorded(|| fork_beside_busy_threads(Device::load()));
    assert!(ran.is_none_or(|ran| ran.errors.is_empty()));
}

#[test]
fn no_child_hangs_whatever_other_threads_have_of_pools_during_the_fork() {
    let ran = pooled(|| fork_beside_busy_threads(Device::load()));
    assert!(ran.is_none_or(|ran| ran.errors.is_empty()));
}

#[test]
fn a_child_has_a_recording_and_totals_of_its_own() {
    let ran = recorded(|| {
        let device = Device::load();
        for _ in 0..10 {
            device.touch(1);
        }
        let child = || {
            device.touch(2);
            exit();
        };
        assert_eq!(fork(by_the_library, child), 0);
        device.touch(3);
    });
    let Some(ran) = ran else {
        return;
    };
    let [own, of_child] = <[_; 2]>::try_from(ran.recordings()).ok().unwrap();
    assert_eq!(own.sizes(), [[1; 10].as_slice(), &[3]].concat());
    assert_eq!(of_child.sizes(), [2]);
    assert_eq!(own.calls("clCreateBuffer"), Some(11));
    assert_eq!(of_child.calls("clCreateBuffer"), Some(1));
    assert_ne!(
        own.of("h process ").next().unwrap(),
        of_child.of("h process ").next().unwrap()
    );
}

#[test]
fn a_child_names_the_contexts_and_streams_of_its_parent_again() {
    let ran = recorded(|| {
        let device = Device::load();
        let buffer = device.create(1);
        device.fill(buffer);
        let child = || {
            device.fill(buffer);
            device.fill(device.create(2));
            exit();
        };
        assert_eq!(fork(by_the_library, child), 0);
    });
    let Some(ran) = ran else {
        return;
    };
    for recording in ran.recordings() {
        assert_eq!(recording.sizes().len(), 1);
        assert_eq!(recording.count("p context "), 1);
        assert_eq!(recording.count("p stream "), 1);
        assert_eq!(recording.count("u "), 1);
    }
}

#[test]
fn a_child_releases_memory_of_its_parents_pools_to_the_driver() {
    let ran = pooled(|| {
        let device = Device::load();
        let buffer = device.create(1);
        assert_eq!(fork(by_the_library, || device.release(buffer)), 0);
        device.release(buffer);
        assert_eq!(device.create(1), buffer, "the pool has it");
    });
    assert!(ran.is_none_or(|ran| ran.errors.is_empty()));
}

#[test]
fn a_child_that_the_c_library_does_not_know_has_a_recording_of_its_own() {
    let ran = recorded(|| {
        let device = Device::load();
        let buffer = device.create(1);
        let child = || {
            device.release(buffer);
            device.touch(2);
            exit();
        };
        assert_eq!(fork(by_the_system, child), 0);
        device.release(buffer);
    });
    let Some(ran) = ran else {
        return;
    };
    let [own, of_child] = <[_; 2]>::try_from(ran.recordings()).ok().unwrap();
    assert_eq!((own.sizes(), own.count("f ")), (vec![1], 1));
    assert_eq!((of_child.sizes(), of_child.count("f ")), (vec![2], 1));
}

static IN_FORKS: OnceLock<Device> = OnceLock::new();

/// What the program does in a fork, of this many bytes.
fn touch_in_fork(bytes: usize) {
    if let Some(device) = IN_FORKS.get() {
        device.touch(bytes);
        device.touch(bytes);
    }
}

extern "C" fn before() {
    touch_in_fork(10);
}

extern "C" fn in_parent() {
    touch_in_fork(20);
}

extern "C" fn in_child() {
    touch_in_fork(30);
}

/// Forks with functions of the program that were there before those of the layer, while another thread uses the device.
fn fork_with_functions(count: usize) {
    let registered = unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    assert_eq!(registered, 0);
    let device = *IN_FORKS.get_or_init(Device::load);
    let is_over = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                device.touch(1);
            }
        });
        let failed = (0..count).find(|_| fork(by_the_library, || exit()) != 0);
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(failed, None);
    });
}

#[test]
fn functions_of_the_program_for_a_fork_are_recorded() {
    let Some(ran) = recorded(|| fork_with_functions(20)) else {
        return;
    };
    let recordings = ran.recordings();
    assert_eq!((recordings.len(), ran.errors.as_str()), (21, ""));
    let of_forks = recordings[0].sizes().into_iter().filter(|size| *size != 1);
    assert!(of_forks.eq([10, 10, 20, 20].repeat(20)));
    for of_child in &recordings[1..] {
        assert_eq!(of_child.sizes(), [30, 30]);
    }
}

#[test]
fn functions_of_the_program_for_a_fork_have_a_pool() {
    let Some(ran) = pooled(|| fork_with_functions(20)) else {
        return;
    };
    let recordings = ran.recordings();
    assert_eq!((recordings.len(), ran.errors.as_str()), (21, ""));
    assert_eq!(recordings[0].calls("clCreateBuffer"), Some(3));
    for of_child in &recordings[1..] {
        assert_eq!(of_child.calls("clCreateBuffer"), Some(2));
    }
}

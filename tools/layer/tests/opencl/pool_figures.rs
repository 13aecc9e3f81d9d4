//! What is known of the device and of the pools after the program.

use std::path::Path;

use binpool_layer::PoolFigures;
use opencl_sys::{
    CL_MEM_COPY_HOST_PTR, CL_MEM_OBJECT_ALLOCATION_FAILURE, CL_MEM_READ_ONLY, CL_MEM_USE_HOST_PTR,
};

use crate::{
    child::{fork, limited, pooled, recorded},
    driver::Device,
    queue_driver::{self, set_most_buffers},
};

#[test]
fn a_recording_names_the_device_and_its_memory() {
    let ran = recorded(|| Device::load().touch(1));
    if let Some(ran) = ran {
        let recording = ran.recording();
        let of = |begin| recording.of(begin).collect::<Vec<_>>();
        assert_eq!(of("h device "), ["a device of tests"]);
        assert_eq!(of("h capacity "), ["8589934592"]);
        assert_eq!(
            of("p context ")[0].rsplit(": ").next(),
            Some("a device of tests")
        );
        // What was not called is not listed.
        let calls = of("p call ");
        assert!(!calls.is_empty() && calls.iter().all(|call| !call.starts_with("0 ")));
        // Each frame is in a file.
        let frames = of("k ");
        let file = |frame: &str| {
            frame
                .split_once(' ')?
                .1
                .rsplit_once("+0x")
                .map(|it| it.0.to_owned())
        };
        let files: Vec<_> = frames.iter().map(|frame| file(frame)).collect();
        let exists =
            |file: &Option<String>| file.as_ref().is_some_and(|file| Path::new(file).exists());
        assert!(!files.is_empty() && files.iter().all(exists), "{frames:?}");
    }
}

#[test]
fn a_recording_names_the_device_where_the_first_request_is_none_for_a_pool() {
    let ran = pooled(|| {
        let device = Device::load();
        device.release(device.try_create(CL_MEM_COPY_HOST_PTR, 1).unwrap());
    });
    if let Some(ran) = ran {
        assert_eq!(ran.recording().count("h capacity 8589934592"), 1);
    }
}

#[test]
fn figures_of_the_pool_are_there_after_any_end_of_the_program() {
    let ran = limited("10000", || {
        let device = Device::load();
        let kept = device.create(3000);
        for _ in 0..4 {
            device.touch(1000);
        }
        device.touch(1500);
        device.try_create(CL_MEM_COPY_HOST_PTR, 100).unwrap();
        device.try_create(0, 20_000).unwrap_err();
        assert_ne!(kept, 0);
        // A child has no pool, and counts nothing.
        let status = fork(|| unsafe { libc::fork() }, || device.touch(2000));
        assert_eq!(status, 0);
        let status = fork(
            || unsafe { libc::fork() },
            || unsafe {
                libc::kill(libc::getpid(), libc::SIGKILL);
            },
        );
        assert_ne!(status, 0);
    });
    if let Some(ran) = ran {
        let expected = PoolFigures {
            requests: 8,
            served: 6,
            refused_by_limit: 1,
            most_reserved: 5500,
            held_then: 1000,
        };
        assert_eq!(ran.figures(), [expected]);
    }
}

#[test]
fn what_one_kind_of_memory_keeps_is_released_for_another_that_a_pool_serves_then() {
    let ran = limited("5000", || {
        let device = Device::load();
        device.release(device.try_create(CL_MEM_READ_ONLY, 3000).unwrap());
        device.touch(4000);
        device.touch(5000);
    });
    if let Some(ran) = ran {
        assert_eq!(ran.errors, "");
        let [figures] = <[_; 1]>::try_from(ran.figures()).unwrap();
        assert_eq!((figures.requests, figures.served), (3, 3));
    }
}

#[test]
fn the_child_of_a_process_that_has_no_pool_yet_has_its_own() {
    let ran = limited("10000", || {
        let device = Device::load();
        let status = fork(
            || unsafe { libc::fork() },
            || {
                device.in_context(800).touch(1000);
                unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
            },
        );
        assert_eq!(status, libc::SIGKILL);
    });
    if let Some(ran) = ran {
        let [figures] = <[_; 1]>::try_from(ran.figures()).unwrap();
        assert_eq!((figures.requests, figures.served), (1, 1));
    }
}

#[test]
fn figures_of_the_pool_outlive_a_process_that_is_killed() {
    let ran = limited("10000", || {
        // The layer has no pools for contexts of the parent.
        let status = fork(
            || unsafe { libc::fork() },
            || {
                Device::load().touch(1000);
                unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
            },
        );
        assert_eq!(status, libc::SIGKILL);
    });
    if let Some(ran) = ran {
        let [figures] = <[_; 1]>::try_from(ran.figures()).unwrap();
        assert_eq!(
            (figures.requests, figures.served, figures.most_reserved),
            (1, 1, 1000)
        );
    }
}

#[test]
fn the_first_refusal_of_the_limit_is_explained_by_the_report_of_the_pool() {
    let ran = limited("4194304", || {
        let device = Device::load();
        let _kept = device.create(3 << 20);
        for _ in 0..3 {
            let refused = device.try_create(0, 2 << 20);
            assert_eq!(refused, Err(CL_MEM_OBJECT_ALLOCATION_FAILURE));
        }
    });
    if let Some(ran) = ran {
        let expected = "\
binpool: out of memory: could not allocate 2.0 MiB: a limit is reached

  in use              3.0 MiB   in 1 block; `binpool run --report` says whose
  free in the pool        0 B   at most 0 B in one piece
    pending               0 B   the queue would have to wait for it
  whole pool          3.0 MiB   obtained from its allocator
  released                0 B   for this request, but not enough
  the limit           4.0 MiB   1.0 MiB left
  the device          8.0 GiB   at most 8.0 GiB in one piece

advice: free blocks, or raise the limit
";
        assert_eq!(ran.errors, expected);
    }
}

#[test]
fn the_first_refusal_of_the_limit_is_explained_where_no_pool_was_asked() {
    let ran = limited("1000", || {
        let device = Device::load();
        device.try_create(CL_MEM_COPY_HOST_PTR, 2000).unwrap_err();
    });
    if let Some(ran) = ran {
        let expected = "binpool: out of memory: could not allocate 2.0 KiB: 1000 B of the limit of 1000 B are left\n";
        assert_eq!(ran.errors, expected);
    }
}

#[test]
fn what_the_driver_refuses_is_no_refusal_of_the_limit_though_it_leaves_no_more() {
    let ran = limited("1000", || {
        let device = queue_driver::load();
        set_most_buffers(0);
        let refused = device.try_create(CL_MEM_COPY_HOST_PTR, 1000);
        assert_eq!(refused, Err(CL_MEM_OBJECT_ALLOCATION_FAILURE));
    });
    if let Some(ran) = ran {
        assert_eq!(ran.errors, "");
        assert_eq!(ran.figures()[0].refused_by_limit, 0);
    }
}

#[test]
fn memory_on_that_of_the_host_is_a_group_of_its_own() {
    let ran = recorded(|| {
        let device = Device::load();
        device.touch(1);
        device.release(device.try_create(CL_MEM_USE_HOST_PTR, 1).unwrap());
    });
    if let Some(ran) = ran {
        let recording = ran.recording();
        let groups = recording
            .of("g ")
            .map(|line| line.split_once(' ').unwrap().1);
        let kinds: Vec<&str> = groups.map(|name| name.split(',').next().unwrap()).collect();
        assert_eq!(kinds, ["buffer", "buffer on host memory"]);
    }
}

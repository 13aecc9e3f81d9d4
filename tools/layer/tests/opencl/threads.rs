//! Threads of a program.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::{child::recorded, driver::Device};

#[test]
fn threads_that_come_and_go_make_no_group_each() {
    let ran = recorded(|| {
        let device = Device::load();
        device.touch(1);
        for _ in 0..100 {
            std::thread::spawn(move || device.touch(2)).join().unwrap();
        }
    });
    if let Some(ran) = ran {
        let recording = ran.recording();
        assert_eq!(recording.sizes().len(), 101);
        assert_eq!(recording.count("g "), 2);
    }
}

#[test]
fn threads_that_are_there_at_the_same_time_have_a_group_each() {
    let ran = recorded(|| {
        let device = Device::load();
        let barrier = std::sync::Barrier::new(3);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    device.touch(1);
                    barrier.wait();
                });
            }
        });
    });
    if let Some(ran) = ran {
        assert_eq!(ran.recording().count("g "), 3);
    }
}

#[test]
fn a_recording_names_the_time_the_program_and_its_threads() {
    let now = || {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        since.as_secs()
    };
    let begin = now();
    let ran = recorded(|| {
        let device = Device::load();
        device.touch(1);
        let thread = std::thread::Builder::new().name("a worker".to_owned());
        thread
            .spawn(move || device.touch(2))
            .unwrap()
            .join()
            .unwrap();
    });
    if let Some(ran) = ran {
        let recording = ran.recording();
        let header = |key| recording.of(key).next().unwrap();
        let time: u64 = header("h time ").parse().unwrap();
        assert!((begin..=now()).contains(&time));
        let program = std::env::current_exe().unwrap();
        assert_eq!(
            header("h program "),
            program.file_name().unwrap().to_str().unwrap()
        );
        let groups: Vec<&str> = recording.of("g ").collect();
        assert!(
            groups.len() == 2 && groups[1].ends_with(", thread 2 (a worker)"),
            "{groups:?}"
        );
    }
}

#[test]
fn a_program_that_asks_for_no_memory_leaves_no_recording() {
    let ran = recorded(|| {
        Device::load();
    });
    if let Some(ran) = ran {
        assert!(ran.recordings().is_empty());
    }
}

#[test]
fn requests_of_the_same_line_have_one_stack_which_names_the_files() {
    let ran = recorded(|| {
        let device = Device::load();
        for _ in 0..3 {
            device.touch(1);
        }
        device.touch(2);
    });
    if let Some(ran) = ran {
        let recording = ran.recording();
        let stacks: Vec<&str> = recording
            .of("a ")
            .map(|line| line.rsplit(' ').next().unwrap())
            .collect();
        assert!(
            stacks[..3].iter().all(|stack| *stack == stacks[0]),
            "{stacks:?}"
        );
        assert_ne!(stacks[3], stacks[0]);
        // The layer's own frames are left out, and the test is in its file.
        let begin = format!("{} /", stacks[0]);
        let frames = recording.of("k ").filter(|line| line.starts_with(&begin));
        assert!(
            frames
                .into_iter()
                .any(|line| line.contains("/libc.so.6+0x"))
        );
    }
}

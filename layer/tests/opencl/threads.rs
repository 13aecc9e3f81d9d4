//! Threads of a program.

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

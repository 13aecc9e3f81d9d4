//! Memory of a pool whose end the driver reports to the program.

use crate::{
    child::pooled,
    queue_driver::{left, load},
};

#[test]
fn it_ends_in_the_driver_with_its_last_reference_or_part_and_is_noted_once() {
    let ran = pooled(|| {
        let device = load();
        for last_is_part in [false, true] {
            let block = device.create(100);
            let part = device.create_part(block);
            for _ in 0..3 {
                device.ask_for_the_end(block);
            }
            let mut order = [part, block];
            if last_is_part {
                order.reverse();
            }
            device.release(order[0]);
            assert_ne!(left()[2], 0);
            device.release(order[1]);
            assert_eq!(left()[2], 0);
        }
    });
    if let Some(ran) = ran {
        let recording = ran.recording();
        let notes = recording.of("p passed ");
        let notes =
            notes.filter(|line| line.ends_with("a buffer whose end is reported to the program"));
        assert_eq!(notes.count(), 2);
    }
}

#[test]
fn a_part_keeps_memory_of_a_pool_that_is_used_again_after_it() {
    pooled(|| {
        let device = load();
        let block = device.create(100);
        let part = device.create_part(block);
        device.release(block);
        assert_ne!(device.create(100), block);
        device.release(part);
        assert_eq!(device.create(100), block);
    });
}

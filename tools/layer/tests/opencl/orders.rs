//! What the layer puts on queues of the program, and when.

use opencl_sys::{CL_OUT_OF_RESOURCES, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, CL_SUCCESS};

use crate::{
    child::pooled,
    driver::Device,
    queue_driver::{
        end_commands_on, left, load, log, refuse_markers, refuse_references, unknown_queue,
    },
};

/// A program with a queue that runs in order, and with memory that commands on it use.
fn begin() -> (Device, usize, usize) {
    let device = load();
    let queue = device.create_queue(0);
    let block = device.create(100);
    device.fill_on(queue, block);
    assert_eq!(log(), [format!("fill q{queue} b{block}")]);
    (device, queue, block)
}

/// Uses memory on a queue, and releases it.
fn use_on(device: Device, queue: usize, block: usize) {
    device.fill_on(queue, block);
    device.release(block);
}

/// Ends the program, which has these queues. Nothing is left.
fn end(device: Device, queues: &[usize]) {
    for queue in queues {
        device.release_queue(*queue);
    }
    device.release_context();
    for queue in queues {
        end_commands_on(*queue);
    }
    assert_eq!(left(), [0, 0, 0]);
}

#[test]
fn the_only_queue_of_a_context_uses_memory_again_at_once_and_gets_no_command_for_it() {
    pooled(|| {
        let (device, queue, block) = begin();
        device.release(block);
        for _ in 0..3 {
            assert_eq!(device.create(100), block);
            use_on(device, queue, block);
            assert_eq!(log(), [format!("fill q{queue} b{block}")]);
        }
        end(device, &[queue]);
    });
}

#[test]
fn another_queue_uses_memory_after_a_marker_that_was_flushed_when_it_was_made() {
    pooled(|| {
        let (device, one, block) = begin();
        device.release(block);
        assert_eq!(device.create(100), block);
        let other = device.create_queue(0);
        let marker = other + 1;
        assert_eq!(
            log(),
            [
                format!("marker q{one} -> e{marker}"),
                format!("flush q{one}")
            ]
        );
        // What comes later on the first queue may wait for the other one.
        let later = device.create(50);
        device.fill_on(one, later);
        device.fill_on(other, block);
        let expected = [
            format!("fill q{one} b{later}"),
            format!("barrier q{other} after e{marker}"),
            format!("fill q{other} b{block}"),
        ];
        assert_eq!(log(), expected);
        // Once is enough.
        device.fill_on(other, block);
        assert_eq!(log(), [format!("fill q{other} b{block}")]);
        // Its commands have not ended.
        device.release(block);
        let next = device.create(100);
        end_commands_on(one);
        let last = device.create(100);
        assert!(![next, last].contains(&block));
        end_commands_on(other);
        assert_eq!(device.create(100), block);
        for memory in [block, later, next, last] {
            device.release(memory);
        }
        end(device, &[one, other]);
    });
}

#[test]
fn a_queue_does_not_wait_for_what_has_ended() {
    pooled(|| {
        let (device, one, block) = begin();
        device.release(block);
        assert_eq!(device.create(100), block);
        let other = device.create_queue(0);
        end_commands_on(one);
        log();
        device.fill_on(other, block);
        assert_eq!(log(), [format!("fill q{other} b{block}")]);
        device.release(block);
        end(device, &[one, other]);
    });
}

#[test]
fn memory_of_two_queues_is_used_again_once_both_have_ended() {
    pooled(|| {
        for first in [0, 1] {
            let device = load();
            let queues = [(); 2].map(|()| device.create_queue(0));
            let block = device.create(100);
            device.fill_on(queues[0], block);
            device.fill_on(queues[1], block);
            device.release(block);
            let other = device.create(100);
            assert_ne!(other, block);
            let said = log();
            for queue in queues {
                let begin = format!("marker q{queue} -> ");
                let marker = said.iter().position(|line| line.starts_with(&begin));
                let next = marker.and_then(|at| said.get(at + 1));
                assert_eq!(next, Some(&format!("flush q{queue}")), "{said:?}");
            }
            end_commands_on(queues[first]);
            let another = device.create(100);
            assert_ne!(another, block);
            end_commands_on(queues[1 - first]);
            assert_eq!(device.create(100), block);
            for block in [block, other, another] {
                device.release(block);
            }
            end(device, &queues);
        }
    });
}

#[test]
fn memory_of_a_queue_out_of_order_is_used_again_once_its_commands_have_ended() {
    pooled(|| {
        let device = load();
        let queue = device.create_queue(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
        let block = device.create(100);
        device.fill_on(queue, block);
        log();
        device.release(block);
        let said = log();
        assert!(
            said.len() == 2 && said[0].starts_with(&format!("marker q{queue} -> ")),
            "{said:?}"
        );
        assert_eq!(said[1], format!("flush q{queue}"));
        let other = device.create(100);
        assert_ne!(other, block);
        end_commands_on(queue);
        assert_eq!(device.create(100), block);
        for block in [block, other] {
            device.release(block);
        }
        end(device, &[queue]);
    });
}

#[test]
fn memory_is_used_again_before_its_commands_have_ended_only_while_none_waits_for_the_host() {
    pooled(|| {
        let (device, queue, block) = begin();
        let event = device.create_user_event();
        device.release(block);
        let other = device.create(100);
        assert_ne!(other, block);
        device.set_user_event(event, 0);
        use_on(device, queue, other);
        // Not that of before, whose commands have not ended.
        assert_eq!(device.create(100), other);
        end_commands_on(queue);
        let both = [device.create(100), other];
        assert!(both.contains(&block));
        for block in both {
            device.release(block);
        }
        device.release_queue(queue);
        device.release_context();
        // The user event is the program's.
        assert_eq!(left(), [0, 1, 0]);
    });
}

#[test]
fn no_pool_keeps_memory_once_the_program_lets_commands_fail() {
    pooled(|| {
        let (device, queue, block) = begin();
        let event = device.create_user_event();
        device.release(device.create(50));
        device.set_user_event(event, -1);
        // What was kept went back, and so does what is released from now on.
        assert_eq!(left()[2], 1);
        device.release(block);
        assert_eq!(left()[2], 0);
        device.release(device.create(100));
        assert_eq!(left()[2], 0);
        device.release_queue(queue);
        device.release_context();
        end_commands_on(queue);
        assert_eq!(left(), [0, 1, 0]);
    });
}

#[test]
fn a_queue_gets_its_last_marker_before_its_last_reference_is_released() {
    pooled(|| {
        let (device, queue, block) = begin();
        assert_eq!(device.retain_queue(queue), CL_SUCCESS);
        device.release_queue(queue);
        assert_eq!(log(), [format!("release q{queue}")]);
        device.release_queue(queue);
        let said = log();
        let expected = [format!("flush q{queue}"), format!("release q{queue}")];
        assert!(
            said[0].starts_with(&format!("marker q{queue} -> ")),
            "{said:?}"
        );
        assert_eq!(said[1..], expected);
        // Its commands have not ended.
        device.release(block);
        let other = device.create(100);
        assert_ne!(other, block);
        end_commands_on(queue);
        assert_eq!(device.create(100), block);
        assert!(log().is_empty());
        for block in [block, other] {
            device.release(block);
        }
        end(device, &[]);
    });
}

#[test]
fn a_reference_that_the_driver_refuses_is_none() {
    pooled(|| {
        let (device, queue, block) = begin();
        refuse_references();
        assert_eq!(device.retain_queue(queue), CL_OUT_OF_RESOURCES);
        device.release_queue(queue);
        let said = log();
        assert!(
            said[0].starts_with(&format!("marker q{queue} -> ")),
            "{said:?}"
        );
        device.release(block);
        end_commands_on(queue);
        end(device, &[]);
    });
}

#[test]
fn a_queue_that_a_program_retains_is_its_own_from_then_on() {
    pooled(|| {
        let (device, queue, block) = begin();
        let unknown = unknown_queue();
        device.fill_on(unknown, block);
        device.release(block);
        assert_eq!(left()[2], 0);
        assert_eq!(device.retain_queue(unknown), CL_SUCCESS);
        let block = device.create(100);
        use_on(device, unknown, block);
        assert_eq!(left()[2], 1);
        log();
        device.release_queue(unknown);
        let said = log();
        assert!(
            said[0].starts_with(&format!("marker q{unknown} -> ")),
            "{said:?}"
        );
        end_commands_on(unknown);
        // Another object has the other reference to it.
        device.release_queue(queue);
        device.release_context();
        end_commands_on(queue);
        assert_eq!(left(), [1, 0, 0]);
    });
}

#[test]
fn a_queue_that_no_memory_was_used_on_gets_no_marker() {
    pooled(|| {
        let device = load();
        let queues = [(); 2].map(|()| device.create_queue(0));
        device.release(device.create(100));
        device.release_queue(queues[0]);
        assert_eq!(log(), [format!("release q{}", queues[0])]);
        end(device, &queues[1..]);
    });
}

#[test]
fn a_queue_that_takes_no_marker_is_finished_before_it_ends() {
    pooled(|| {
        let (device, queue, block) = begin();
        refuse_markers();
        device.release_queue(queue);
        assert_eq!(
            log(),
            [format!("finish q{queue}"), format!("release q{queue}")]
        );
        device.release(block);
        assert_eq!(device.create(100), block);
        device.release(block);
        end(device, &[]);
    });
}

#[test]
fn memory_used_on_a_queue_that_only_other_objects_keep_goes_back_to_the_driver() {
    pooled(|| {
        let (device, queue, block) = begin();
        let unknown = unknown_queue();
        device.fill_on(unknown, block);
        log();
        device.release(block);
        assert_eq!(left()[2], 0);
        // It may end at any time.
        assert!(
            !log()
                .iter()
                .any(|line| line.contains(&format!("q{unknown}")))
        );
        assert_ne!(device.create(100), block);
        let _ = queue;
    });
}

#[test]
fn a_program_that_asks_for_the_references_of_a_queue_is_told_its_own() {
    pooled(|| {
        let (device, queue, block) = begin();
        assert_eq!(device.retain_queue(queue), CL_SUCCESS);
        device.release(block);
        assert_eq!(left()[2], 1);
        assert_eq!(device.queue_references(queue), 2);
        // What is kept has references to the queue, too: it went back.
        end_commands_on(queue);
        assert_eq!(device.queue_references(queue), 2);
        assert_eq!(left()[2], 0);
        device.release_queue(queue);
        end(device, &[queue]);
    });
}

#[test]
fn memory_is_used_on_no_queue_that_has_the_address_of_one_that_was_released() {
    pooled(|| {
        let (device, queue, block) = begin();
        let other = device.create_queue(0);
        device.fill_on(other, block);
        device.release_queue(queue);
        device.release_queue(other);
        log();
        device.release(block);
        let next = device.create_queue(0);
        let blocks = [(); 2].map(|()| device.create(100));
        assert!(!blocks.contains(&block));
        for block in blocks {
            use_on(device, next, block);
        }
        let is_next = |line: &String| line.contains(&format!("q{next}"));
        assert!(log().iter().all(is_next));
        end_commands_on(queue);
        end_commands_on(other);
        end(device, &[next]);
    });
}

#[test]
fn what_may_wait_for_the_host_comes_after_the_end_of_each_queue_that_has_memory_of_before() {
    pooled(|| {
        let (device, one, block) = begin();
        device.release(block);
        assert_eq!(device.create(100), block);
        let other = device.in_context(1000);
        let two = other.create_queue(0);
        let of_two = other.create(100);
        let said = log();
        assert_eq!(
            said[1..],
            [format!("flush q{one}")],
            "of a block that no queue has used"
        );
        // Now each of them is for the only queue of its context.
        let of_one = device.create(100);
        device.create_user_event();
        let mut said = log();
        said.retain(|line| line.starts_with("flush"));
        said.sort_unstable();
        assert_eq!(said, [one, two].map(|queue| format!("flush q{queue}")));
        for memory in [block, of_one] {
            device.release(memory);
        }
        other.release(of_two);
        other.release_queue(two);
        other.release_context();
        device.release_queue(one);
        device.release_context();
        [one, two].into_iter().for_each(end_commands_on);
        assert_eq!(left(), [0, 1, 0]);
    });
}

#[test]
fn memory_that_is_kept_goes_back_with_the_last_reference_to_its_context_or_a_queue() {
    pooled(|| {
        for context_is_first in [false, true] {
            let device = load();
            let queue = device.create_queue(0);
            let blocks = [(); 2].map(|()| device.create(100));
            device.release(blocks[0]);
            if context_is_first {
                device.release_context();
            } else {
                device.release_queue(queue);
            }
            assert_eq!(left()[2], 2);
            if context_is_first {
                device.release_queue(queue);
            } else {
                device.release_context();
            }
            end_commands_on(queue);
            assert_eq!(left()[2], 1);
            device.release(blocks[1]);
            assert_eq!(left(), [0, 0, 0]);
        }
    });
}

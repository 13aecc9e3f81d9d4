//! A device that is behind the host, by its clock.

use std::time::Duration;

use binpool_allocators::{Backend, Event, MemoryFlags, Queue, QueueOrder, Region};
use binpool_mock::{Completion, DeviceProfile, MockDevice};

use crate::common::{is_complete, is_pending};

const COMMANDS: Duration = Duration::from_millis(2);
const MARKERS: Duration = Duration::from_micros(5);

fn device() -> MockDevice {
    let behind = Completion::Behind {
        commands: COMMANDS,
        markers: MARKERS,
    };
    MockDevice::builder()
        .virtual_memory(true)
        .completion(behind)
        .build()
}

#[test]
fn commands_end_in_order_and_their_time_after_they_were_enqueued() {
    let device = device();
    let backend = device.backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let buffer = backend.create_buffer(4, MemoryFlags::empty()).unwrap();
    let enqueue = || backend.enqueue_use(&queue, &buffer).unwrap();
    let first = enqueue();
    device.pass(COMMANDS / 2);
    let (second, marker) = (enqueue(), backend.enqueue_marker(&queue).unwrap());
    device.pass(COMMANDS / 2);
    assert!(is_complete(&first) && is_pending(&second) && is_pending(&marker));
    // Commands overlap: the second one, too, ends 2 ms after it was enqueued.
    device.pass(COMMANDS / 2);
    assert!(is_complete(&second) && is_complete(&marker));
    assert_eq!(device.pending_commands(), 0);
    assert_eq!(device.statistics().waited, Duration::ZERO);
}

#[test]
fn a_wait_takes_until_the_command_ends_and_a_later_one_nothing() {
    let device = device();
    let backend = device.backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let buffer = backend.create_buffer(4, MemoryFlags::empty()).unwrap();
    let event = backend.enqueue_use(&queue, &buffer).unwrap();
    device.pass(COMMANDS / 4);
    event.wait().unwrap();
    queue.finish().unwrap();
    assert_eq!(device.now(), COMMANDS);
    assert_eq!(device.statistics().waited, COMMANDS / 4 * 3);
}

/// What another queue has, too, by the time that the host has waited.
#[test]
fn while_the_host_waits_other_queues_go_on() {
    let device = device();
    let backend = device.backend();
    let queues = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
    let buffers = [(); 2].map(|()| backend.create_buffer(4, MemoryFlags::empty()).unwrap());
    let enqueue = |number: usize| {
        backend
            .enqueue_use(&queues[number], &buffers[number])
            .unwrap()
    };
    let [one, other] = [enqueue(0), enqueue(1)];
    one.wait().unwrap();
    assert!(is_complete(&other));
    // An event of another queue is waited for with what is before it.
    let after = backend
        .enqueue_marker(queues[1].after(&[enqueue(0)]))
        .unwrap();
    after.wait().unwrap();
    assert_eq!(device.statistics().waited, 2 * COMMANDS);
}

#[test]
fn polling_comes_to_an_end() {
    let device = device();
    let backend = device.backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let marker = backend.enqueue_marker(&queue).unwrap();
    let polls = std::iter::repeat_with(|| is_pending(&marker));
    assert!((1..=50).contains(&polls.take_while(|pending| *pending).count()));
}

/// By the profile, the calls themselves take time, in which commands end.
#[test]
fn calls_take_the_time_of_the_profile_and_uses_none() {
    let behind = Completion::Behind {
        commands: Duration::from_micros(10),
        markers: MARKERS,
    };
    let device = MockDevice::builder()
        .profile(DeviceProfile::h200())
        .completion(behind)
        .build();
    let backend = device.backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let buffer = backend.create_buffer(4, MemoryFlags::empty()).unwrap();
    backend.commit(&queue, &buffer).unwrap();
    let before = device.now();
    let event = backend.enqueue_use(&queue, &buffer).unwrap();
    assert_eq!(device.now(), before);
    assert!(is_pending(&event));
    // An enqueue takes 10.5 us.
    let fill = backend.enqueue_fill(&queue, &buffer, Region::first(4), &[1_u8]);
    assert!(is_complete(&event) && fill.is_ok());
    // A blocking transfer ends after what is before it.
    backend.write(&queue, &buffer, 0, &[2_u8]).unwrap();
    assert_eq!(device.pending_commands(), 0);
}

#[test]
fn a_use_of_what_is_unmapped_meanwhile_is_reported() {
    use binpool_allocators::VirtualMemory;

    let device = device();
    let backend = device.backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let reservation = backend.reserve(4 << 20).unwrap();
    backend
        .map(&reservation, 0, &backend.create_pages(2 << 20).unwrap())
        .unwrap();
    let mapped = backend
        .create_sub_region(&reservation, Region::first(2 << 20))
        .unwrap();
    backend
        .enqueue_use(&queue, &mapped)
        .unwrap()
        .wait()
        .unwrap();
    assert_eq!(device.violations(), []);
    backend.enqueue_use(&queue, &mapped).unwrap();
    let _unmapped = backend.unmap(&reservation, Region::first(2 << 20));
    device.pass(COMMANDS);
    assert_eq!(device.violations().len(), 1);
}

//! Queues.

use binpool_allocators::{
    Backend, Error, EventStatus, FailureOrder, Queue, QueueOrder, Region,
    runtime::{self, CoreQueue, adopt_queue},
};

use super::{
    LOW, StreamQueue,
    device::{Call, Scripted, Stream, Told, failure},
    fill, hash, in_order, rig,
};

fn adopt(
    device: &Scripted,
    is_wanted: impl Fn(&Stream) -> bool,
    make: impl FnOnce() -> Stream,
) -> StreamQueue {
    // SAFETY: the stream is of this device, and in order.
    unsafe { adopt_queue(device, is_wanted, || (make(), QueueOrder::InOrder)) }
}

fn stream(device: &Scripted) -> Stream {
    runtime::Runtime::create_stream(device, QueueOrder::InOrder).unwrap()
}

fn never() -> Stream {
    panic!("the queue is known")
}

#[test]
fn each_call_goes_to_the_stream_of_its_queue() {
    let (device, queues, memory) = rig();
    for (number, queue) in queues.iter().enumerate() {
        assert_eq!((queue.stream().number, queue.number), (number, number));
        fill(&device, queue, &memory, LOW);
        assert_eq!(device.last().stream, number);
        device.commit(queue, &memory).unwrap();
        assert_eq!(
            (device.last().stream, device.last().told),
            (number, Told::Commit(Region::first(256)))
        );
        queue.flush().unwrap();
        assert_eq!(
            (device.last().stream, device.last().told),
            (number, Told::Flush)
        );
        device.set(|options| options.transfers_directly = true);
        device.write(queue, &memory, 0, &[1_u8]).unwrap();
        assert_eq!(device.last().stream, number);
    }
}

#[test]
fn a_queue_has_finished_once_a_marker_of_it_has_ended() {
    let (device, [_, two], _) = rig();
    for status in [EventStatus::Complete, EventStatus::Failed] {
        device.set(|options| options.status = status);
        two.finish().unwrap();
        let last = device.last();
        assert_eq!(
            (last.stream, last.told, last.after.len()),
            (1, Told::Marker, 0)
        );
    }
    device.fail(Call::Submit);
    two.finish().unwrap_err();
    device.at(Call::Submit, || Err(Error::unsupported("markers")));
    assert!(matches!(two.finish(), Err(Error::Unsupported { .. })));
}

#[test]
fn a_queue_whose_last_command_is_not_known_to_have_ended_has_not_finished() {
    let (device, [one, _], _) = rig();
    device.set(|options| options.status = EventStatus::Failed);
    let clone = device.clone();
    device.at(Call::Submit, move || {
        clone.last().mark.lose();
        Ok(())
    });
    one.finish().unwrap_err();
}

#[test]
fn clones_are_the_same_queue_and_others_are_not() {
    let (device, [one, two], _) = rig();
    let clone = one.clone();
    assert_eq!((&clone, clone.id()), (&one, one.id()));
    assert_ne!(one, two);
    assert_ne!(one.id(), two.id());
    assert_eq!(hash(&one), hash(&clone));
    assert_ne!(hash(&one), hash(&two));
    assert_eq!(one.order(), QueueOrder::InOrder);
    let out_of_order = device.create_queue(QueueOrder::OutOfOrder).unwrap();
    assert_eq!(out_of_order.order(), QueueOrder::OutOfOrder);
}

#[test]
fn an_out_of_order_queue_is_refused_where_there_is_none() {
    let device = Scripted::of(FailureOrder::Lost, None);
    let refused = device.create_queue(QueueOrder::OutOfOrder);
    assert!(matches!(refused, Err(Error::Unsupported { .. })));
    assert_eq!(stream(&device).number, 0, "the runtime was called");
    in_order(&device);
}

#[test]
fn one_stream_is_one_queue() {
    let (device, [one, two], _) = rig();
    for known in [&one, &two] {
        let adopted = adopt(&device, |stream| stream.number == known.number, never);
        assert_eq!(&adopted, known);
    }
    // A stream of the program's own becomes a queue once.
    let adopted = adopt(&device, |stream| stream.number == 2, || stream(&device));
    let again = adopt(&device, |stream| stream.number == 2, never);
    assert_eq!(adopted, again);
    assert!(![&one, &two].contains(&&adopted));
    assert_eq!(adopted.order(), QueueOrder::InOrder);
    adopted.backend().check_queue(&adopted).unwrap();
}

#[test]
fn an_adopted_queue_has_the_order_of_its_stream() {
    let device = Scripted::new();
    let make = || (stream(&device), QueueOrder::OutOfOrder);
    // SAFETY: the stream is of this device.
    let adopted: CoreQueue<Scripted> = unsafe { adopt_queue(&device, |_| false, make) };
    assert_eq!(adopted.order(), QueueOrder::OutOfOrder);
}

#[test]
fn a_queue_that_is_gone_is_not_adopted() {
    let (device, [one, two], _) = rig();
    let known = adopt(&device, |_| false, || stream(&device));
    drop((one, known));
    let asked = std::cell::RefCell::new(Vec::new());
    let is_wanted = |stream: &Stream| {
        asked.borrow_mut().push(stream.number);
        false
    };
    let adopted = adopt(&device, is_wanted, || stream(&device));
    assert_eq!(*asked.borrow(), [1], "the only queue that is left");
    assert_ne!(adopted, two);
}

#[test]
fn queues_are_made_while_another_ends() {
    let device = Scripted::new();
    let ends = in_order(&device);
    let clone = device.clone();
    device.at(Call::EndStream, move || {
        // The stream's end may call the backend.
        in_order(&clone);
        Err(failure())
    });
    let last = std::cell::RefCell::new(Some(ends));
    // The program drops its queue while the known ones are looked at.
    let is_wanted = |_: &Stream| last.borrow_mut().take().is_none();
    adopt(&device, is_wanted, || stream(&device));
    assert!(device.has_acted());
}

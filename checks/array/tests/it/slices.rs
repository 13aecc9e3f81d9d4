//! Slices: which elements they are, where they take part, and what comes before a write.

use std::{fmt::Debug, ops::Bound};

use binpool::{Backend, InvalidRequest, MemoryPool, QueueOrder};
use binpool_array::{
    ArrayError, AsSlice, BinaryOperation, Context, HostMaps, Kernels, MockKernels,
};
use binpool_conformance::transfers_keep_to;
use binpool_mock::MockDevice;

use crate::common::{Check, PAIRS, numbered, refusal, run_youngest_first, two_queues};

pub(crate) struct AnyPart;

impl Check for AnyPart {
    fn check<B: HostMaps, K: Kernels<B>>(&self, context: &Context<B, K>) {
        let numbers = numbered(300);
        let array = context.array(&numbers).unwrap();
        for (start, length) in [(0, 300), (1, 299), (7, 100), (299, 1), (300, 0), (0, 0)] {
            let slice = array.slice(start..start + length).unwrap();
            let expected = &numbers[start..start + length];
            assert_eq!(slice.to_vec().unwrap(), expected);
            assert_eq!(slice.to_array().unwrap().to_vec().unwrap(), expected);
            let other = array.slice(..length).unwrap();
            let sums = expected.iter().zip(&numbers).map(|(one, two)| one + two);
            let sums: Vec<f32> = sums.collect();
            assert_eq!((slice + other).to_vec().unwrap(), sums);
            assert_eq!((other + slice).to_vec().unwrap(), sums);
        }
        let (whole, part) = (
            context.array(&[1.0; 5]).unwrap(),
            array.slice(3..8).unwrap(),
        );
        assert_eq!(
            (&whole - part).to_vec().unwrap(),
            [-2.0, -3.0, -4.0, -5.0, -6.0]
        );
        assert_eq!((part - &whole).to_vec().unwrap(), [2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!((part * whole).to_vec().unwrap(), numbers[3..8]);
    }
}

#[test]
fn any_part_of_an_array_is_an_operand() {
    AnyPart.on_the_mock_device();
    AnyPart.on_opencl();
}

pub(crate) struct TransfersOfParts;

impl Check for TransfersOfParts {
    fn check<B: HostMaps, K: Kernels<B>>(&self, context: &Context<B, K>) {
        let array = context.array(&[0.0; 400]).unwrap();
        let whole = array.slice(..).unwrap();
        let (backend, queue) = (context.pool().backend(), context.queue());
        for first in [0, 1, 3, 64] {
            let part = array.slice(first..first + 200).unwrap();
            transfers_keep_to(backend, queue, (&whole, 4 * first), &part);
            let inner = part.slice(5..180).unwrap();
            transfers_keep_to(backend, queue, (&whole, 4 * (first + 5)), &inner);
        }
    }
}

#[test]
fn commands_of_the_backend_keep_to_a_slice() {
    TransfersOfParts.on_the_mock_device();
    TransfersOfParts.on_opencl();
}

pub(crate) struct WritesOfParts;

impl Check for WritesOfParts {
    fn check<B: HostMaps, K: Kernels<B>>(&self, context: &Context<B, K>) {
        let mut array = context.array(&numbered(8)).unwrap();
        let before = array.slice(..).unwrap().to_array().unwrap();
        let mut part = array.slice_mut(1..7).unwrap();
        part.slice_mut(..2)
            .unwrap()
            .copy_from(&[-1.0, -2.0])
            .unwrap();
        part.slice_mut(4..=4)
            .unwrap()
            .assign(&before.slice(7..).unwrap())
            .unwrap();
        part.slice_mut(6..).unwrap().copy_from(&[]).unwrap();
        assert_eq!(
            part.as_slice().to_vec().unwrap(),
            [-1.0, -2.0, 3.0, 4.0, 7.0, 6.0]
        );
        assert_eq!((&part + &part).to_vec().unwrap()[..3], [-2.0, -4.0, 6.0]);
        assert_eq!(
            array.to_vec().unwrap(),
            [0.0, -1.0, -2.0, 3.0, 4.0, 7.0, 6.0, 7.0]
        );
        assert_eq!(before.to_vec().unwrap(), numbered(8));
    }
}

#[test]
fn what_is_written_to_a_part_leaves_the_rest() {
    WritesOfParts.on_the_mock_device();
    WritesOfParts.on_opencl();
}

/// What an error says of a slice that is out of range.
fn refused<T: Debug>(result: Result<T, ArrayError>) -> (usize, usize, usize) {
    match result {
        Err(ArrayError::OutOfRange { start, end, length }) => (start, end, length),
        other => panic!("{other:?}"),
    }
}

#[test]
fn slices_lie_within_their_array() {
    let context = mock_context(&MockDevice::new());
    let mut array = context.array(&numbered(10)).unwrap();
    assert_eq!(refused(array.slice(4..11)), (4, 11, 10));
    assert_eq!(refused(array.slice(4..=10)), (4, 11, 10));
    assert_eq!(refused(array.slice(11..)), (11, 10, 10));
    assert_eq!(refused(array.slice(0..=usize::MAX)), (0, usize::MAX, 10));
    #[expect(clippy::reversed_empty_ranges, reason = "which is refused")]
    let reversed = array.slice(5..4);
    assert_eq!(refused(reversed), (5, 4, 10));
    let after_all = (Bound::Excluded(usize::MAX), Bound::Unbounded);
    assert_eq!(refused(array.slice(after_all)), (usize::MAX, 10, 10));
    // Counted from where the slice begins, and bounded by where it ends.
    let four = array.slice(3..7).unwrap();
    assert_eq!(refused(four.slice(2..5)), (2, 5, 4));
    assert_eq!(four.slice(2..4).unwrap().to_vec().unwrap(), [5.0, 6.0]);
    let mut four = array.slice_mut(3..7).unwrap();
    assert_eq!(refused(four.slice_mut(2..5)), (2, 5, 4));
    let error = array.slice_mut(9..12).unwrap_err();
    let text = "elements 9..12 of 10: a slice cannot end before it starts, nor past 10";
    assert_eq!(error.to_string(), text);
    let after_three = (Bound::Excluded(3), Bound::Included(6));
    assert_eq!(
        array.slice(after_three).unwrap().to_vec().unwrap(),
        [4.0, 5.0, 6.0]
    );
    assert_eq!(array.slice(10..).unwrap().len(), 0);
}

#[test]
fn lengths_are_those_of_the_slices() {
    let context = mock_context(&MockDevice::new());
    let mut array = context.array(&numbered(10)).unwrap();
    let other = context.array(&numbered(3)).unwrap();
    let lengths = |error: ArrayError| match error {
        ArrayError::Lengths { left, right } => (left, right),
        error => panic!("{error}"),
    };
    let operation = BinaryOperation::Add;
    let four = array.slice(6..).unwrap();
    assert_eq!(
        lengths(four.try_binary(operation, &other).unwrap_err()),
        (4, 3)
    );
    assert_eq!(
        lengths(other.try_binary(operation, &four).unwrap_err()),
        (3, 4)
    );
    let mut five = array.slice_mut(..5).unwrap();
    assert_eq!(lengths(five.copy_from(&[1.0]).unwrap_err()), (5, 1));
    assert_eq!(lengths(five.assign(&other).unwrap_err()), (5, 3));
    assert_eq!(array.to_vec().unwrap(), numbered(10));
}

#[test]
fn a_write_comes_after_all_who_read_and_before_all_who_read_later() {
    for orders in PAIRS {
        let (device, [one, two]) = two_queues(orders);
        let mut array = one.array(&[1.0; 8]).unwrap();
        let zeros = two.array(&[0.0; 8]).unwrap();
        let twos = one.array(&[2.0; 4]).unwrap();
        let early = [&zeros + &array, &array + &array];
        array.slice_mut(2..6).unwrap().assign(&twos).unwrap();
        let late = [&zeros + &array, &array + &zeros];
        array
            .slice_mut(..4)
            .unwrap()
            .assign(&zeros.slice(4..).unwrap())
            .unwrap();
        let last = &zeros + &array;
        drop((twos, zeros, array));
        run_youngest_first(&device);
        let [first, second] = early.map(|array| array.to_vec().unwrap());
        assert_eq!((first, second), (vec![1.0; 8], vec![2.0; 8]), "{orders:?}");
        for late in late {
            let expected = [1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 1.0, 1.0];
            assert_eq!(late.to_vec().unwrap(), expected, "{orders:?}");
        }
        let expected = [0.0, 0.0, 0.0, 0.0, 2.0, 2.0, 1.0, 1.0];
        assert_eq!(last.to_vec().unwrap(), expected, "{orders:?}");
        assert!(device.violations().is_empty(), "{:#?}", device.violations());
    }
}

#[test]
fn a_write_of_the_host_waits_for_all_who_read() {
    for orders in PAIRS {
        let (device, [one, two]) = two_queues(orders);
        let mut array = one.array(&[1.0; 8]).unwrap();
        let zeros = two.array(&[0.0; 8]).unwrap();
        let early = &zeros + &array;
        array.slice_mut(1..).unwrap().copy_from(&[3.0; 7]).unwrap();
        let late = &zeros + &array;
        run_youngest_first(&device);
        assert_eq!(early.to_vec().unwrap(), [1.0; 8], "{orders:?}");
        assert_eq!(
            late.to_vec().unwrap(),
            [1.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0]
        );
        assert!(device.violations().is_empty(), "{:#?}", device.violations());
    }
}

#[test]
fn slices_of_two_devices_do_not_mix() {
    let [one, two] = [(); 2].map(|()| mock_context(&MockDevice::new()));
    let mut a = one.array(&numbered(4)).unwrap();
    let b = two.array(&[9.0; 4]).unwrap();
    let part = b.slice(1..3).unwrap();
    let is_foreign = |refusal| matches!(refusal, InvalidRequest::ForeignObject { .. });
    let operation = BinaryOperation::Add;
    assert!(is_foreign(refusal(
        a.slice(..2).unwrap().try_binary(operation, &part)
    )));
    assert!(is_foreign(refusal(a.slice_mut(..2).unwrap().assign(&part))));
    assert_eq!(a.to_vec().unwrap(), numbered(4));
}

fn mock_context(device: &MockDevice) -> crate::common::MockContext {
    let backend = device.backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let allocator = binpool::ImmediateAllocator::new(&backend).unwrap();
    let pool = MemoryPool::new(allocator, &queue).unwrap();
    Context::new(pool, queue, MockKernels)
}

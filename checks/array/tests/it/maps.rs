//! Host maps: what the host sees and writes, and who is kept out meanwhile.

use std::mem;

use binpool::{Error, ImmediateAllocator, InvalidRequest, PoolError, PoolOptions};
use binpool_array::{ArrayError, BinaryOperation, Context, HostMaps, Kernels, MockKernels};
use binpool_mock::{CallKind, Fault, MockDevice, Persistence};

use crate::common::{
    Check, PAIRS, contexts, numbered, open_opencl, refusal, run_youngest_first, two_queues,
};

pub(crate) struct Maps;

impl Check for Maps {
    fn check<B: HostMaps, K: Kernels<B>>(&self, context: &Context<B, K>) {
        let mut array = context.array(&numbered(100)).unwrap();
        let doubled = &array + &array;
        {
            let (one, two) = (
                array.map().unwrap(),
                array.slice(90..).unwrap().map().unwrap(),
            );
            assert_eq!(*one, numbered(100));
            assert_eq!(*two, numbered(100)[90..]);
            // Who reads need not wait for who reads.
            assert_eq!(
                (&array + &array).to_vec().unwrap(),
                doubled.to_vec().unwrap()
            );
        }
        let mut map = array.map_mut().unwrap();
        map.iter_mut().for_each(|element| *element = -*element);
        map.unmap().unwrap();
        // By dropping it.
        array.slice_mut(1..=2).unwrap().map_mut().unwrap()[1] = 7.0;
        let sum = (&array + &doubled).to_vec().unwrap();
        assert_eq!(sum[..4], [0.0, 1.0, 11.0, 3.0]);
        assert_eq!(sum[4..], numbered(100)[4..]);
    }
}

#[test]
fn a_map_shows_the_elements_and_changes_them() {
    Maps.on_the_mock_device();
    Maps.on_opencl();
}

pub(crate) struct EmptyMaps;

impl Check for EmptyMaps {
    fn check<B: HostMaps, K: Kernels<B>>(&self, context: &Context<B, K>) {
        let mut nothing = context.array(&[]).unwrap();
        assert_eq!(*nothing.map().unwrap(), [0.0_f32; 0]);
        assert_eq!(*nothing.map_mut().unwrap(), [0.0_f32; 0]);
        nothing.map_mut().unwrap().unmap().unwrap();
        let mut some = context.array(&[1.0]).unwrap();
        assert_eq!(*some.slice(1..).unwrap().map().unwrap(), [0.0_f32; 0]);
        assert_eq!(
            *some.slice_mut(..0).unwrap().map_mut().unwrap(),
            [0.0_f32; 0]
        );
        assert_eq!(some.to_vec().unwrap(), [1.0]);
    }
}

#[test]
fn no_elements_are_mapped_as_no_elements() {
    EmptyMaps.on_the_mock_device();
    EmptyMaps.on_opencl();
}

#[test]
fn a_map_comes_after_what_uses_the_array_and_before_what_uses_it_later() {
    for orders in PAIRS {
        let (device, [one, two]) = two_queues(orders);
        let (a, b) = (one.array(&[1.0; 8]).unwrap(), two.array(&[2.0; 8]).unwrap());
        let mut sum = &a + &b;
        let early = &b * &sum;
        assert_eq!(*sum.map().unwrap(), [3.0; 8], "{orders:?}");
        sum.map_mut().unwrap()[0] = 5.0;
        let late = [&b * &sum, &sum * &b];
        run_youngest_first(&device);
        assert_eq!(early.to_vec().unwrap(), [6.0; 8], "{orders:?}");
        for late in late {
            let expected = [10.0, 6.0, 6.0, 6.0, 6.0, 6.0, 6.0, 6.0];
            assert_eq!(late.to_vec().unwrap(), expected, "{orders:?}");
        }
        assert!(device.violations().is_empty(), "{:#?}", device.violations());
    }
}

#[test]
fn opencl_refuses_to_use_what_stays_mapped() {
    let (backend, kernels) = open_opencl();
    let allocator = ImmediateAllocator::new(&backend).unwrap();
    // No other array can have the blocks of these.
    let mut kept = Vec::new();
    for context in contexts(allocator, PoolOptions::new(), &kernels) {
        let add = BinaryOperation::Add;
        let is_mapped = |refusal| matches!(refusal, InvalidRequest::Mapped { .. });
        let mut array = context.array(&numbered(1000)).unwrap();
        mem::forget(array.slice(500..).unwrap().map().unwrap());
        assert_eq!((&array + &array).to_vec().unwrap().len(), 1000);
        array
            .slice_mut(..500)
            .unwrap()
            .copy_from(&[1.0; 500])
            .unwrap();
        assert!(is_mapped(refusal(
            array.slice_mut(499..).unwrap().copy_from(&[0.0; 501])
        )));
        assert!(is_mapped(refusal(array.map_mut())));
        kept.push(array);

        let mut array = context.array(&numbered(1000)).unwrap();
        mem::forget(array.slice_mut(500..).unwrap().map_mut().unwrap());
        assert!(is_mapped(refusal(array.try_binary(add, &array))));
        assert!(is_mapped(refusal(array.to_vec())));
        assert!(is_mapped(refusal(array.map())));
        assert!(is_mapped(refusal(array.sum())));
        assert_eq!(array.slice(..500).unwrap().to_vec().unwrap(), numbered(500));
        kept.push(array);
    }
}

#[test]
fn a_copied_map_tells_that_it_could_not_be_written_back() {
    let device = MockDevice::new();
    let allocator = ImmediateAllocator::new(&device.backend()).unwrap();
    let context = &contexts(allocator, PoolOptions::new(), &MockKernels)[0];
    let mut array = context.array(&numbered(4)).unwrap();
    let mut map = array.map_mut().unwrap();
    map[0] = 9.0;
    device.fail_nth(CallKind::Write, 1, Fault::Backend(-5), Persistence::Once);
    assert!(matches!(
        map.unmap(),
        Err(ArrayError::Pool(PoolError::Allocator(Error::Backend(_))))
    ));
    assert_eq!(array.to_vec().unwrap(), numbered(4));
    // Dropping it cannot tell, and does no more harm.
    let mut map = array.map_mut().unwrap();
    map[0] = 9.0;
    device.fail_nth(CallKind::Write, 1, Fault::Backend(-5), Persistence::Once);
    drop(map);
    assert_eq!(array.to_vec().unwrap(), numbered(4));
}

#[test]
fn a_copied_map_that_is_forgotten_changes_nothing() {
    let device = MockDevice::new();
    let allocator = ImmediateAllocator::new(&device.backend()).unwrap();
    let context = &contexts(allocator, PoolOptions::new(), &MockKernels)[0];
    let mut array = context.array(&numbered(4)).unwrap();
    let mut map = array.map_mut().unwrap();
    map[0] = 9.0;
    mem::forget(map);
    assert_eq!((&array + &array).to_vec().unwrap(), [0.0, 2.0, 4.0, 6.0]);
}

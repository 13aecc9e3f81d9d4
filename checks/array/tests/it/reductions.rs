//! Reductions: of any number of elements, anywhere in an array.

use binpool::{ImmediateAllocator, PoolOptions};
use binpool_array::{ArrayError, Context, HostMaps, Kernels, MockKernels, Reduction};
use binpool_mock::MockDevice;

use crate::common::{Check, PAIRS, contexts, open_opencl, run_youngest_first, two_queues};

/// Numbers in no order, small enough that sums of a hundred thousand are exact.
#[expect(clippy::cast_precision_loss, reason = "small integers")]
fn scattered(length: usize) -> Vec<f32> {
    (0..length)
        .map(|number| (number * 7919 % 101) as f32 - 40.0)
        .collect()
}

/// What the host makes of them.
fn reduced(reduction: Reduction, elements: &[f32]) -> f32 {
    let all = elements.iter().copied();
    match reduction {
        Reduction::Sum => all.sum(),
        Reduction::Minimum => all.fold(f32::NAN, f32::min),
        Reduction::Maximum => all.fold(f32::NAN, f32::max),
    }
}

pub(crate) struct AnyLength;

impl Check for AnyLength {
    fn check<B: HostMaps, K: Kernels<B>>(&self, context: &Context<B, K>) {
        // One item, one group, one step, several; each, and one element around it.
        let steps = [128, 256, 1024, 2048, 65_536, 131_072];
        let around = steps
            .into_iter()
            .flat_map(|step| [step - 1, step, step + 1]);
        for length in [1, 2, 3, 100].into_iter().chain(around) {
            let numbers = scattered(length + 3);
            let array = context.array(&numbers).unwrap();
            for reduction in Reduction::ALL {
                let expected = reduced(reduction, &numbers);
                let result = array.reduce(reduction).unwrap();
                assert_eq!(
                    result.to_bits(),
                    expected.to_bits(),
                    "{reduction:?} of {length} + 3"
                );
                let expected = reduced(reduction, &numbers[1..=length]);
                let slice = array.slice(1..=length).unwrap();
                let result = slice.reduce_to(reduction).unwrap().to_vec().unwrap();
                assert_eq!(result, [expected], "{reduction:?} of {length}");
            }
        }
    }
}

#[test]
fn any_number_of_elements_is_reduced() {
    AnyLength.on_the_mock_device();
    AnyLength.on_opencl();
}

pub(crate) struct Nothing;

impl Check for Nothing {
    fn check<B: HostMaps, K: Kernels<B>>(&self, context: &Context<B, K>) {
        let (nothing, some) = (context.array(&[]).unwrap(), context.array(&[1.0]).unwrap());
        for slice in [nothing.slice(..).unwrap(), some.slice(1..).unwrap()] {
            assert_eq!(slice.sum().unwrap().to_bits(), 0.0_f32.to_bits());
            assert_eq!(
                slice.reduce_to(Reduction::Sum).unwrap().to_vec().unwrap(),
                [0.0]
            );
            for (result, asked) in [
                (slice.min(), Reduction::Minimum),
                (slice.max(), Reduction::Maximum),
            ] {
                assert!(
                    matches!(result, Err(ArrayError::NoElements { reduction }) if reduction == asked)
                );
            }
        }
        let error = nothing.max().unwrap_err().to_string();
        assert_eq!(error, "the maximum of 0 elements is undefined");
    }
}

#[test]
fn nothing_sums_up_to_zero_and_has_no_extremes() {
    Nothing.on_the_mock_device();
    Nothing.on_opencl();
}

pub(crate) struct Specials;

impl Check for Specials {
    fn check<B: HostMaps, K: Kernels<B>>(&self, context: &Context<B, K>) {
        let mut numbers = vec![f32::NAN; 3000];
        let array = context.array(&numbers).unwrap();
        assert!(array.min().unwrap().is_nan() && array.max().unwrap().is_nan());
        (numbers[17], numbers[2999]) = (f32::NEG_INFINITY, 4.0);
        let array = context.array(&numbers).unwrap();
        assert_eq!(
            (array.min().unwrap(), array.max().unwrap()),
            (f32::NEG_INFINITY, 4.0)
        );
        assert!(array.sum().unwrap().is_nan());
        let finite = array.slice(18..).unwrap();
        assert_eq!((finite.min().unwrap(), finite.max().unwrap()), (4.0, 4.0));
    }
}

#[test]
fn what_is_no_number_is_no_extreme_where_there_is_a_number() {
    Specials.on_the_mock_device();
    Specials.on_opencl();
}

pub(crate) struct RoundedSums;

impl Check for RoundedSums {
    fn check<B: HostMaps, K: Kernels<B>>(&self, context: &Context<B, K>) {
        let numbers = scattered(100_003).into_iter();
        let numbers: Vec<f32> = numbers.map(|number| (number + 41.0) * 0.1).collect();
        let exact: f64 = numbers.iter().copied().map(f64::from).sum();
        let array = context.array(&numbers).unwrap();
        let sum = array.sum().unwrap();
        let error = (f64::from(sum) - exact).abs() / exact;
        assert!(error < 1e-6, "{sum} is {error:e} of it from {exact}");
        for _ in 0..10 {
            assert_eq!(array.sum().unwrap().to_bits(), sum.to_bits());
        }
    }
}

#[test]
fn a_sum_is_the_same_each_time_and_close() {
    RoundedSums.on_the_mock_device();
    RoundedSums.on_opencl();
}

/// One after another, ones add up to 2^24 and no further.
pub(crate) struct ManyOnes;

impl Check for ManyOnes {
    fn check<B: HostMaps, K: Kernels<B>>(&self, context: &Context<B, K>) {
        let array = context.array(&vec![1.0; (1 << 24) + 4096]).unwrap();
        let sum = f64::from(array.sum().unwrap());
        assert!((sum - 16_781_312.0).abs() < 0.5, "{sum}");
    }
}

#[test]
fn sums_of_many_elements_do_not_stall() {
    let (backend, kernels) = open_opencl();
    let allocator = ImmediateAllocator::new(&backend).unwrap();
    ManyOnes.check(&contexts(allocator, PoolOptions::new(), &kernels)[0]);
    let allocator = ImmediateAllocator::new(&MockDevice::new().backend()).unwrap();
    ManyOnes.check(&contexts(allocator, PoolOptions::new(), &MockKernels)[0]);
}

#[test]
fn a_reduction_waits_for_what_it_reduces_and_is_waited_for() {
    for orders in PAIRS {
        let (device, [one, two]) = two_queues(orders);
        let (a, b) = (
            one.array(&[1.0; 2000]).unwrap(),
            two.array(&[2.0; 2000]).unwrap(),
        );
        let mut sum = &a + &b;
        let total = sum.slice(500..).unwrap().reduce_to(Reduction::Sum).unwrap();
        let scaled = b.slice(..1).unwrap() * &total;
        sum.slice_mut(..).unwrap().assign(&b).unwrap();
        let largest = scaled.reduce_to(Reduction::Maximum).unwrap();
        drop((a, b, sum, total, scaled));
        run_youngest_first(&device);
        assert_eq!(largest.to_vec().unwrap(), [9000.0], "{orders:?}");
        assert!(device.violations().is_empty(), "{:#?}", device.violations());
    }
}

#[test]
fn partial_results_come_from_the_pool() {
    let device = MockDevice::new();
    let allocator = ImmediateAllocator::new(&device.backend()).unwrap();
    let context = &contexts(allocator, PoolOptions::new(), &MockKernels)[0];
    let array = context.array(&scattered(100_000)).unwrap();
    let first = array.sum().unwrap();
    let misses = context.pool().statistics().misses;
    for _ in 0..20 {
        assert_eq!(array.sum().unwrap().to_bits(), first.to_bits());
    }
    assert_eq!(context.pool().statistics().misses, misses);
    assert_eq!(context.pool().statistics().active_blocks, 1);
}

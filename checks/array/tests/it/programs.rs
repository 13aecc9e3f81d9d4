//! Random programs of arithmetic, slices, writes, maps and reductions over several queues, beside plain vectors: all
//! elements are the same, on OpenCL and on a mock device whose queues run ahead of one another and whose race detector
//! has nothing to report.

use std::ops::Range;

use binpool::{Backend, ImmediateAllocator, PoolOptions, ReusePolicy};
use binpool_array::{Array, BinaryOperation, Context, HostMaps, Kernels, MockKernels, Reduction};
use binpool_mock::{Completion, MockDevice};
use proptest::{prelude::*, sample::Index};

use crate::common::{contexts, open_opencl};

/// The longest array: several steps of a reduction.
const LONGEST: usize = 3000;
/// The largest element: sums of this many are exact.
const LARGEST: f32 = 5000.0;

/// Some of what there is: of arrays, contexts, or elements.
type Some = Index;

#[derive(Clone, Debug)]
enum Step {
    Make(Some, usize, i16),
    /// An operation of a part of an array and one of another or the same.
    Compute(BinaryOperation, [(Some, Some, Some); 2]),
    /// Writes elements of the host to a part.
    CopyFrom(Some, [Some; 2], i16),
    /// Writes elements of one array to another.
    Assign([(Some, Some, Some); 2]),
    /// Adds one to the elements of a part, on the host.
    MapMut(Some, [Some; 2]),
    Map(Some, [Some; 2]),
    Reduce(Reduction, Some, [Some; 2]),
    /// The same, as an array that computing goes on with.
    ReduceTo(Reduction, Some, [Some; 2]),
    ToArray(Some, [Some; 2]),
    Move(Some, Some),
    Read(Some, [Some; 2]),
    Drop(Some),
}

fn any_step() -> impl Strategy<Value = Step> {
    let some = any::<Some>;
    let part = || any::<[Some; 2]>();
    let parts = || any::<[(Some, Some, Some); 2]>();
    let operation = prop::sample::select(BinaryOperation::ALL.as_slice());
    let reduction = || prop::sample::select(Reduction::ALL.as_slice());
    let length = prop_oneof![0..=4_usize, 0..=LONGEST];
    let start = || -100..100_i16;
    prop_oneof![
        3 => (some(), length, start()).prop_map(|(context, length, start)| Step::Make(context, length, start)),
        6 => (operation, parts()).prop_map(|(operation, parts)| Step::Compute(operation, parts)),
        2 => (some(), part(), start()).prop_map(|(array, part, start)| Step::CopyFrom(array, part, start)),
        4 => parts().prop_map(Step::Assign),
        2 => (some(), part()).prop_map(|(array, part)| Step::MapMut(array, part)),
        1 => (some(), part()).prop_map(|(array, part)| Step::Map(array, part)),
        1 => (reduction(), some(), part()).prop_map(|(what, array, part)| Step::Reduce(what, array, part)),
        2 => (reduction(), some(), part()).prop_map(|(what, array, part)| Step::ReduceTo(what, array, part)),
        1 => (some(), part()).prop_map(|(array, part)| Step::ToArray(array, part)),
        1 => (some(), some()).prop_map(|(array, context)| Step::Move(array, context)),
        1 => (some(), part()).prop_map(|(array, part)| Step::Read(array, part)),
        2 => some().prop_map(Step::Drop),
    ]
}

/// An array, and what its elements are.
struct Known<B: Backend, K> {
    array: Array<B, K>,
    elements: Vec<f32>,
}

struct Program<'a, B: Backend, K> {
    contexts: &'a [Context<B, K>],
    live: Vec<Known<B, K>>,
}

/// From -100 to 100, beginning somewhere.
fn numbers(length: usize, start: i16) -> Vec<f32> {
    let all = (-100..=100_i16).cycle();
    let skipped = usize::from(start.unsigned_abs());
    all.skip(skipped).take(length).map(f32::from).collect()
}

/// A part of this many elements.
fn part(length: usize, [one, other]: [Some; 2]) -> Range<usize> {
    let (one, other) = (one.index(length + 1), other.index(length + 1));
    one.min(other)..one.max(other)
}

impl<B: HostMaps, K: Kernels<B>> Program<'_, B, K> {
    fn pick(&mut self, which: Some) -> &mut Known<B, K> {
        let index = which.index(self.live.len());
        &mut self.live[index]
    }

    /// An array's part of this many elements.
    fn place(&self, (which, start, _): (Some, Some, Some), length: usize) -> (usize, Range<usize>) {
        let index = which.index(self.live.len());
        let start = start.index(self.live[index].elements.len() - length + 1);
        (index, start..start + length)
    }

    /// Two parts of one length.
    fn places(&self, parts: [(Some, Some, Some); 2]) -> [(usize, Range<usize>); 2] {
        let lengths = parts.map(|(which, _, length)| {
            let whole = self.live[which.index(self.live.len())].elements.len();
            length.index(whole + 1)
        });
        let length = lengths[0].min(lengths[1]);
        parts.map(|part| self.place(part, length))
    }

    fn push(&mut self, array: Array<B, K>, elements: Vec<f32>) {
        self.live.push(Known { array, elements });
    }

    fn run(&mut self, step: &Step) -> Result<(), TestCaseError> {
        if self.live.is_empty() && !matches!(step, Step::Make(..)) {
            return Ok(());
        }
        match *step {
            Step::Make(context, length, start) => {
                let elements = numbers(length, start);
                let context = context.get(self.contexts);
                self.push(context.array(&elements).unwrap(), elements);
            }
            Step::Compute(operation, parts) => self.compute(operation, self.places(parts)),
            Step::CopyFrom(array, range, start) => {
                let Known { array, elements } = self.pick(array);
                let range = part(elements.len(), range);
                let written = numbers(range.len(), start);
                let mut slice = array.slice_mut(range.clone()).unwrap();
                slice.copy_from(&written).unwrap();
                elements[range].copy_from_slice(&written);
            }
            Step::Assign(parts) => self.assign(self.places(parts)),
            Step::MapMut(array, range) => {
                let Known { array, elements } = self.pick(array);
                let range = part(elements.len(), range);
                let mut slice = array.slice_mut(range.clone()).unwrap();
                let mut map = slice.map_mut().unwrap();
                prop_assert_eq!(&map[..], &elements[range.clone()]);
                for (mapped, element) in map.iter_mut().zip(&mut elements[range]) {
                    *element = (*element + 1.0).min(LARGEST);
                    *mapped = *element;
                }
            }
            Step::Map(array, range) => {
                let Known { array, elements } = self.pick(array);
                let range = part(elements.len(), range);
                let slice = array.slice(range.clone()).unwrap();
                prop_assert_eq!(&slice.map().unwrap()[..], &elements[range]);
            }
            Step::Reduce(reduction, array, range) => {
                let Known { array, elements } = self.pick(array);
                let range = part(elements.len(), range);
                if let Some(expected) = reduced(reduction, &elements[range.clone()]) {
                    let result = array.slice(range).unwrap().reduce(reduction).unwrap();
                    // As bits, in which zeros of both signs are made equal.
                    let bits = |number: f32| (number + 0.0).to_bits();
                    prop_assert_eq!(bits(result), bits(expected));
                }
            }
            Step::ReduceTo(reduction, array, range) => {
                let Known { array, elements } = self.pick(array);
                let range = part(elements.len(), range);
                let expected = reduced(reduction, &elements[range.clone()]);
                if let Some(expected) = expected.filter(|expected| expected.abs() <= LARGEST) {
                    let result = array.slice(range).unwrap().reduce_to(reduction).unwrap();
                    self.push(result, vec![expected]);
                }
            }
            Step::ToArray(array, range) => {
                let Known { array, elements } = self.pick(array);
                let range = part(elements.len(), range);
                let copy = array.slice(range.clone()).unwrap().to_array().unwrap();
                let copied = elements[range].to_vec();
                self.push(copy, copied);
            }
            Step::Move(array, context) => {
                let index = array.index(self.live.len());
                let Known { array, elements } = self.live.swap_remove(index);
                let moved = array.to_context(context.get(self.contexts)).unwrap();
                self.push(moved, elements);
            }
            Step::Read(array, range) => {
                let Known { array, elements } = self.pick(array);
                let range = part(elements.len(), range);
                let slice = array.slice(range.clone()).unwrap();
                prop_assert_eq!(&slice.to_vec().unwrap(), &elements[range]);
            }
            Step::Drop(array) => {
                let index = array.index(self.live.len());
                drop(self.live.swap_remove(index));
            }
        }
        Ok(())
    }

    fn compute(
        &mut self,
        operation: BinaryOperation,
        [(one, left), (other, right)]: [(usize, Range<usize>); 2],
    ) {
        let (one, other) = (&self.live[one], &self.live[other]);
        let (lefts, rights) = (&one.elements[left.clone()], &other.elements[right.clone()]);
        let results: Vec<f32> = lefts
            .iter()
            .zip(rights)
            .map(|(left, right)| match operation {
                BinaryOperation::Add => left + right,
                BinaryOperation::Subtract => left - right,
                BinaryOperation::Multiply => left * right,
            })
            .collect();
        if results.iter().any(|element| element.abs() > LARGEST) {
            return;
        }
        let right = other.array.slice(right).unwrap();
        let left = one.array.slice(left).unwrap();
        self.push(left.try_binary(operation, &right).unwrap(), results);
    }

    fn assign(&mut self, [(target, to), (source, from)]: [(usize, Range<usize>); 2]) {
        let Ok([target, source]) = self.live.get_disjoint_mut([target, source]) else {
            return;
        };
        let assigned = source.array.slice(from.clone()).unwrap();
        let mut slice = target.array.slice_mut(to.clone()).unwrap();
        slice.assign(&assigned).unwrap();
        target.elements[to].copy_from_slice(&source.elements[from]);
    }

    fn verify(&self) -> Result<(), TestCaseError> {
        for known in &self.live {
            prop_assert_eq!(&known.array.to_vec().unwrap(), &known.elements);
        }
        Ok(())
    }
}

/// What the host makes of them; `None` if that is an error.
fn reduced(reduction: Reduction, elements: &[f32]) -> Option<f32> {
    let all = elements.iter().copied();
    match reduction {
        Reduction::Sum => Some(all.sum()),
        Reduction::Minimum => all.reduce(f32::min),
        Reduction::Maximum => all.reduce(f32::max),
    }
}

fn run<B: HostMaps, K: Kernels<B>>(
    contexts: &[Context<B, K>],
    steps: &[Step],
) -> Result<(), TestCaseError> {
    let live = Vec::new();
    let mut program = Program { contexts, live };
    for step in steps {
        program.run(step)?;
    }
    program.verify()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn no_program_races_on_the_mock_device(
        steps in prop::collection::vec(any_step(), 1..60),
        policy in prop::sample::select(ReusePolicy::ALL.as_slice()),
        seed: u64,
    ) {
        let device = MockDevice::builder().completion(Completion::Seeded(seed)).build();
        let allocator = ImmediateAllocator::new(&device.backend()).unwrap();
        run(&contexts(allocator, PoolOptions::new().reuse(policy), &MockKernels), &steps)?;
        device.run();
        prop_assert!(device.violations().is_empty(), "{:#?}", device.violations());
    }
}

/// Runs programs of any steps, under any policy.
pub(crate) fn programs<B: HostMaps, K: Kernels<B> + Clone>((backend, kernels): &(B, K)) {
    let config = ProptestConfig::with_cases(64);
    let programs = (
        prop::collection::vec(any_step(), 1..60),
        prop::sample::select(ReusePolicy::ALL.as_slice()),
    );
    proptest!(config, |((steps, policy) in programs)| {
        let allocator = ImmediateAllocator::new(backend).unwrap();
        run(&contexts(allocator, PoolOptions::new().reuse(policy), kernels), &steps)?;
    });
}

#[test]
fn programs_on_opencl() {
    programs(&open_opencl());
}

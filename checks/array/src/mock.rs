//! Kernels of the mock device: closures on the host. Its maps are copies.

use binpool::{AsMemory, Error};
use binpool_mock::{MockBackend, MockQueue};

use crate::{BinaryOperation, CopiesMaps, Kernels, Reduction};

/// The kernels of the mock device.
#[derive(Clone, Copy, Debug, Default)]
pub struct MockKernels;

/// How many elements of a reduction make one partial result, one after another.
const REDUCED: usize = 256;

fn floats(bytes: &[u8]) -> impl Iterator<Item = f32> {
    bytes
        .as_chunks()
        .0
        .iter()
        .map(|bytes| f32::from_ne_bytes(*bytes))
}

impl Kernels<MockBackend> for MockKernels {
    fn enqueue(
        &self,
        backend: &MockBackend,
        queue: &MockQueue,
        operation: BinaryOperation,
        operands: [&dyn AsMemory<MockBackend>; 2],
        result: &dyn AsMemory<MockBackend>,
    ) -> Result<(), Error> {
        let apply = match operation {
            BinaryOperation::Add => |left: f32, right: f32| left + right,
            BinaryOperation::Subtract => |left: f32, right: f32| left - right,
            BinaryOperation::Multiply => |left: f32, right: f32| left * right,
        };
        backend.launch(
            queue,
            operation.name(),
            &operands,
            &[result],
            move |reads, writes| {
                let pairs = floats(reads[0]).zip(floats(reads[1]));
                let results = writes[0].as_chunks_mut().0.iter_mut();
                for (result, (left, right)) in results.zip(pairs) {
                    *result = apply(left, right).to_ne_bytes();
                }
            },
        )?;
        Ok(())
    }

    fn partial_results(&self, elements: usize) -> usize {
        elements.div_ceil(REDUCED)
    }

    fn enqueue_reduction(
        &self,
        backend: &MockBackend,
        queue: &MockQueue,
        reduction: Reduction,
        operand: &dyn AsMemory<MockBackend>,
        results: &dyn AsMemory<MockBackend>,
    ) -> Result<(), Error> {
        let combine = match reduction {
            Reduction::Sum => |one: f32, other: f32| one + other,
            Reduction::Minimum => f32::min,
            Reduction::Maximum => f32::max,
        };
        backend.launch(
            queue,
            reduction.name(),
            &[operand],
            &[results],
            move |reads, writes| {
                let all: Vec<f32> = floats(reads[0]).collect();
                let parts = all.chunks(REDUCED);
                for (result, part) in writes[0].as_chunks_mut().0.iter_mut().zip(parts) {
                    let reduced = part.iter().copied().reduce(combine);
                    *result = reduced.unwrap_or_default().to_ne_bytes();
                }
            },
        )?;
        Ok(())
    }
}

impl CopiesMaps for MockBackend {}

//! Kernels of the mock device: closures on the host.

use binpool::Error;
use binpool_mock::{MockBackend, MockQueue};

use crate::{BinaryOperation, Kernels, Operands};

/// Element-wise kernels for the mock device.
#[derive(Clone, Copy, Debug, Default)]
pub struct MockKernels;

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
        operands: &Operands<'_, MockBackend>,
    ) -> Result<(), Error> {
        let elements = operands.elements;
        let apply = match operation {
            BinaryOperation::Add => |left: f32, right: f32| left + right,
            BinaryOperation::Subtract => |left: f32, right: f32| left - right,
            BinaryOperation::Multiply => |left: f32, right: f32| left * right,
        };
        backend.launch(
            queue,
            operation.name(),
            &[operands.left, operands.right],
            &[operands.result],
            move |reads, writes| {
                let pairs = floats(reads[0]).zip(floats(reads[1]));
                let results = writes[0].as_chunks_mut().0.iter_mut().zip(pairs);
                for (result, (left, right)) in results.take(elements) {
                    *result = apply(left, right).to_ne_bytes();
                }
            },
            &[],
        )?;
        Ok(())
    }
}

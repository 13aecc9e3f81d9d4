//! The operators of arrays and slices.

use binpool::Backend;
use std::ops::{Add, Mul, Sub};

use crate::{Array, AsSlice, BinaryOperation, Kernels, Slice, SliceMut};

#[expect(
    clippy::panic,
    reason = "operators cannot return errors; `try_binary` does"
)]
fn binary<B: Backend, K: Kernels<B>>(
    operation: BinaryOperation,
    left: Slice<'_, B, K>,
    right: Slice<'_, B, K>,
) -> Array<B, K> {
    match left.try_binary(operation, &right) {
        Ok(result) => result,
        Err(error) => panic!("{} failed: {error}", operation.name()),
    }
}

macro_rules! operator {
    ($trait:ident, $method:ident, $operation:expr, $left:ty) => {
        impl<B: Backend, K: Kernels<B>, R: AsSlice<B, K>> $trait<R> for $left {
            type Output = Array<B, K>;

            fn $method(self, right: R) -> Array<B, K> {
                binary($operation, self.as_slice(), right.as_slice())
            }
        }
    };
    ($trait:ident, $method:ident, $operation:expr) => {
        operator!($trait, $method, $operation, Array<B, K>);
        operator!($trait, $method, $operation, &Array<B, K>);
        operator!($trait, $method, $operation, Slice<'_, B, K>);
        operator!($trait, $method, $operation, &Slice<'_, B, K>);
        operator!($trait, $method, $operation, &SliceMut<'_, B, K>);
    };
}

operator!(Add, add, BinaryOperation::Add);
operator!(Sub, sub, BinaryOperation::Subtract);
operator!(Mul, mul, BinaryOperation::Multiply);

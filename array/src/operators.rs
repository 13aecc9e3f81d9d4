//! The operators of arrays and slices.

use std::ops::{Add, Mul, Sub};

use binpool::Allocator;

use crate::{Array, AsSlice, BinaryOperation, Kernels, Slice, SliceMut};

#[expect(
    clippy::panic,
    reason = "operators cannot return errors; `try_binary` does"
)]
fn binary<A: Allocator, K: Kernels<A::Backend>>(
    operation: BinaryOperation,
    left: Slice<'_, A, K>,
    right: Slice<'_, A, K>,
) -> Array<A, K> {
    match left.try_binary(operation, &right) {
        Ok(result) => result,
        Err(error) => panic!("{} failed: {error}", operation.name()),
    }
}

macro_rules! operator {
    ($trait:ident, $method:ident, $operation:expr, $left:ty) => {
        impl<A: Allocator, K: Kernels<A::Backend>, R: AsSlice<A, K>> $trait<R> for $left {
            type Output = Array<A, K>;

            fn $method(self, right: R) -> Array<A, K> {
                binary($operation, self.as_slice(), right.as_slice())
            }
        }
    };
    ($trait:ident, $method:ident, $operation:expr) => {
        operator!($trait, $method, $operation, Array<A, K>);
        operator!($trait, $method, $operation, &Array<A, K>);
        operator!($trait, $method, $operation, Slice<'_, A, K>);
        operator!($trait, $method, $operation, &Slice<'_, A, K>);
        operator!($trait, $method, $operation, &SliceMut<'_, A, K>);
    };
}

operator!(Add, add, BinaryOperation::Add);
operator!(Sub, sub, BinaryOperation::Subtract);
operator!(Mul, mul, BinaryOperation::Multiply);

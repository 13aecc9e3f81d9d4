//! The operators of arrays, slices and numbers.

use std::ops::{Add, Mul, Sub};

use binpool::Backend;

use crate::{Array, ArrayError, AsSlice, BinaryOperation, Kernels, Slice, SliceMut};

/// What operators take beside an array: another one, a slice, references to them, or a number, which counts for every element.
pub trait Operand<B: Backend, K> {
    /// Calls `work` with the elements. A number becomes an array of the length of `like`.
    ///
    /// # Errors
    ///
    /// Those of `work`; no memory for the elements of a number.
    fn with_elements<R>(
        &self,
        like: Slice<'_, B, K>,
        work: impl FnOnce(Slice<'_, B, K>) -> Result<R, ArrayError>,
    ) -> Result<R, ArrayError>;
}

macro_rules! operand {
    ($operand:ty) => {
        impl<B: Backend, K: Kernels<B>> Operand<B, K> for $operand {
            fn with_elements<R>(
                &self,
                _like: Slice<'_, B, K>,
                work: impl FnOnce(Slice<'_, B, K>) -> Result<R, ArrayError>,
            ) -> Result<R, ArrayError> {
                work(self.as_slice())
            }
        }
    };
}

operand!(Array<B, K>);
operand!(Slice<'_, B, K>);
operand!(SliceMut<'_, B, K>);

impl<B: Backend, K: Kernels<B>> Operand<B, K> for f32 {
    fn with_elements<R>(
        &self,
        like: Slice<'_, B, K>,
        work: impl FnOnce(Slice<'_, B, K>) -> Result<R, ArrayError>,
    ) -> Result<R, ArrayError> {
        work(like.context().full(like.len(), *self)?.as_slice())
    }
}

impl<B: Backend, K, T: Operand<B, K>> Operand<B, K> for &T {
    fn with_elements<R>(
        &self,
        like: Slice<'_, B, K>,
        work: impl FnOnce(Slice<'_, B, K>) -> Result<R, ArrayError>,
    ) -> Result<R, ArrayError> {
        (**self).with_elements(like, work)
    }
}

#[expect(
    clippy::panic,
    reason = "operators cannot return errors; `try_binary` does"
)]
fn computed<B: Backend, K>(
    operation: BinaryOperation,
    result: Result<Array<B, K>, ArrayError>,
) -> Array<B, K> {
    match result {
        Ok(result) => result,
        Err(error) => panic!("{} failed: {error}", operation.name()),
    }
}

macro_rules! operator {
    ($trait:ident, $method:ident, $operation:expr, $left:ty) => {
        impl<B: Backend, K: Kernels<B>, R: Operand<B, K>> $trait<R> for $left {
            type Output = Array<B, K>;

            fn $method(self, right: R) -> Array<B, K> {
                let left = self.as_slice();
                let result = right.with_elements(left, |right| left.try_binary($operation, &right));
                computed($operation, result)
            }
        }

        impl<B: Backend, K: Kernels<B>> $trait<$left> for f32 {
            type Output = Array<B, K>;

            fn $method(self, right: $left) -> Array<B, K> {
                let right = right.as_slice();
                let result = self.with_elements(right, |left| left.try_binary($operation, &right));
                computed($operation, result)
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

//! Pools and blocks of either backend.

use binpool::MemoryPool;
use binpool_cuda::CudaBackend;
use binpool_opencl::OpenClBackend;

/// What belongs to one backend or the other. [`of_backend!`](crate::of_backend) has the same code for both.
///
/// ```
/// use binpool_capi::{OfBackend, of_backend};
///
/// let name: OfBackend<&str, String> = OfBackend::Cuda("H100".to_owned());
/// assert_eq!(of_backend!(&name, name => name.len()), 4);
/// ```
#[derive(Clone, Debug)]
pub enum OfBackend<O, C> {
    /// OpenCL.
    OpenCl(O),
    /// CUDA.
    Cuda(C),
}

/// A pool of either backend.
pub type AnyPool = OfBackend<MemoryPool<OpenClBackend>, MemoryPool<CudaBackend>>;

/// Evaluates an expression with the pool or block of an [`OfBackend`], whichever it is.
#[macro_export]
macro_rules! of_backend {
    ($of_backend:expr, $inner:ident => $work:expr) => {
        match $of_backend {
            $crate::OfBackend::OpenCl($inner) => $work,
            $crate::OfBackend::Cuda($inner) => $work,
        }
    };
}

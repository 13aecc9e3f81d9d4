//! Why a workload could not be measured.

use binpool::{PoolError, TraceError};

use crate::Refused;

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// There is no pool.
    #[error("a pool to measure cannot be made")]
    Pool(#[from] PoolError),
    /// The pool cannot be recorded.
    #[error("a pool to measure cannot be recorded")]
    Recording(#[from] TraceError),
    /// There was no memory for a block.
    #[error(transparent)]
    Refused(#[from] Refused),
}

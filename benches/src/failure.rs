//! Why a workload could not be measured.

use binpool::{PoolError, TraceError};

use crate::Workload;

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

/// There was no memory for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{subject} has no memory left for the workload {workload}")]
pub struct Refused {
    /// The subject that ran out.
    pub subject: &'static str,
    /// What it was for.
    pub workload: Workload,
}

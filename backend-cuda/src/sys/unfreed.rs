//! What the driver has refused to free, and is asked for again.

use std::collections::VecDeque;

use super::{driver::Driver, status::CudaResult};

/// This many rounds of attempts are made when a context ends, and none after that.
pub(super) const LAST_ROUNDS: usize = 8;

/// A call that frees something. It keeps no reference to a context, which has it among those of its own.
pub(super) type Free = Box<dyn FnMut(&Driver) -> CudaResult<()> + Send>;

/// Something that is not freed yet.
pub(super) struct Unfreed {
    pub(super) what: &'static str,
    pub(super) free: Free,
}

/// What is not freed yet, the oldest attempt first.
pub(super) type AllUnfreed = VecDeque<Unfreed>;

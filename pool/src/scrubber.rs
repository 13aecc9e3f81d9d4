//! The scrub policy of a pool, with the queue that it needs.

use binpool_allocators::{Backend, Error, QueueOrder};

use crate::ScrubPolicy;

/// A scrub policy, with the queue that it needs.
#[derive(Debug)]
pub(crate) enum Scrubber<B: Backend> {
    Never,
    /// The queue has only fills of memory that no command uses, so the host can wait for it.
    OnFree {
        queue: B::Queue,
    },
    OnHandOut,
}

impl<B: Backend> Scrubber<B> {
    /// Makes the scrubber of a policy.
    ///
    /// # Errors
    ///
    /// An error of the backend if it cannot make a queue.
    pub(crate) fn new(policy: ScrubPolicy, backend: &B) -> Result<Self, Error> {
        Ok(match policy {
            ScrubPolicy::Never => Self::Never,
            ScrubPolicy::OnFree => Self::OnFree {
                queue: backend.create_queue(QueueOrder::InOrder)?,
            },
            ScrubPolicy::OnHandOut => Self::OnHandOut,
        })
    }

    pub(crate) const fn policy(&self) -> ScrubPolicy {
        match self {
            Self::Never => ScrubPolicy::Never,
            Self::OnFree { .. } => ScrubPolicy::OnFree,
            Self::OnHandOut => ScrubPolicy::OnHandOut,
        }
    }

    pub(crate) const fn is_on_free(&self) -> bool {
        matches!(self, Self::OnFree { .. })
    }

    pub(crate) const fn is_on_hand_out(&self) -> bool {
        matches!(self, Self::OnHandOut)
    }
}

//! A pair of memory barriers, of which the rarer side pays for both.

use crate::sync::{Ordering, fence};

/// Two barriers that a [`light`](Self::light) and a [`heavy`](Self::heavy) side put between their stores and their loads, so
/// that at least one of the sides sees what the other has stored.
///
/// Where the kernel can have all threads of the process run a barrier (Linux, `membarrier(2)`), the light side only keeps the
/// compiler from moving things, which costs nothing, and the heavy side makes the system call. Elsewhere both are fences.
///
/// Known as asymmetric fences (C++ proposal P1202, and `folly`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Barrier {
    is_asymmetric: bool,
}

impl Barrier {
    /// The best pair that this machine has.
    pub(crate) fn new() -> Self {
        Self {
            is_asymmetric: kernel::is_ready(),
        }
    }

    /// The side that comes by often.
    #[inline]
    pub(crate) fn light(self) {
        if self.is_asymmetric {
            // The heavy side's system call is this thread's fence.
            std::sync::atomic::compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
    }

    /// The side that comes by rarely. Whether it worked: where a kernel has promised its barrier and then refuses it, nobody
    /// knows what the light side sees.
    #[must_use]
    pub(crate) fn heavy(self) -> bool {
        if self.is_asymmetric {
            kernel::barrier()
        } else {
            fence(Ordering::SeqCst);
            true
        }
    }
}

#[cfg(all(target_os = "linux", not(any(loom, shuttle))))]
mod kernel {
    use std::sync::OnceLock;

    use rustix::thread::{MembarrierCommand, membarrier, membarrier_query};

    /// Whether the kernel has the barrier; registers the process for it the first time.
    pub(super) fn is_ready() -> bool {
        static READY: OnceLock<bool> = OnceLock::new();
        *READY.get_or_init(|| {
            membarrier_query().contains_command(MembarrierCommand::PrivateExpedited)
                && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
        })
    }

    pub(super) fn barrier() -> bool {
        membarrier(MembarrierCommand::PrivateExpedited).is_ok()
    }
}

#[cfg(not(all(target_os = "linux", not(any(loom, shuttle)))))]
mod kernel {
    pub(super) fn is_ready() -> bool {
        false
    }

    pub(super) fn barrier() -> bool {
        false
    }
}

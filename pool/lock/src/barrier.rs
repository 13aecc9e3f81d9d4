//! A pair of memory barriers: the side that runs often pays nothing, and the side that runs rarely pays for both.

use crate::sync::{Ordering, fence};

/// How a pair of threads orders a store before a load: the frequent side calls [`light`] between the two, the rare side calls
/// [`heavy`](Self::heavy). Then at least one side loads what the other stored.
///
/// Such pairs are known as asymmetric fences (C++ proposal P1202, and `folly`).
#[derive(Clone, Copy, Debug)]
pub enum Barrier {
    /// The heavy side makes a system call that runs a barrier on all threads of the process (Linux, `membarrier(2)`). The light
    /// side only keeps the compiler from reordering, which costs nothing.
    Kernel,
    /// Each side runs a full fence.
    Fences,
    /// The kernel promised its barrier, but refuses it.
    #[cfg(test)]
    Refused,
}

impl Barrier {
    /// Returns the cheapest pair that this machine supports.
    pub fn of_this_process() -> Self {
        if kernel::is_ready() {
            Self::Kernel
        } else {
            Self::Fences
        }
    }

    /// Returns whether the light side has to run a fence.
    pub fn needs_fences(self) -> bool {
        matches!(self, Self::Fences)
    }

    /// The barrier of the rare side. Returns whether it was also a barrier for threads whose light side runs no fence: not if the kernel
    /// refuses its barrier, which it may do once the program has entered a sandbox.
    #[must_use]
    pub fn heavy(self) -> bool {
        let is_for_all = match self {
            Self::Kernel => kernel::barrier(),
            Self::Fences => false,
            #[cfg(test)]
            Self::Refused => false,
        };
        fence(Ordering::SeqCst);
        is_for_all
    }
}

/// The barrier of the frequent side.
#[inline]
pub fn light(needs_fence: bool) {
    if needs_fence {
        fence(Ordering::SeqCst);
    } else {
        // The system call of the heavy side is the fence of this thread.
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
    }
}

#[cfg(all(target_os = "linux", not(any(loom, shuttle, miri))))]
mod kernel {
    use std::sync::OnceLock;

    use rustix::thread::{MembarrierCommand, membarrier, membarrier_query};

    /// Returns whether the kernel supports the barrier. The first call registers the process for it.
    pub(super) fn is_ready() -> bool {
        static READY: OnceLock<bool> = OnceLock::new();
        *READY.get_or_init(|| {
            membarrier_query().contains_command(MembarrierCommand::PrivateExpedited)
                && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
        })
    }

    /// Returns whether the kernel ran a barrier on all threads. The second command takes milliseconds, but needs no registration,
    /// which a process may have lost.
    pub(super) fn barrier() -> bool {
        let commands = [
            MembarrierCommand::PrivateExpedited,
            MembarrierCommand::Global,
        ];
        commands.into_iter().any(|it| membarrier(it).is_ok())
    }
}

/// `shuttle` runs one thread at a time, so everything is a barrier, and hits take the same path as on Linux.
#[cfg(shuttle)]
mod kernel {
    pub(super) fn is_ready() -> bool {
        true
    }

    pub(super) fn barrier() -> bool {
        true
    }
}

#[cfg(not(any(shuttle, all(target_os = "linux", not(any(loom, miri))))))]
mod kernel {
    pub(super) fn is_ready() -> bool {
        false
    }

    pub(super) fn barrier() -> bool {
        false
    }
}

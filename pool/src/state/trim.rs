//! Giving free memory back to the allocator.

use binpool_allocators::{Allocator, segments::release_views};

use crate::{shared::Shared, state::bins::Released};

impl<A: Allocator> Shared<A> {
    /// Gives blocks that were sent off back to the allocator, to be freed after the commands that use them. The bytes
    /// given back.
    pub(crate) fn release_each(&self, leaving: Vec<Released<A>>) -> u64 {
        let bytes = leaving.iter().map(|released| released.bytes as u64).sum();
        for released in leaving {
            let Released {
                views,
                memory,
                bytes,
                uses,
            } = released;
            release_views(&self.allocator, views);
            if let Err(error) = self.release(memory, &uses, &[]) {
                tracing::error!(%error, bytes, "a held block could not be released cleanly");
            }
            self.arrive();
        }
        bytes
    }

    /// Gives every held block back to the allocator, those too that commands still use. The bytes given back.
    pub(crate) fn release_all(&self) -> u64 {
        self.flush();
        let leaving = self.state.lock().release_all();
        self.release_each(leaving)
    }

    /// Gives memory back to the allocator until the pool manages at most `most` bytes, if it can: what no command uses,
    /// largest first, and if need be everything that is free. The bytes given back.
    pub(crate) fn trim_to(&self, most: u64) -> u64 {
        let released = self.trim_unused_to(most);
        if self.excess(most) == 0 {
            return released;
        }
        released + self.release_all()
    }

    /// The same, of what no command uses only.
    pub(crate) fn trim_unused_to(&self, most: u64) -> u64 {
        if self.excess(most) == 0 {
            return 0;
        }
        self.flush();
        self.catch_up();
        let leaving = {
            let mut state = self.state.lock();
            let excess = state.managed_bytes().saturating_sub(most);
            state.release_largest(excess)
        };
        self.release_each(leaving)
    }

    /// Whether a block of `bytes` bytes is free, or would be given by the allocator once everything has gone back that can.
    pub(crate) fn would_fit(&self, bytes: usize) -> bool {
        self.flush();
        let (capacity, available) = (
            self.allocator.capacity_bytes(),
            self.allocator.available_bytes(),
        );
        let state = self.state.lock();
        if state.largest_held_bytes() >= bytes {
            return true;
        }
        let room = capacity.saturating_sub(state.managed_bytes());
        room.min(available).saturating_add(state.releasable_bytes()) >= bytes as u64
    }

    fn excess(&self, most: u64) -> u64 {
        self.state.lock().managed_bytes().saturating_sub(most)
    }

    /// Gives what has been free since the sweep before, and what no command uses, back to the allocator. The bytes given
    /// back.
    pub(crate) fn sweep(&self) -> u64 {
        self.flush();
        self.catch_up();
        let leaving = self.state.lock().take_idle();
        let bytes = self.release_each(leaving);
        if bytes > 0 {
            tracing::debug!(bytes, "gave back what was idle");
        }
        bytes
    }
}

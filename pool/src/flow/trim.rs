//! How much free memory a pool keeps.

use binpool_allocators::Backend;

use crate::{
    shared::Shared,
    track::pool_event::{PoolEvent, What},
};

impl<B: Backend> Shared<B> {
    /// Releases free memory until the pool manages at most `most` bytes: first what no command uses, largest first,
    /// then, if needed, all that is free. Returns the released bytes.
    pub(crate) fn trim_to(&self, most: u64) -> u64 {
        let mut released = self.trim_unused_to(most);
        if self.excess(most) > 0 {
            released += self.release_all();
        }
        self.note(|| PoolEvent::did(What::Trim, released, format_args!("to {most} bytes")));
        released
    }

    /// Releases free memory that no command uses, largest first, until the pool manages at most `most` bytes. Returns
    /// the released bytes.
    pub(crate) fn trim_unused_to(&self, most: u64) -> u64 {
        if self.excess(most) == 0 {
            return 0;
        }
        self.flush();
        self.catch_up();
        let released = {
            let mut state = self.state.lock();
            let excess = state.managed_bytes().saturating_sub(most);
            state.release_largest(excess)
        };
        self.release_each(released)
    }

    /// Closes the thread caches once the pool manages more than its release threshold, so that it sees each free, and opens them once it
    /// does not.
    #[inline]
    pub(crate) fn follow_release_threshold(&self) {
        if self.has_thread_caches && self.retain.release_threshold() < u64::MAX {
            self.close_above(self.retain.release_threshold());
        }
    }

    #[cold]
    fn close_above(&self, threshold: u64) {
        let mut state = self.state.lock();
        let is_above = state.managed_bytes() > threshold;
        match (state.is_above_threshold, is_above) {
            (false, true) => self.close(&mut state),
            (true, false) => state.threads.open(),
            _ => return,
        }
        state.is_above_threshold = is_above;
    }

    fn excess(&self, most: u64) -> u64 {
        self.state.lock().managed_bytes().saturating_sub(most)
    }

    /// Releases what has been free since the last sweep and is used by no command. Returns the released bytes.
    pub(crate) fn sweep(&self) -> u64 {
        self.flush();
        self.catch_up();
        let released = self.state.lock().take_idle();
        let bytes = self.release_each(released);
        if bytes > 0 {
            self.note(|| PoolEvent::did(What::Sweep, bytes, ""));
            tracing::debug!(bytes, "gave back what was idle");
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use crate::{PoolOptions, Retain, mock_pool::MockPool};

    #[test]
    fn threads_have_caches_while_the_pool_manages_no_more_than_its_release_threshold() {
        const MIB: usize = 1 << 20;
        for segments in [false, true] {
            let retain = Retain::new().at_most(64 * MIB as u64);
            let mock = MockPool::new(PoolOptions::new().segments(segments).retain(retain));
            let are_closed = || mock.shared.state.lock().threads.is_closed();
            let below = mock.pool.allocate(16 * MIB).unwrap();
            assert!(!are_closed());
            let above = mock.pool.allocate(64 * MIB).unwrap();
            assert!(are_closed(), "it manages {}", mock.pool.managed_bytes());
            drop(above);
            mock.device.run();
            drop(mock.pool.allocate(MIB).unwrap()); // Sees that no command uses it.
            assert!(
                mock.pool.managed_bytes() <= 64 * MIB as u64,
                "segments: {segments}"
            );
            assert!(!are_closed());
            drop(below);
            assert!(mock.pool.managed_bytes() >= 16 * MIB as u64, "it stays");
        }
    }
}

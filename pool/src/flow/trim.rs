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
        let dropped = self.release_dropped();
        let released = {
            let mut state = self.state.lock();
            let excess = state.managed_bytes().saturating_sub(most);
            state.release_largest(excess)
        };
        dropped + self.release_each(released)
    }

    fn excess(&self, most: u64) -> u64 {
        self.state.lock().managed_bytes().saturating_sub(most)
    }

    /// Releases memory that has been free since the last sweep and that no command uses. Returns the released bytes.
    pub(crate) fn sweep(&self) -> u64 {
        self.flush();
        self.catch_up();
        let dropped = self.release_dropped();
        let released = self.state.lock().take_idle();
        let bytes = dropped + self.release_each(released);
        if bytes > 0 {
            self.note(|| PoolEvent::did(What::Sweep, bytes, ""));
            tracing::debug!(bytes, "released idle memory");
        }
        bytes
    }
}

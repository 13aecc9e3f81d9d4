//! The pool while it takes notes of its blocks.

use std::io;

use binpool::{PoolError, PoolRecording, WatchOptions};

use crate::{Failure, Pool, Subject};

/// The pool while it [watches](binpool::MemoryPool::watch) who has which block.
#[derive(Debug)]
pub struct Watched(Pool);

impl Watched {
    /// A pool with the default settings.
    ///
    /// # Errors
    ///
    /// Those of the pool.
    pub fn new() -> Result<Self, PoolError> {
        let pool = Pool::new()?;
        pool.pool().watch(WatchOptions::new());
        Ok(Self(pool))
    }
}

/// The pool while it is [recorded](binpool::MemoryPool::record): all is turned into text, which is thrown away.
#[derive(Debug)]
pub struct Recorded {
    _recording: PoolRecording,
    pool: Pool,
}

impl Recorded {
    /// A pool with the default settings.
    ///
    /// # Errors
    ///
    /// Those of the pool, and of the recording.
    pub fn new() -> Result<Self, Failure> {
        let pool = Pool::new()?;
        Ok(Self {
            _recording: pool.pool().record(io::sink())?,
            pool,
        })
    }
}

macro_rules! forward_to_pool {
    ($pool:tt) => {
        type Block = <Pool as Subject>::Block;

        fn allocate(&self, bytes: usize) -> Option<Self::Block> {
            self.$pool.allocate(bytes)
        }

        fn free_held(&self) {
            self.$pool.free_held();
        }

        fn stop_holding(&self) {
            self.$pool.stop_holding();
        }

        fn reclaim(&self) {
            self.$pool.reclaim();
        }
    };
}

impl Subject for Watched {
    const NAME: &'static str = "binpool-watched";

    forward_to_pool!(0);
}

impl Subject for Recorded {
    const NAME: &'static str = "binpool-recorded";

    forward_to_pool!(pool);
}

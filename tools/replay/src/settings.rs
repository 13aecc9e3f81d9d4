//! The settings of a replay.

use std::{fmt, time::Duration};

use binpool::PoolOptions;
use clap::ValueEnum;

use crate::touch::Touch;

/// The allocator that a replay uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum AllocatorChoice {
    /// Buffers that are committed before the call returns.
    #[default]
    Immediate,
    /// Buffers that take memory when they are first used: the device may then have no room for them.
    Deferred,
    /// Coarse-grained shared virtual memory.
    Svm,
    /// Fine-grained shared virtual memory.
    SvmFine,
    /// Pages of virtual memory that are mapped where they are needed, on the mock, CUDA and Vulkan.
    VirtualMemory,
}

impl fmt::Display for AllocatorChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("", |it| it.get_name()))
    }
}

/// The settings of a replay.
#[derive(Clone, Debug)]
pub struct ReplaySettings {
    /// The allocator.
    pub allocator: AllocatorChoice,
    /// The pool's settings; `None` for no pool.
    pub pool: Option<PoolOptions>,
    /// The most bytes that may be taken from the device; `None` for all that it has.
    pub capacity_bytes: Option<u64>,
    /// What is enqueued on each block.
    pub touch: Touch,
    /// The number of threads. They share the pool, and each has queues of its own: the streams of the trace are
    /// distributed over them, or each replays a copy of the trace if there are fewer streams than threads.
    pub threads: usize,
    /// How many times in a row the trace is replayed, in one pool. Blocks that it never frees are allocated in the first round alone, and
    /// live on.
    pub rounds: usize,
    /// How far the device lags behind the host: before a block is freed, a command is enqueued on it that ends this much later, and not
    /// before those before it on its queue. On the mock, this is time of its own clock, by which an operation of the program takes 10 us
    /// and a call of the device as long as the profile says, so that each replay is the same. With `None`, commands end at once on the
    /// mock, and when they really end on a real device.
    pub behind: Option<Duration>,
}

impl Default for ReplaySettings {
    /// One thread that replays the trace once, without a pool, and touches nothing.
    fn default() -> Self {
        Self {
            allocator: AllocatorChoice::default(),
            pool: None,
            capacity_bytes: None,
            touch: Touch::Nothing,
            threads: 1,
            rounds: 1,
            behind: None,
        }
    }
}

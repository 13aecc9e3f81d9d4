//! Blocks in use by the program, and what the program knows of them.

use std::sync::{Arc, Mutex};

use binpool::{PendingRead, PooledBuffer, QueueId, Region};
use binpool_mock::{MockBackend, MockEvent, MockMemory, MockQueue};

use crate::model::reference::{Name, Tenure};

pub(crate) struct Live {
    pub(crate) name: Name,
    pub(crate) block: PooledBuffer<MockBackend>,
    /// What every byte of its memory has to be, those too that its class has more than was asked for.
    pub(crate) bytes: Vec<u8>,
    /// The commands that touched it: what the next one has to come after.
    pub(crate) events: Vec<MockEvent>,
    /// The queues whose commands come after those of the block's former users.
    pub(crate) ordered: Vec<QueueId>,
    /// Where the last command is, as long as the program has that queue.
    pub(crate) last: Option<MockQueue>,
    pub(crate) tenure: Tenure,
    /// Set if commands that fail may be among those that wrote it.
    pub(crate) is_in_doubt: bool,
}

/// Memory that was taken out of the pool.
pub(crate) struct Detached {
    pub(crate) name: Name,
    pub(crate) memory: MockMemory,
    pub(crate) bytes: Vec<u8>,
    pub(crate) events: Vec<MockEvent>,
    pub(crate) last: Option<MockQueue>,
    pub(crate) is_in_doubt: bool,
}

/// A read on its way, and what it is to find.
pub(crate) struct Read {
    pub(crate) pending: PendingRead<MockEvent>,
    pub(crate) expected: Vec<u8>,
    pub(crate) name: Name,
    /// Set if it may fail, or find something else.
    pub(crate) is_in_doubt: bool,
}

impl Read {
    pub(crate) fn check(self) -> Result<(), String> {
        let Self {
            pending,
            expected,
            name,
            is_in_doubt,
        } = self;
        if is_in_doubt {
            return Ok(());
        }
        let found = pending.wait().map_err(|error| format!("a read: {error}"))?;
        match found.iter().zip(&expected).position(|(a, b)| a != b) {
            None => Ok(()),
            Some(at) => Err(format!(
                "block {name} was overwritten: byte {at} of {} is {}, and was {}",
                found.len(),
                found[at],
                expected[at]
            )),
        }
    }
}

/// Blocks that the program can do without: hooks drop them.
#[derive(Clone, Default)]
pub(crate) struct Cache(Arc<Mutex<CacheContent>>);

#[derive(Default)]
struct CacheContent {
    blocks: Vec<Live>,
    /// What was dropped since the last question.
    dropped: Vec<(Name, Tenure)>,
}

impl Cache {
    pub(crate) fn put(&self, live: Live) {
        self.0.lock().unwrap().blocks.push(live);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().unwrap().blocks.is_empty()
    }

    /// Commands have failed that may have been to write the blocks.
    pub(crate) fn doubt(&self) {
        for live in &mut self.0.lock().unwrap().blocks {
            live.is_in_doubt = true;
        }
    }

    /// Drops the oldest blocks, at most this many.
    pub(crate) fn drop_oldest(&self, most: usize) -> usize {
        let dropped: Vec<_> = {
            let mut content = self.0.lock().unwrap();
            let count = content.blocks.len().min(most);
            let dropped: Vec<_> = content.blocks.drain(..count).collect();
            for live in &dropped {
                content.dropped.push((live.name, live.tenure.clone()));
            }
            dropped
        };
        dropped.len()
    }

    pub(crate) fn take_dropped(&self) -> Vec<(Name, Tenure)> {
        std::mem::take(&mut self.0.lock().unwrap().dropped)
    }

    /// The addresses of the blocks, and their sizes.
    pub(crate) fn addresses(&self) -> Vec<Region> {
        let content = self.0.lock().unwrap();
        content.blocks.iter().filter_map(Live::address).collect()
    }
}

impl Live {
    /// Where it lies in the host's memory, if it is shared.
    pub(crate) fn address(&self) -> Option<Region> {
        let address = self.block.address()?;
        Some(Region::new(
            address.as_ptr() as usize,
            self.block.class_size(),
        ))
    }

    /// The program has no handle of this queue any more.
    pub(crate) fn forget_queue(&mut self, queue: &MockQueue) {
        self.last.take_if(|last| last == queue);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

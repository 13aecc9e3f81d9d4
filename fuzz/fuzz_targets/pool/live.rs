//! A block in use by the program, and what has to be in it.

use binpool::{Event, EventStatus, PooledBuffer};
use binpool_mock::{MockBackend, MockEvent};

pub(crate) type Block = PooledBuffer<MockBackend>;

pub(crate) struct Live {
    pub(crate) block: Block,
    pub(crate) pool: usize,
    /// Every byte of it, once all of `proof` have completed; empty if it was never filled as a whole.
    pub(crate) bytes: Vec<u8>,
    /// The commands that put them there.
    pub(crate) proof: Vec<MockEvent>,
    /// The last commands that touched it: what the next one has to come after.
    pub(crate) last: Vec<MockEvent>,
}

impl Live {
    pub(crate) fn new(block: Block, pool: usize) -> Self {
        Self {
            block,
            pool,
            bytes: Vec::new(),
            proof: Vec::new(),
            last: Vec::new(),
        }
    }

    /// Takes note of a command that puts bytes at an offset and comes after all others.
    pub(crate) fn put(&mut self, offset: usize, bytes: &[u8], proof: Vec<MockEvent>) {
        if bytes.len() == self.block.size() {
            self.bytes = bytes.to_vec();
            self.proof = proof;
        } else if !self.bytes.is_empty() {
            self.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
            self.proof.extend(proof);
        }
    }

    /// What has to be in it, once the device has run everything. `None` if a command failed that was to put it there.
    pub(crate) fn expected(&self) -> Option<&[u8]> {
        let is_complete = |event: &MockEvent| matches!(event.status(), Ok(EventStatus::Complete));
        let is_known = self.bytes.len() == self.block.size() && self.proof.iter().all(is_complete);
        is_known.then_some(&self.bytes)
    }
}

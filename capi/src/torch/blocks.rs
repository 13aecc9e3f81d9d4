//! The blocks that the program has, by their addresses.

use std::{
    collections::HashMap,
    ffi::c_void,
    hash::{BuildHasherDefault, Hasher},
    sync::LazyLock,
};

use parking_lot::Mutex;

use super::pools::Block;

/// A block that the program has.
pub(super) struct Given {
    pub(super) block: Block,
    pub(super) device: i32,
    /// The stream that it was requested for.
    pub(super) stream: usize,
}

/// So many maps that threads seldom meet.
const SHARDS: usize = 64;

/// Addresses end in this many zeros: blocks lie on multiples of 256 bytes.
const ZEROS: u32 = 8;

/// 2^64 by the golden ratio: a product with it differs in its upper bits where the factor differs in any.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

type Shard = Mutex<HashMap<u64, Given, BuildHasherDefault<AddressHasher>>>;

// No two of them in one line of the processor's cache, which threads would take from each other.
#[repr(align(128))]
#[derive(Default)]
struct Apart(Shard);

static BLOCKS: LazyLock<[Apart; SHARDS]> =
    LazyLock::new(|| std::array::from_fn(|_| Apart::default()));

/// Notes a block.
pub(super) fn insert(address: u64, given: Given) {
    let former = shard_of(address).lock().insert(address, given);
    if former.is_some() {
        // Only a pool that gives out memory twice leads here. The former block is kept from others.
        tracing::error!(address, "an address was given out twice");
        std::mem::forget(former);
    }
}

/// Takes out the block of an address.
pub(super) fn take(pointer: *mut c_void) -> Option<Given> {
    let address = pointer.addr() as u64;
    shard_of(address).lock().remove(&address)
}

/// Calls `work` with the block of an address. It calls no pool, since the map is locked.
pub(super) fn with<R>(pointer: *mut c_void, work: impl FnOnce(&Given) -> R) -> Option<R> {
    let address = pointer.addr() as u64;
    shard_of(address).lock().get(&address).map(work)
}

fn shard_of(address: u64) -> &'static Shard {
    let upper = spread(address) >> (u64::BITS - SHARDS.trailing_zeros());
    // Below `SHARDS`, whatever the address.
    &BLOCKS[usize::try_from(upper).unwrap_or(0) % SHARDS].0
}

fn spread(address: u64) -> u64 {
    (address >> ZEROS).wrapping_mul(SPREAD)
}

/// Hashes addresses of blocks.
#[derive(Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte) << ZEROS);
        }
    }

    fn write_u64(&mut self, address: u64) {
        // The lowest bits choose the place, and the upper ones the shard: those between differ within a shard.
        self.0 = spread(address ^ self.0).rotate_left(20);
    }
}

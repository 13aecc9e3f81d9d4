//! Sequences are decoded with caches of keys and values that grow by a row a token: at the same addresses in a pool of pages, by copies in
//! a pool of segments.
//!
//! ```text
//! cargo run -p binpool --example kv_cache
//! ```

use std::error::Error;

use binpool::{
    Backend, GrowableBuffer, ImmediateAllocator, MemoryPool, PooledBuffer, QueueOrder,
    VirtualMemoryAllocator,
};
use binpool_mock::{CallKind, MockBackend, MockDevice, MockQueue};

/// The bytes of a row: the keys and values of all layers for one token.
const ROW: usize = 64 << 10;
/// The most tokens that the model takes, and what each sequence would have reserved without caches that grow.
const CONTEXT: usize = 4096;
/// The tokens of each sequence.
const TOKENS: [usize; 3] = [40, 200, 90];

fn main() -> Result<(), Box<dyn Error>> {
    let device = MockDevice::builder().virtual_memory(true).build();
    let backend = device.backend();
    let queue = backend.create_queue(QueueOrder::InOrder)?;
    let pages = MemoryPool::new(VirtualMemoryAllocator::new(&backend), &queue)?;
    let segments = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    let texts = [("pages", pages), ("segments", segments)].map(|(name, pool)| {
        let copies = device.call_count(CallKind::Copy);
        let texts = decode_all(&pool, &queue)?;
        println!(
            "{name}: {} MiB at most for caches that would take {} MiB at their largest, {} copies",
            pool.statistics().peak_managed_bytes >> 20,
            (TOKENS.len() * CONTEXT * ROW) >> 20,
            device.call_count(CallKind::Copy) - copies,
        );
        Ok::<_, binpool::PoolError>(texts)
    });
    let [with_pages, with_copies] = texts;
    assert_eq!(with_pages?, with_copies?);
    Ok(())
}

struct Sequence {
    cache: GrowableBuffer<MockBackend>,
    tokens: Vec<u8>,
}

/// Decodes all sequences, a token of each at a time. The cache of one that is done goes back to the device.
fn decode_all(
    pool: &MemoryPool<MockBackend>,
    queue: &MockQueue,
) -> Result<Vec<Vec<u8>>, binpool::PoolError> {
    let result = pool.allocate_on(queue, 1)?;
    let mut running = Vec::new();
    for first in 1..=u8::try_from(TOKENS.len()).unwrap_or(u8::MAX) {
        let cache = pool.growable_on(queue, CONTEXT * ROW)?;
        running.push(Sequence {
            cache,
            tokens: vec![first],
        });
    }
    let mut done = vec![Vec::new(); TOKENS.len()];
    while !running.is_empty() {
        for sequence in &mut running {
            decode(sequence, &result, queue)?;
        }
        running.retain_mut(|sequence| {
            let number = usize::from(sequence.tokens[0]) - 1;
            let is_done = sequence.tokens.len() == TOKENS[number];
            if is_done {
                done[number].clone_from(&sequence.tokens);
            }
            !is_done
        });
    }
    Ok(done)
}

/// Adds the row of the last token to the cache, and computes the next token of all rows.
fn decode(
    sequence: &mut Sequence,
    result: &PooledBuffer<MockBackend>,
    queue: &MockQueue,
) -> Result<(), binpool::PoolError> {
    let Sequence { cache, tokens } = sequence;
    let address = cache.memory_id();
    let last = tokens.last().copied().unwrap_or_default();
    cache.grow(ROW)?;
    assert!(!cache.stays_in_place() || cache.memory_id() == address);
    cache.enqueue_fill(queue, cache.size() - ROW.., &[last])?;
    let attend = |reads: &[&[u8]], writes: &mut [&mut [u8]]| {
        let rows = reads[0].chunks_exact(ROW).map(|row| row[0]);
        writes[0][0] = rows.fold(7, |sum: u8, row| sum.wrapping_mul(31).wrapping_add(row));
    };
    let (cache, backend) = (&*cache, cache.backend());
    backend.launch(queue, "attend", &[cache], &[result], attend)?;
    let mut next = [0_u8];
    result.read(queue, 0, &mut next)?;
    tokens.push(next[0]);
    Ok(())
}

#[test]
fn the_example_runs() {
    main().unwrap();
}

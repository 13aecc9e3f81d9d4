//! What is made of a pooled block and outlives it: no other user has the block's bytes before all of that is gone.

use std::thread;

use binpool::{
    Allocator, ImmediateAllocator, MemoryPool, PoolOptions, PooledBuffer, SvmAllocator, SvmGrain,
};
use binpool_allocators::{Backend, Memory, MemoryFlags, Region, Slice};
use binpool_opencl::{
    ChannelOrder, ChannelType, ClImage, ClMemory, ClQueue, HostPitches, ImageFormat, ImagePart,
    ImageRegion, ImageShape, OpenClBackend, OpenClError, SvmPointer,
};

use crate::common::{Bench, contents};

const BYTES: usize = 4096;
const RGBA8: ImageFormat = ImageFormat::new(ChannelOrder::Rgba, ChannelType::UnsignedInt8);
const ROW: ImageShape = ImageShape::d1_buffer(BYTES / 4);

/// Blocks of their own, and of segments.
const WAYS_TO_HOLD: [bool; 2] = [false, true];

fn pool<A>(bench: &Bench, allocator: A, segments: bool) -> MemoryPool<OpenClBackend>
where
    A: Allocator<Backend = OpenClBackend>,
{
    let options = PoolOptions::new().segments(segments);
    options.build(allocator, &bench.queue).unwrap()
}

fn buffers(bench: &Bench, segments: bool) -> MemoryPool<OpenClBackend> {
    let allocator = ImmediateAllocator::new(&bench.backend).unwrap();
    pool(bench, allocator, segments)
}

/// A block full of this byte.
fn filled(
    bench: &Bench,
    pool: &MemoryPool<OpenClBackend>,
    byte: u8,
) -> PooledBuffer<OpenClBackend> {
    let block = pool.allocate(BYTES).unwrap();
    block.enqueue_fill(&bench.queue, 0..BYTES, &[byte]).unwrap();
    block
}

/// Drops a block after something was made of it, makes and drops others, and then drops what was made of it on another thread.
///
/// `read` looks at the bytes of what was made.
fn outlives_its_block<V: Send>(
    bench: &Bench,
    pool: &MemoryPool<OpenClBackend>,
    block: PooledBuffer<OpenClBackend>,
    made: V,
    read: impl Fn(&V) -> Vec<u8>,
) {
    drop(block);
    let others = [(); 4].map(|()| filled(bench, pool, 9));
    drop(others);
    pool.free_held();
    drop([(); 4].map(|()| filled(bench, pool, 9)));
    assert!(read(&made).iter().all(|byte| *byte == 7));
    assert_eq!(pool.statistics().viewed_bytes, BYTES as u64);
    pool.free_held();

    thread::scope(|scope| drop(scope.spawn(move || drop(made))));
    let told = pool.statistics();
    assert_eq!((told.viewed_bytes, told.active_blocks), (0, 0));
    let misses = told.misses;
    assert_eq!(contents(&filled(bench, pool, 5), &bench.queue), [5; BYTES]);
    assert_eq!(pool.statistics().misses, misses, "the block is back");
}

fn memory<'b>(block: &'b PooledBuffer<OpenClBackend>, queue: &ClQueue) -> &'b ClMemory {
    block.memory_on(queue).unwrap()
}

fn regions_outlive_blocks(bench: &Bench, pool: &MemoryPool<OpenClBackend>) {
    let block = filled(bench, pool, 7);
    let slice = memory(&block, &bench.queue).slice(..256).unwrap();
    outlives_its_block(bench, pool, block, slice, |slice| bench.read(slice));

    let block = filled(bench, pool, 7);
    let half = memory(&block, &bench.queue).slice(..2048).unwrap();
    let inner = half.slice(..100).unwrap();
    drop(half);
    outlives_its_block(bench, pool, block, inner, |inner| bench.read(inner));

    let block = filled(bench, pool, 7);
    let slice = memory(&block, &bench.queue).slice(..256).unwrap();
    let elements = Slice::<u8, _>::new((&bench.backend, slice)).unwrap();
    outlives_its_block(bench, pool, block, elements, |elements| {
        elements.read_to_vec(&bench.queue).unwrap()
    });
}

#[test]
fn regions_of_buffers_outlive_their_blocks() {
    let bench = Bench::new();
    for segments in WAYS_TO_HOLD {
        regions_outlive_blocks(&bench, &buffers(&bench, segments));
    }
}

#[test]
fn regions_of_shared_virtual_memory_and_buffers_over_it_outlive_their_blocks() {
    let bench = Bench::new();
    if !bench.backend.limits().svm.coarse {
        return;
    }
    for segments in WAYS_TO_HOLD {
        let allocator = SvmAllocator::new(&bench.backend, SvmGrain::Coarse).unwrap();
        let pool = pool(&bench, allocator, segments);
        regions_outlive_blocks(&bench, &pool);

        let block = filled(&bench, &pool, 7);
        let memory = memory(&block, &bench.queue);
        let buffer = memory.as_buffer(MemoryFlags::empty(), Some(256)).unwrap();
        outlives_its_block(&bench, &pool, block, buffer, |buffer| bench.read(buffer));
    }
}

/// An image over a block, where the runtime makes images over parts of buffers.
fn image_over(bench: &Bench, block: &PooledBuffer<OpenClBackend>) -> Option<ClImage> {
    let memory = memory(block, &bench.queue);
    let image = bench
        .backend
        .create_image_over(&bench.queue, memory, RGBA8, ROW, None);
    match image {
        Ok(image) => Some(image),
        Err(OpenClError::Device(_)) if memory.parent().is_some() => None,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn images_outlive_their_blocks() {
    let bench = Bench::new();
    for segments in WAYS_TO_HOLD {
        let pool = buffers(&bench, segments);
        let block = filled(&bench, &pool, 7);
        let Some(image) = image_over(&bench, &block) else {
            assert!(segments, "a whole buffer has images");
            continue;
        };
        let (all, tight) = (ImageRegion::all(ROW), HostPitches::TIGHT);
        outlives_its_block(&bench, &pool, block, image, |image| {
            let mut pixels = vec![0; BYTES];
            let (backend, queue) = (&bench.backend, &bench.queue);
            backend
                .read_part(
                    queue,
                    ImagePart::new(image, all).with_pitches(tight),
                    &mut pixels,
                )
                .unwrap();
            pixels
        });
    }
}

/// A program forgets a map of a block, made by `map`. Others have blocks that work, and nothing of this one.
fn a_forgotten_map_costs_its_own_block_only(
    bench: &Bench,
    pool: &MemoryPool<OpenClBackend>,
    map: impl Fn(&PooledBuffer<OpenClBackend>),
) {
    let block = filled(bench, pool, 7);
    let id = block.memory_id();
    map(&block);
    drop(block);
    for round in 0..10 {
        let blocks = [(); 3].map(|()| filled(bench, pool, round));
        for block in &blocks {
            assert_ne!(block.memory_id(), id);
            assert_eq!(contents(block, &bench.queue), [round; BYTES]);
        }
        pool.free_held();
    }
    assert_eq!(
        pool.statistics().viewed_blocks,
        1,
        "that stays, and is told"
    );
}

#[test]
fn blocks_with_forgotten_maps_are_not_reused() {
    let bench = Bench::new();
    let (backend, queue) = (&bench.backend, &bench.queue);
    for segments in WAYS_TO_HOLD {
        a_forgotten_map_costs_its_own_block_only(&bench, &buffers(&bench, segments), |block| {
            let map = backend.map_mut::<u8>(queue, block, 0..BYTES);
            std::mem::forget(map.unwrap());
        });
        a_forgotten_map_costs_its_own_block_only(&bench, &buffers(&bench, segments), |block| {
            let map = backend.enqueue_map::<u8>(queue, block, 0..BYTES);
            std::mem::forget(map.unwrap());
        });
        // Of a view that does not outlive the block.
        a_forgotten_map_costs_its_own_block_only(&bench, &buffers(&bench, segments), |block| {
            let view = block.view(..256).unwrap();
            let map = backend.map_mut::<u8>(queue, &view, 0..256);
            std::mem::forget(map.unwrap());
        });
    }
}

#[test]
fn shared_virtual_memory_with_forgotten_maps_is_not_reused() {
    let bench = Bench::new();
    if !bench.backend.limits().svm.coarse {
        return;
    }
    for segments in WAYS_TO_HOLD {
        let allocator = SvmAllocator::new(&bench.backend, SvmGrain::Coarse).unwrap();
        let pool = pool(&bench, allocator, segments);
        a_forgotten_map_costs_its_own_block_only(&bench, &pool, |block| {
            let map = bench.backend.map_mut::<u8>(&bench.queue, block, 0..BYTES);
            std::mem::forget(map.unwrap());
        });
    }
}

/// The image goes, and the map of it stays with the block.
#[test]
fn blocks_under_images_with_forgotten_maps_are_not_reused() {
    let bench = Bench::new();
    let pool = buffers(&bench, false);
    a_forgotten_map_costs_its_own_block_only(&bench, &pool, |block| {
        let image = image_over(&bench, block).unwrap();
        let all = ImageRegion::all(ROW);
        let map = bench.backend.map_image_mut::<u8>(&bench.queue, &image, all);
        std::mem::forget(map.unwrap());
    });
}

#[test]
fn a_map_that_is_dropped_leaves_nothing_behind() {
    let bench = Bench::new();
    let (backend, queue) = (&bench.backend, &bench.queue);
    for segments in WAYS_TO_HOLD {
        let pool = buffers(&bench, segments);
        let block = filled(&bench, &pool, 7);
        let mut map = backend.map_mut::<u8>(queue, &block, 0..BYTES).unwrap();
        assert!(block.memory_on(queue).unwrap().has_views());
        map.fill(8);
        map.unmap().unwrap();
        drop(backend.enqueue_map::<u8>(queue, &block, 0..BYTES).unwrap());
        let (id, memory) = (block.memory_id(), block.memory_on(queue).unwrap());
        assert!(!memory.has_views());
        let whole = backend.create_sub_region(memory, Region::first(BYTES));
        drop(whole.unwrap());
        drop(block);
        assert_eq!(pool.allocate(BYTES).unwrap().memory_id(), id);
    }
}

//! Where memory runs out, the program gets an error, and goes on.

use std::process::Command;

use binpool::{Backend, ImmediateAllocator, MemoryPool, PoolError};
use binpool_allocators::{Allocator, DeferredAllocator, Error, MemoryFlags, MemoryOf};
use binpool_opencl::{ImageColor, ImageRegion, ImageShape, OpenClError};

use crate::common::{
    Bench,
    picture::{ANY, RGBA8},
};

/// `PoCL` slows down above 32 MiB, where each buffer is mapped anew.
const BYTES: usize = 66 << 20;

/// What the process of the test may have, its libraries included.
const LIMIT_KIB: usize = 3 << 20;

fn is_shortage<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::OutOfMemory(_)))
}

/// Takes blocks until there are none left.
fn take_all<A: Allocator>(allocator: &A) -> Vec<MemoryOf<A>> {
    let mut blocks = Vec::new();
    loop {
        match allocator.allocate(BYTES) {
            Ok(block) => blocks.push(block),
            Err(error) => {
                assert!(is_shortage::<()>(&Err(error)));
                return blocks;
            }
        }
        assert!(
            blocks.len() < LIMIT_KIB / (BYTES >> 10),
            "more than there is"
        );
    }
}

/// `PoCL` ended the process.
#[test]
fn a_lack_of_memory_is_an_error_and_what_goes_back_is_there_again() {
    // The drivers of other devices need more addresses than any limit that a test can fill.
    if !Bench::new().is_pocl() {
        return;
    }
    let this = std::env::current_exe().unwrap();
    let test = "--exact shortage::in_a_process_with_little_memory --ignored --nocapture";
    let limited = format!("ulimit -v {LIMIT_KIB}; exec {this:?} {test}");
    let output = Command::new("sh").args(["-c", &limited]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{output:?}");
    assert!(said.contains("1 passed"), "{said}");
}

#[test]
#[ignore = "run by the test above"]
fn in_a_process_with_little_memory() {
    let bench = Bench::new();
    let (backend, queue) = (&bench.backend, &bench.queue);
    let immediate = ImmediateAllocator::new(backend).unwrap();
    let deferred = DeferredAllocator::new(backend);
    let pool = MemoryPool::new(ImmediateAllocator::new(backend).unwrap(), queue).unwrap();
    let bytes = vec![1_u8; BYTES];
    let side = 1 << 12;
    let shape = ImageShape::d2(side, BYTES / 4 / side + 1);
    for _ in 0..3 {
        let taken = take_all(&immediate);
        assert!(taken.len() > 5, "{}", taken.len());
        let pooled = pool.allocate(BYTES);
        assert!(matches!(pooled, Err(PoolError::OutOfMemory(_))));
        assert!(is_shortage(
            &backend.create_buffer_from(&bytes, MemoryFlags::empty())
        ));
        let used = deferred.allocate(BYTES).and_then(|memory| {
            backend.enqueue_fill(queue, &memory, ..64, &[1_u8])?;
            Ok(memory)
        });
        assert!(is_shortage(&used));
        let drawn = backend.create_image(ANY, RGBA8, shape).and_then(|image| {
            let color = ImageColor::Unsigned([1; 4]);
            backend.enqueue_fill_image(queue, &image, ImageRegion::all(shape), color)
        });
        assert!(matches!(
            drawn,
            Err(OpenClError::Device(Error::OutOfMemory(_)))
        ));
        drop(taken);
        let block = pool.allocate(BYTES).unwrap();
        block.write(queue, BYTES - 4, &[1_u8; 4]).unwrap();
        drop(block);
        pool.free_held();
        drop(bench.image(RGBA8, shape));
    }
}

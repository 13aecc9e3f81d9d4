//! The code of README.md that rustdoc does not compile, since it is a part of a program.

use std::{error::Error, sync::Arc};

use binpool::{ImmediateAllocator, MemoryPool};
use binpool_cuda::{CudaBackend, CudaQueue, PooledStream};
use cudarc::driver::{
    CudaContext, CudaFunction, CudaStream, LaunchConfig, PushKernelArg,
    sys::{CUgraphInstantiate_flags, CUstreamCaptureMode},
};

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The words of the part of this file between two comments.
fn example(name: &str) -> String {
    let source = include_str!("readme.rs");
    let (_, example) = source
        .split_once(&format!("// The {name} begins."))
        .unwrap();
    let (example, _) = example.split_once(&format!("// The {name} ends.")).unwrap();
    words(example)
}

#[test]
fn the_code_of_the_readme_is_compiled_here() {
    let readme = include_str!("../../README.md");
    let blocks = readme.split("```rust,ignore\n").skip(1);
    let blocks: Vec<String> = blocks
        .map(|block| words(block.split_once("```").unwrap().0))
        .collect();
    assert_eq!(blocks, ["first example", "second example"].map(example));
}

#[rustfmt::skip]
#[allow(
    dead_code,
    clippy::needless_pass_by_value,
    reason = "it is compiled as it is printed, and is not run"
)]
fn first(numbers: Vec<f32>, kernel: CudaFunction, count: u64, config: LaunchConfig) -> Result<(), Box<dyn Error>> {
    // The first example begins.
    let backend = CudaBackend::open(0)?; // An error if there is no driver: cudarc panics then.
    let context = CudaContext::new(0)?;
    let stream = context.new_stream()?;
    let queue = backend.wrap_cudarc_stream(&stream)?;
    let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    let pooled = PooledStream::new(&pool, &stream)?;

    let input = pooled.clone_htod(&numbers)?;
    let mut output = pooled.alloc_zeros::<f32>(numbers.len())?;
    // SAFETY: these are the parameters of the kernel, which writes `count` numbers.
    unsafe { stream.launch_builder(&kernel).arg(&mut output).arg(&input).arg(&count).launch(config) }?;
    drop(input); // Back in the pool, although the launch may not have run.
    // The first example ends.
    Ok(())
}

type Step = fn(&MemoryPool<CudaBackend>) -> Result<(), Box<dyn Error>>;

#[rustfmt::skip]
#[allow(
    dead_code,
    clippy::needless_pass_by_value,
    reason = "it is compiled as it is printed, and is not run"
)]
fn second(
    allocator: ImmediateAllocator<CudaBackend>, queue: CudaQueue, stream: Arc<CudaStream>, step: Step,
) -> Result<(), Box<dyn Error>> {
    // The second example begins.
    let for_graph = MemoryPool::new(allocator, &queue)?; // No other request gets its memory.
    step(&for_graph)?; // Once, so that the pool has the memory.
    stream.synchronize()?;

    let kept = for_graph.keep_addresses();
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
    step(&for_graph)?; // Allocates, launches, drops.
    let graph = stream.end_capture(CUgraphInstantiate_flags(0))?.unwrap();
    graph.launch()?; // As often as you like.
    drop(graph);
    drop(kept); // From now on its memory may go.
    // The second example ends.
    Ok(())
}

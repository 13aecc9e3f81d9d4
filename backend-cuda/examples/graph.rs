//! A CUDA graph whose temporaries are from a pool: a step is run once, captured, and launched with other input each time.
//!
//!     cargo run --release -p binpool-cuda --example graph --features cudarc

use std::{error::Error, sync::Arc, time::Instant};

use binpool::{ImmediateAllocator, MemoryPool};
use binpool_cuda::{CudaBackend, PooledCudaSlice, PooledStream};
use cudarc::{
    driver::{
        CudaContext, CudaFunction, CudaStream, LaunchConfig, PushKernelArg,
        sys::{CUgraphInstantiate_flags, CUstreamCaptureMode},
    },
    nvrtc::Ptx,
};

/// Adds an operand to a result, element by element.
const ADD_TO: &str = include_str!("add_to.ptx");

const LENGTH: usize = 1 << 14;
const DOUBLINGS: usize = 8;
const ROUNDS: u16 = 100;

type Slice = PooledCudaSlice<f32>;

struct Step {
    stream: Arc<CudaStream>,
    add_to: CudaFunction,
    /// Where the temporaries are from.
    pooled: PooledStream,
}

impl Step {
    /// Enqueues `output = 256 * input`: eight doublings, each into a new slice. The slice before is dropped, so that two blocks serve all.
    fn enqueue(&self, input: &Slice, output: &mut Slice) -> Result<(), Box<dyn Error>> {
        let mut doubled = self.double(input)?;
        for _ in 1..DOUBLINGS {
            doubled = self.double(&doubled)?;
        }
        Ok(self.stream.memcpy_dtod(&doubled, output)?)
    }

    fn double(&self, numbers: &Slice) -> Result<Slice, Box<dyn Error>> {
        // SAFETY: the next command writes it.
        let mut sum = unsafe { self.pooled.alloc::<f32>(LENGTH) }?;
        self.stream.memcpy_dtod(numbers, &mut sum)?;
        let count = LENGTH as u64;
        let mut launch = self.stream.launch_builder(&self.add_to);
        let launch = launch.arg(&mut sum).arg(numbers).arg(&count);
        // SAFETY: these are the parameters of the kernel, which checks the count.
        unsafe { launch.launch(LaunchConfig::for_num_elems(u32::try_from(LENGTH)?)) }?;
        Ok(sum)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let backend = CudaBackend::open(0)?; // First: cudarc panics if there is no driver.
    let context = CudaContext::new(0)?;
    // SAFETY: all commands are of one stream. A captured command may not wait for an event that was recorded before.
    unsafe { context.disable_event_tracking() };
    let stream = context.new_stream()?;
    let queue = backend.wrap_cudarc_stream(&stream)?;
    let allocator = || ImmediateAllocator::new(&backend);

    let pool = MemoryPool::new(allocator()?, &queue)?;
    let pooled = PooledStream::new(&pool, &stream)?;
    let mut input = pooled.alloc_zeros::<f32>(LENGTH)?;
    let mut output = pooled.alloc_zeros::<f32>(LENGTH)?;

    // The temporaries are from a pool of their own: another request might get their memory, which the graph uses at each launch.
    let for_graph = MemoryPool::new(allocator()?, &queue)?;
    let step = Step {
        add_to: context
            .load_module(Ptx::from_src(ADD_TO))?
            .load_function("add_to")?,
        pooled: PooledStream::new(&for_graph, &stream)?,
        stream: Arc::clone(&stream),
    };
    step.enqueue(&input, &mut output)?; // The pool has the memory afterwards, so that the capture allocates none.
    stream.synchronize()?;
    let kept = for_graph.keep_addresses();
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
    let captured = step.enqueue(&input, &mut output);
    let graph = stream.end_capture(CUgraphInstantiate_flags(0)); // Even where the step has failed.
    captured?;
    let graph = graph?.ok_or("nothing was captured")?;

    for round in 0..ROUNDS {
        let value = f32::from(round);
        stream.memcpy_htod(&vec![value; LENGTH], &mut input)?;
        // Other blocks come and go meanwhile, and no memory of the graph leaves its pool.
        drop(pooled.alloc_zeros::<f32>(LENGTH)?);
        assert_eq!(for_graph.free_held(), 0);
        graph.launch()?;
        let results = stream.clone_dtoh(&output)?;
        if !results.iter().all(|result| result.eq(&(256.0 * value))) {
            return Err("the graph has used memory of others".into());
        }
    }
    println!("{ROUNDS} launches of a graph with other input each: all results are right");

    let by_graph = microseconds(&stream, || Ok(graph.launch()?))?;
    let by_itself = microseconds(&stream, || step.enqueue(&input, &mut output))?;
    println!(
        "a step of {DOUBLINGS} copies and launches: {by_itself:.1} µs, in the graph {by_graph:.1} µs\n"
    );
    println!("{}", for_graph.statistics());
    drop(graph);
    drop(kept); // From now on its memory may go.
    Ok(())
}

/// Returns how long one of many steps takes, until all have ended.
fn microseconds(
    stream: &CudaStream,
    mut step: impl FnMut() -> Result<(), Box<dyn Error>>,
) -> Result<f64, Box<dyn Error>> {
    let start = Instant::now();
    for _ in 0..ROUNDS {
        step()?;
    }
    stream.synchronize()?;
    Ok(start.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS))
}

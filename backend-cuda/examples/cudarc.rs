//! Pooled memory in cudarc: a launch, copies and fills on two streams, with slices that are dropped at once.
//!
//!     cargo run -p binpool-cuda --example cudarc --features cudarc

use std::error::Error;

use binpool::{ImmediateAllocator, MemoryPool};
use binpool_cuda::{CudaBackend, PooledStream};
use cudarc::{
    driver::{CudaContext, LaunchConfig, PushKernelArg},
    nvrtc::Ptx,
};

/// Adds an operand to a result, element by element.
const ADD_TO: &str = include_str!("add_to.ptx");

const LENGTH: usize = 1 << 20;
const ROUNDS: usize = 100;

fn main() -> Result<(), Box<dyn Error>> {
    let backend = CudaBackend::open(0)?; // First: cudarc panics if there is no driver.
    let context = CudaContext::new(0)?;
    let [compute, copy] = [context.new_stream()?, context.new_stream()?];
    let add_to = context
        .load_module(Ptx::from_src(ADD_TO))?
        .load_function("add_to")?;

    let queue = backend.wrap_cudarc_stream(&compute)?;
    let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    let pooled = PooledStream::new(&pool, &compute)?;

    let mut sum = pooled.alloc_zeros::<f32>(LENGTH)?;
    let ones = vec![1.0_f32; LENGTH];
    let count = LENGTH as u64;
    for _ in 0..ROUNDS {
        // SAFETY: it is written before it is read.
        let mut operand = unsafe { pooled.alloc::<f32>(LENGTH) }?;
        copy.memcpy_htod(&ones, &mut operand)?; // After the launch that used the same memory.
        let mut launch = compute.launch_builder(&add_to); // After the copy.
        let launch = launch.arg(&mut sum).arg(&operand).arg(&count);
        // SAFETY: these are the parameters of the kernel, which checks the count.
        unsafe { launch.launch(LaunchConfig::for_num_elems(u32::try_from(LENGTH)?)) }?;
    } // The operand is dropped here, while the launch has not run yet.

    let sums = copy.clone_dtoh(&sum)?; // After the last launch.
    copy.memset_zeros(&mut sum.as_view_mut().slice_mut(..LENGTH / 2))?;
    let halves = compute.clone_dtoh(&sum)?; // After the fill.
    drop(sum);

    let expected = u16::try_from(ROUNDS).map(f32::from)?;
    let is = |elements: &[f32], value: f32| elements.iter().all(|element| element.eq(&value));
    let (zeros, rest) = halves.split_at(LENGTH / 2);
    if !(is(&sums, expected) && is(zeros, 0.0) && is(rest, expected)) {
        return Err("a command has used memory too early or too late".into());
    }
    println!("{ROUNDS} launches on two streams: all sums are right\n");
    println!("{}", pool.statistics());
    Ok(())
}

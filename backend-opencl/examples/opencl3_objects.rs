//! A pool in a program that uses `opencl3` already: its context, queue, buffer and kernel stay, and the blocks come from the
//! pool.
//!
//! ```text
//! cargo run -p binpool-opencl --example opencl3_objects
//! ```

use std::{error::Error, ptr};

use binpool::{Backend, ImmediateAllocator, MemoryPool};
use binpool_opencl::{DeviceSelector, OpenClBackend};
use opencl3::{
    command_queue::CommandQueue,
    context::Context,
    device::Device,
    kernel::{ExecuteKernel, Kernel},
    memory::{Buffer, CL_MEM_READ_WRITE, ClMem},
    program::Program,
};

const ITEMS: usize = 1000;
const BYTES: usize = ITEMS * size_of::<f32>();

const SOURCE: &str = "
    kernel void twice(global const float *from, global float *to) {
        to[get_global_id(0)] = 2 * from[get_global_id(0)];
    }";

fn main() -> Result<(), Box<dyn Error>> {
    twice(&DeviceSelector::Any)
}

fn twice(device: &DeviceSelector) -> Result<(), Box<dyn Error>> {
    // The program as it was. (The device is looked for with a selector, to be the same as that of other examples.)
    let device = Device::new(OpenClBackend::open(device)?.raw_device());
    let context = Context::from_device(&device)?;
    // SAFETY: the device is the context's.
    let queue = unsafe { CommandQueue::create(&context, device.id(), 0) }?;
    let kernel = Kernel::create(
        &Program::create_and_build_from_source(&context, SOURCE, "")?,
        "twice",
    )?;
    // SAFETY: no host pointer is passed.
    let own =
        unsafe { Buffer::<f32>::create(&context, CL_MEM_READ_WRITE, ITEMS, ptr::null_mut()) }?;

    // In: all of it is retained, so either side may drop its own first. Never `.into()`, which releases the handle.
    // SAFETY: the context and the queue are ones that `opencl3` has made.
    let backend = unsafe { OpenClBackend::from_context(&context, &device) }?;
    // SAFETY: as above.
    let wrapped = unsafe { backend.wrap_queue(&queue) }?;
    // SAFETY: (1) the buffer lives, and is retained; (2, 3) what `opencl3` enqueues with it is on the same in-order queue.
    let memory = unsafe { backend.wrap_raw_memory(own.get(), true) }?;
    let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &wrapped)?;

    let ones = 1.0_f32.to_ne_bytes().repeat(ITEMS);
    backend.write(&wrapped, &memory, 0, &ones)?;
    let block = pool.allocate(BYTES)?;

    // Out: the handles are lent while the program enqueues its own commands. Commands of the pool and of this crate, on whatever queue,
    // come before or after all of them.
    let lent = backend.lend(&wrapped, &[&memory, &block])?;
    let mut launch = ExecuteKernel::new(&kernel);
    for memory in &*lent {
        // SAFETY: the kernel has two arguments, both of them buffers.
        unsafe { launch.set_arg(&memory.kernel_argument()?) };
    }
    // SAFETY: each work item reads and writes the float of its id, and there are as many in both.
    unsafe { launch.set_global_work_size(ITEMS).enqueue_nd_range(&queue) }?;
    lent.end()?;

    let mut result = vec![0_u8; BYTES];
    block.read(&wrapped, 0, &mut result)?;
    println!("{}: {ITEMS} floats, each doubled", device.name()?);
    assert_eq!(result, 2.0_f32.to_ne_bytes().repeat(ITEMS));
    Ok(())
}

#[test]
fn the_example_runs() {
    let selector = std::env::var("BINPOOL_TEST_DEVICE").unwrap_or_default();
    twice(&selector.parse().unwrap()).unwrap();
}

//! One pool for each device of the machine, and a copy from one device to another.
//!
//! ```text
//! cargo run -p binpool-opencl --example several_devices
//! POCL_DEVICES="pthread pthread" cargo run -p binpool-opencl --example several_devices
//! ```
//!
//! The second line gives PoCL two devices, both of them the processor.

use std::{error::Error, thread};

use binpool::{Backend, ImmediateAllocator, MemoryPool, PooledBuffer, QueueOrder};
use binpool_opencl::{
    ClProgram, ClQueue, DeviceSelector, Extent, OpenClBackend, Parameter, list_devices,
};

/// How many numbers each device works on.
const COUNT: u32 = 1 << 16;

const SOURCE: &str =
    "kernel void twice(global uint *data, ulong start) { data[start + get_global_id(0)] *= 2; }";

type Block = PooledBuffer<OpenClBackend>;
type Failure = Box<dyn Error + Send + Sync>;

/// A device, with what a program needs for it: a context, a queue and a pool of its own.
struct Device {
    backend: OpenClBackend,
    queue: ClQueue,
    pool: MemoryPool<OpenClBackend>,
}

impl Device {
    fn open(selector: &DeviceSelector) -> Result<Self, Failure> {
        let backend = OpenClBackend::open(selector)?;
        let queue = backend.create_queue(QueueOrder::InOrder)?;
        let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
        Ok(Self {
            backend,
            queue,
            pool,
        })
    }

    /// Computes twice the numbers from `first` on, in a block of this device. Returns before they are computed.
    fn twice_from(&self, first: u32) -> Result<Block, Failure> {
        let twice = self.backend.cached("twice", || {
            let program = ClProgram::build(&self.backend, SOURCE, "")?;
            let parameters = [
                Parameter::in_out::<u32>(Extent::PerItem(1)),
                Parameter::offset_u64(0),
            ];
            // SAFETY: each work item reads and writes the number of its id, and nothing else.
            unsafe { program.kernel("twice", &parameters) }
        })?;
        let numbers: Vec<u32> = (first..first + COUNT).collect();
        let block = self.pool.allocate(size_of_val(&*numbers))?;
        block.write(&self.queue, 0, &numbers)?;
        twice
            .launch(&self.queue, &[COUNT as usize])
            .memory(&block)
            .enqueue()?;
        Ok(block)
    }

    /// Copies a block of `other` into one of this device. Events of one context mean nothing to another, so the host waits for the
    /// read; the write is on its way when this returns.
    fn copy_from(&self, other: &Self, block: &Block) -> Result<Block, Failure> {
        let bytes = block.enqueue_read(&other.queue, ..)?.wait()?;
        let copy = self.pool.allocate(block.size())?;
        copy.enqueue_write(&self.queue, 0, bytes.into())?;
        Ok(copy)
    }
}

/// Returns the sum of what all devices have computed, which the first one has got, and how many they are.
fn run() -> Result<(u64, u32), Failure> {
    let devices = (0..list_devices()?.len())
        .map(|number| Device::open(&DeviceSelector::Index(number)))
        .collect::<Result<Vec<_>, _>>()?;
    // A thread for each device. Pools share no lock.
    let parts = thread::scope(|scope| {
        let threads: Vec<_> = (0_u32..)
            .zip(&devices)
            .map(|(number, device)| scope.spawn(move || device.twice_from(number * COUNT)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| "a thread has panicked")?)
            .collect::<Result<Vec<_>, Failure>>()
    })?;

    let first = &devices[0];
    let (mut sum, mut count) = (0, 0);
    for (device, part) in devices.iter().zip(&parts) {
        let here = first.copy_from(device, part)?;
        let mut numbers = vec![0_u32; COUNT as usize];
        here.read(&first.queue, 0, &mut numbers)?;
        sum += numbers.into_iter().map(u64::from).sum::<u64>();
        count += 1;
    }
    for device in &devices {
        let used = device.pool.statistics().peak_active_bytes;
        println!("{}: {used} bytes", device.backend.limits().device_name);
    }
    Ok((sum, count))
}

fn main() -> Result<(), Failure> {
    let (sum, devices) = run()?;
    println!("{sum} from {devices} devices");
    let numbers = u64::from(devices * COUNT);
    assert_eq!(sum, numbers * (numbers - 1));
    Ok(())
}

/// Runs the other test with two devices of PoCL, which reads their number when it is loaded.
#[test]
fn the_example_runs_on_two_devices() {
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "runs", "--ignored", "--nocapture"])
        .env("POCL_DEVICES", "pthread pthread")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{output:?}");
    assert!(
        said.contains(" devices") && !said.contains("from 1 "),
        "{said}"
    );
}

#[test]
#[ignore = "run by the test above"]
fn runs() {
    main().unwrap();
}

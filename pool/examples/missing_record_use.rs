//! A client's own logic, run on the mock device, which finds that a use on a second stream was not recorded.
//!
//! The client is a prover that knows its memory by address. Traces are generated on one stream, and proved on another. The memory of a
//! trace is freed as soon as its proof is enqueued, and the next trace gets it, while the proof still reads. On a real device that
//! is a wrong proof once in a while: stark-backend's pull request 362 mends such a program.

use std::slice::from_ref;

use binpool::{
    AddressedPool, Backend, Error, MemoryPool, PoolError, Queue, QueueOrder, VirtualMemoryAllocator,
};
use binpool_mock::{Completion, MockBackend, MockDevice};

/// What the client asks of its device: kernels by name, whose arguments are addresses and sizes. On CUDA this is `cuLaunchKernel`.
trait Kernels<B: Backend> {
    fn launch(
        &self,
        stream: &B::Queue,
        name: &'static str,
        reads: &[(u64, usize)],
        writes: &[(u64, usize)],
    ) -> Result<(), Error>;
}

/// The same on the mock: kernels that do nothing, on the memory at these addresses.
impl Kernels<Self> for MockBackend {
    fn launch(
        &self,
        stream: &<Self as Backend>::Queue,
        name: &'static str,
        reads: &[(u64, usize)],
        writes: &[(u64, usize)],
    ) -> Result<(), Error> {
        let memory = |arguments: &[(u64, usize)]| {
            let found = arguments.iter();
            let found = found.map(|(address, bytes)| self.memory_at(*address, *bytes));
            found.collect::<Result<Vec<_>, _>>()
        };
        let (reads, writes) = (memory(reads)?, memory(writes)?);
        let [reads, writes] = [&reads, &writes].map(|all| all.iter().map(|it| it as _).collect());
        let (reads, writes): (Vec<_>, Vec<_>) = (reads, writes);
        self.launch(stream, name, &reads, &writes, |_, _| {})?;
        Ok(())
    }
}

/// The client, over any backend.
struct Prover<B: Backend, K> {
    backend: B,
    kernels: K,
    memory: AddressedPool<B>,
    /// Traces are generated on the first, and proved on the second.
    streams: [B::Queue; 2],
    records_uses: bool,
}

impl<B: Backend, K: Kernels<B>> Prover<B, K> {
    fn prove(&self, bytes: usize) -> Result<(), PoolError> {
        let [generate, prove] = &self.streams;
        let trace = self.memory.allocate_on(generate, bytes)?;
        let argument = (trace, bytes);
        self.kernels
            .launch(generate, "generate the trace", &[], from_ref(&argument))?;
        // `cuEventRecord` and `cuStreamWaitEvent`: the proof comes after the trace.
        let generated = self.backend.enqueue_marker(generate)?;
        self.backend.enqueue_barrier(prove.after(&[generated]))?;
        self.kernels
            .launch(prove, "prove", from_ref(&argument), &[])?;
        if self.records_uses {
            self.memory.record_use(prove, trace)?;
        }
        Ok(self.memory.free_on(generate, trace)?)
    }
}

/// Proves three traces, and returns what the device found wrong.
fn violations(records_uses: bool, seed: u64) -> Result<Vec<String>, PoolError> {
    let builder = MockDevice::builder().virtual_memory(true);
    let device = builder.completion(Completion::Seeded(seed)).build();
    let backend = device.backend();
    let streams = [
        backend.create_queue(QueueOrder::InOrder)?,
        backend.create_queue(QueueOrder::InOrder)?,
    ];
    let pool = MemoryPool::new(VirtualMemoryAllocator::new(&backend), &streams[0])?;
    let prover = Prover {
        kernels: backend.clone(),
        memory: AddressedPool::new(&pool),
        streams,
        records_uses,
        backend,
    };
    for _ in 0..3 {
        prover.prove(1 << 20)?;
    }
    device.run();
    Ok(device
        .violations()
        .iter()
        .map(ToString::to_string)
        .collect())
}

fn main() -> Result<(), PoolError> {
    for seed in 0..10 {
        let found = violations(false, seed)?;
        assert!(found[0].contains("prove"), "{found:?}");
        if seed == 0 {
            println!("Without `record_use`:\n{}\n", found[0]);
        }
        assert!(violations(true, seed)?.is_empty());
    }
    println!("With it, nothing was found in ten orders.");
    Ok(())
}

//! The last use of a block on an OpenCL device that is behind: a kernel that takes a given time.

use std::time::{Duration, Instant};

use binpool::{Backend, Error, MemoryFlags, Queue, QueueOrder};
use binpool_opencl::{ClKernel, ClProgram, Extent, OpenClBackend, OpenClError, Parameter};

use crate::{behind::LastUse, touch::InUse};

/// OpenCL has no clock in kernels: this one counts. A compiler cannot know the sum without the loop.
const SOURCE: &str = "
kernel void last_use(global uchar *bytes, ulong count, ulong steps)
{
    uint sum = bytes[count - 1];
    for (ulong step = 0; step < steps; step++)
        sum = sum * 1664525u + 1013904223u + (sum >> 7);
    if (sum == 1)
        bytes[count - 1] = 0;
}
";

/// The steps by which the speed of the device is measured.
const SAMPLE: u64 = 1 << 19;
const SAMPLES: usize = 5;

/// Kernels that use a block for a given time, to within what the device's speed varies.
pub(crate) struct OpenClUse {
    kernel: ClKernel,
    steps_a_microsecond: f64,
}

impl OpenClUse {
    /// Builds the kernel, and measures how fast the device counts.
    pub(crate) fn new(backend: &OpenClBackend) -> Result<Self, OpenClError> {
        let program = ClProgram::build(backend, SOURCE, "")?;
        let parameters = [
            Parameter::in_out::<u8>(Extent::Whole),
            Parameter::length_u64(0),
            Parameter::value::<u64>(),
        ];
        // SAFETY: The one work item of a launch reads, and may write, byte count - 1 of at least one, and nothing else.
        let kernel = unsafe { program.kernel("last_use", &parameters) }?;
        let queue = backend.create_queue(QueueOrder::InOrder)?;
        let byte = backend.create_buffer_from(&[0_u8], MemoryFlags::empty())?;
        let run = |steps: u64| -> Result<Duration, OpenClError> {
            let start = Instant::now();
            let launch = kernel.launch(&queue, &[1]).memory(&byte);
            launch.value(&steps).enqueue()?;
            queue.finish()?;
            Ok(start.elapsed())
        };
        // The first launch is slower. On a busy machine each one may be: the fastest says what the device can do.
        let mut fastest = Duration::MAX;
        for _ in 0..SAMPLES {
            fastest = fastest.min(run(SAMPLE)?);
        }
        let took = fastest.as_secs_f64() * 1e6;
        #[expect(clippy::cast_precision_loss, reason = "a sample is small")]
        let steps_a_microsecond = SAMPLE as f64 / took.max(1.0);
        Ok(Self {
            kernel,
            steps_a_microsecond,
        })
    }
}

impl LastUse<OpenClBackend> for OpenClUse {
    fn enqueue(&self, block: &InUse<'_, OpenClBackend>, takes: Duration) -> Result<(), Error> {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "steps of seconds at most"
        )]
        let steps = (takes.as_secs_f64() * 1e6 * self.steps_a_microsecond) as u64;
        let launch = self.kernel.launch(block.queue, &[1]).memory(block.memory);
        launch.value(&steps).enqueue()?;
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failing test panics")]
mod tests {
    use super::*;

    #[test]
    fn a_use_leaves_the_bytes_as_they_are() {
        let device = std::env::var("BINPOOL_TEST_DEVICE").unwrap_or_else(|_| "any".into());
        let backend = OpenClBackend::open(&device.parse().unwrap()).unwrap();
        let last_use = OpenClUse::new(&backend).unwrap();
        assert!(last_use.steps_a_microsecond > 0.0);
        let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
        for bytes in [1, 3, 100] {
            let contents = vec![7_u8; bytes];
            let memory = backend.create_buffer_from(&contents, MemoryFlags::empty());
            let memory = memory.unwrap();
            let block = InUse {
                backend: &backend,
                queue: &queue,
                queue_number: 0,
                memory: &memory,
                number: 0,
            };
            last_use.enqueue(&block, Duration::from_micros(50)).unwrap();
            queue.finish().unwrap();
            let mut found = vec![0_u8; bytes];
            backend.read(&queue, &memory, 0, &mut found).unwrap();
            assert_eq!(found, contents);
        }
    }
}

//! The kernels of a replay, on OpenCL.

use binpool::{Backend, Error, Memory, MemoryFlags};
use binpool_opencl::{
    ClKernel, ClMemory, ClProgram, ClQueue, Extent, OpenClBackend, OpenClError, Parameter,
};

use crate::touch::{Commands, InUse};

const SOURCE: &str = "
kernel void write_number(global uint *words, ulong count, uint number)
{
    words[0] = number;
    words[count - 1] = number;
}

kernel void check_number(global const uint *words, ulong count, uint number, global uint *wrong)
{
    if (words[0] != number || words[count - 1] != number)
        *wrong += 1;
}
";

pub(crate) struct OpenClKernels {
    write: ClKernel,
    check: ClKernel,
    /// A word for each queue, in which its kernels count the blocks that they found wrong.
    wrong: Vec<ClMemory>,
}

impl OpenClKernels {
    /// Builds the kernels, for this many queues.
    pub(crate) fn new(backend: &OpenClBackend, queues: usize) -> Result<Self, OpenClError> {
        let program = ClProgram::build(backend, SOURCE, "")?;
        let number = Parameter::value::<u32>();
        let write = [
            Parameter::output::<u32>(Extent::Whole),
            Parameter::length_u64(0),
            number,
        ];
        let check = [
            Parameter::input::<u32>(Extent::Whole),
            Parameter::length_u64(0),
            number,
            Parameter::in_out::<u32>(Extent::Fixed(1)),
        ];
        let wrong = || backend.create_buffer_from(&[0_u32], MemoryFlags::empty());
        Ok(Self {
            // SAFETY: The one work item of a launch writes words 0 and count - 1 of at least one, and nothing else.
            write: unsafe { program.kernel("write_number", &write) }?,
            // SAFETY: The one work item of a launch reads words 0 and count - 1 of at least one, and reads and writes the
            // one word of `wrong`.
            check: unsafe { program.kernel("check_number", &check) }?,
            wrong: (0..queues).map(|_| wrong()).collect::<Result<_, Error>>()?,
        })
    }
}

/// Returns whether the kernels have a word to write.
fn has_words(memory: &ClMemory) -> bool {
    memory.bytes() >= size_of::<u32>()
}

impl Commands<OpenClBackend> for OpenClKernels {
    fn begin(&self, block: &InUse<'_, OpenClBackend>) -> Result<(), Error> {
        if !has_words(block.memory) {
            return Ok(());
        }
        let launch = self.write.launch(block.queue, &[1]).memory(block.memory);
        launch.value(&block.number).enqueue()?;
        Ok(())
    }

    fn end(&self, block: &InUse<'_, OpenClBackend>) -> Result<(), Error> {
        if !has_words(block.memory) {
            return Ok(());
        }
        let launch = self.check.launch(block.queue, &[1]).memory(block.memory);
        let launch = launch.value(&block.number);
        launch.memory(&self.wrong[block.queue_number]).enqueue()?;
        Ok(())
    }

    fn wrong_blocks(
        &self,
        backend: &OpenClBackend,
        queue: &ClQueue,
        queue_number: usize,
    ) -> Result<u32, Error> {
        let mut wrong = [0_u32];
        backend.read(queue, &self.wrong[queue_number], 0, &mut wrong)?;
        Ok(wrong[0])
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failing test panics")]
mod tests {
    use super::*;
    use crate::touch::tests::wrong_blocks_are_counted_on_their_queue;

    #[test]
    fn a_block_with_another_number_is_counted_on_its_queue() {
        let device = std::env::var("BINPOOL_TEST_DEVICE").unwrap_or_else(|_| "any".into());
        let backend = OpenClBackend::open(&device.parse().unwrap()).unwrap();
        let kernels = OpenClKernels::new(&backend, 2).unwrap();
        wrong_blocks_are_counted_on_their_queue(&backend, &kernels);
    }
}

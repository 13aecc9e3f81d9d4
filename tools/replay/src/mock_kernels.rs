//! The kernels of a replay, on the mock.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use binpool::Error;
use binpool_mock::{MockBackend, MockDevice, MockQueue};
use binpool_recordings::Trace;

use crate::{
    behind::LastUse,
    touch::{Commands, InUse},
};

/// What a program takes on the host for an operation, such as to launch a kernel from Python.
const OPERATION: Duration = Duration::from_micros(10);

/// The time at which the program had done this many events, in all rounds of a trace: as it was recorded, or by what operations take.
pub(crate) fn time_of(trace: &Trace, events: usize) -> Duration {
    let of_round = trace.events().len().max(1);
    let (round, event) = (events / of_round, events % of_round);
    match trace.time_of(event).zip(trace.time_of(of_round - 1)) {
        Some((now, whole @ 1..)) => Duration::from_nanos(whole * round as u64 + now),
        _ => OPERATION * u32::try_from(events).unwrap_or(u32::MAX),
    }
}

/// Last uses on a mock device, which itself is behind.
pub(crate) struct MockUse(pub(crate) MockDevice);

impl LastUse<MockBackend> for MockUse {
    fn work(&self) {
        self.0.pass(OPERATION);
    }

    fn enqueue(&self, block: &InUse<'_, MockBackend>, _: Duration) -> Result<(), Error> {
        let used = block.backend.enqueue_use(block.queue, block.memory);
        used.map(drop)
    }
}

/// The number of blocks in which the kernels on each queue found another number.
pub(crate) struct MockKernels(Vec<Arc<AtomicU32>>);

impl MockKernels {
    pub(crate) fn new(queues: usize) -> Self {
        Self((0..queues).map(|_| Arc::default()).collect())
    }
}

impl Commands<MockBackend> for MockKernels {
    fn begin(&self, block: &InUse<'_, MockBackend>) -> Result<(), Error> {
        let number = block.number.to_ne_bytes();
        let write = move |_: &[&[u8]], writes: &mut [&mut [u8]]| {
            let mut words = writes[0].chunks_exact_mut(number.len());
            for word in [words.next(), words.next_back()].into_iter().flatten() {
                word.copy_from_slice(&number);
            }
        };
        let (backend, queue) = (block.backend, block.queue);
        let event = backend.launch(queue, "write_number", &[], &[block.memory], write);
        event.map(drop)
    }

    fn end(&self, block: &InUse<'_, MockBackend>) -> Result<(), Error> {
        let number = block.number.to_ne_bytes();
        let wrong = Arc::clone(&self.0[block.queue_number]);
        let check = move |reads: &[&[u8]], _: &mut [&mut [u8]]| {
            let words = || reads[0].chunks_exact(number.len());
            let ends = [words().next(), words().next_back()];
            if ends.into_iter().flatten().any(|found| found != number) {
                wrong.fetch_add(1, Ordering::Relaxed);
            }
        };
        let (backend, queue) = (block.backend, block.queue);
        let event = backend.launch(queue, "check_number", &[block.memory], &[], check);
        event.map(drop)
    }

    fn wrong_blocks(
        &self,
        _: &MockBackend,
        _: &MockQueue,
        queue_number: usize,
    ) -> Result<u32, Error> {
        Ok(self.0[queue_number].load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use binpool_mock::MockDevice;

    use super::*;
    use crate::touch::tests::wrong_blocks_are_counted_on_their_queue;

    #[test]
    fn a_block_with_another_number_is_counted_on_its_queue() {
        let backend = MockDevice::new().backend();
        wrong_blocks_are_counted_on_their_queue(&backend, &MockKernels::new(2));
    }
}

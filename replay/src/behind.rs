//! A mock device that lags behind the host: each freed block stays in use for a while.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use binpool::{Error, Memory};
use binpool_mock::{MockBackend, MockDevice, MockQueue};
use parking_lot::Mutex;

use crate::{
    mock_kernels::OPERATION,
    touch::{Commands, InUse},
    watermark::Watermark,
};

/// Commands on each block, and a last one before it is freed, which ends `time` later.
pub(crate) struct Behind {
    inner: Option<Box<dyn Commands<MockBackend>>>,
    device: MockDevice,
    time: Duration,
    /// When the last uses that have not ended will end, and the bytes of their blocks, in order.
    pending: Mutex<VecDeque<(Duration, u64)>>,
    /// The bytes that were freed and are in use.
    bytes: Arc<Watermark>,
}

impl Behind {
    /// Adds last uses to the commands on each block. `bytes` counts the bytes that were freed and are in use.
    pub(crate) fn new(
        inner: Option<Box<dyn Commands<MockBackend>>>,
        device: MockDevice,
        time: Duration,
        bytes: Arc<Watermark>,
    ) -> Self {
        Self {
            inner,
            device,
            time,
            pending: Mutex::default(),
            bytes,
        }
    }
}

impl Commands<MockBackend> for Behind {
    fn begin(&self, block: &InUse<'_, MockBackend>) -> Result<(), Error> {
        if let Some(inner) = &self.inner {
            inner.begin(block)?;
        }
        // What the program takes for itself between two requests.
        self.device.pass(OPERATION);
        Ok(())
    }

    fn end(&self, block: &InUse<'_, MockBackend>) -> Result<(), Error> {
        if let Some(inner) = &self.inner {
            inner.end(block)?;
        }
        let mut pending = self.pending.lock();
        let now = self.device.now();
        while let Some((end, bytes)) = pending.front().copied()
            && end <= now
        {
            pending.pop_front();
            self.bytes.remove(bytes);
        }
        block.backend.enqueue_use(block.queue, block.memory)?;
        let bytes = block.memory.bytes() as u64;
        pending.push_back((now + self.time, bytes));
        self.bytes.add(bytes);
        Ok(())
    }

    fn wrong_blocks(
        &self,
        backend: &MockBackend,
        queue: &MockQueue,
        queue_number: usize,
    ) -> Result<u32, Error> {
        match &self.inner {
            Some(inner) => inner.wrong_blocks(backend, queue, queue_number),
            None => Ok(0),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failing test panics")]
mod tests {
    use binpool::{Backend, MemoryFlags, QueueOrder};
    use binpool_mock::Completion;

    use super::*;

    #[test]
    fn a_freed_block_is_pending_for_the_time() {
        let time = Duration::from_millis(1);
        let completion = Completion::Behind {
            commands: time,
            markers: time,
        };
        let device = MockDevice::builder().completion(completion).build();
        let backend = device.backend();
        let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
        let memory = backend.create_buffer(100, MemoryFlags::empty()).unwrap();
        let bytes = Arc::new(Watermark::default());
        let behind = Behind::new(None, device.clone(), time, Arc::clone(&bytes));
        // Returns how many are pending at most since the last one.
        let freed_after = |micros| {
            device.pass(Duration::from_micros(micros));
            let block = InUse {
                backend: &backend,
                queue: &queue,
                queue_number: 0,
                memory: &memory,
                number: 0,
            };
            behind.begin(&block).unwrap();
            behind.end(&block).unwrap();
            bytes.restart() / 100
        };
        assert_eq!(freed_after(0), 1);
        assert_eq!(freed_after(400), 2);
        assert_eq!(freed_after(100), 3);
        // The first has ended.
        assert_eq!(freed_after(500), 3);
        assert_eq!(freed_after(5000), 3);
        assert_eq!(freed_after(100), 2);
    }
}

//! A device that lags behind the host: each freed block stays in use for a while.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use binpool::{Backend, Error, Memory};
use parking_lot::Mutex;

use crate::{
    touch::{Commands, InUse},
    watermark::Watermark,
};

/// What the last use of a block is on a kind of device.
pub(crate) trait LastUse<B: Backend>: Sync {
    /// Lets the time pass that the program takes for itself between two requests.
    fn work(&self) {}

    /// Enqueues a command on the block that takes so long if it begins when its queue has ended all before it.
    fn enqueue(&self, block: &InUse<'_, B>, takes: Duration) -> Result<(), Error>;
}

/// Commands on each block, and a last one before it is freed that ends so long after it was enqueued.
pub(crate) struct Behind<B: Backend> {
    inner: Option<Box<dyn Commands<B>>>,
    last_use: Box<dyn LastUse<B>>,
    time: Duration,
    pending: Mutex<Pending>,
    /// The bytes that were freed and are in use.
    bytes: Arc<Watermark>,
}

#[derive(Default)]
struct Pending {
    /// When the last uses end that have not ended, and the bytes of their blocks, in order.
    uses: VecDeque<(Duration, u64)>,
    /// When the last use of each queue ends.
    queues: Vec<Duration>,
}

impl<B: Backend> Behind<B> {
    /// Adds last uses to the commands on each block, for this many queues. `bytes` counts the bytes that were freed and are in use.
    pub(crate) fn new(
        inner: Option<Box<dyn Commands<B>>>,
        last_use: Box<dyn LastUse<B>>,
        time: Duration,
        queues: usize,
        bytes: Arc<Watermark>,
    ) -> Self {
        let pending = Pending {
            queues: vec![Duration::ZERO; queues],
            ..Pending::default()
        };
        Self {
            inner,
            last_use,
            time,
            pending: Mutex::new(pending),
            bytes,
        }
    }

    /// Counts what has ended as no longer in use.
    fn settle(&self, pending: &mut Pending, now: Duration) {
        while let Some((end, bytes)) = pending.uses.front().copied()
            && end <= now
        {
            pending.uses.pop_front();
            self.bytes.remove(bytes);
        }
    }
}

impl<B: Backend> Commands<B> for Behind<B> {
    fn begin(&self, block: &InUse<'_, B>) -> Result<(), Error> {
        if let Some(inner) = &self.inner {
            inner.begin(block)?;
        }
        self.last_use.work();
        Ok(())
    }

    fn end(&self, block: &InUse<'_, B>) -> Result<(), Error> {
        if let Some(inner) = &self.inner {
            inner.end(block)?;
        }
        let mut pending = self.pending.lock();
        let now = block.backend.now();
        self.settle(&mut pending, now);
        let end = now + self.time;
        let before = &mut pending.queues[block.queue_number];
        let takes = end.saturating_sub(now.max(*before));
        *before = end;
        self.last_use.enqueue(block, takes)?;
        let bytes = block.memory.bytes() as u64;
        pending.uses.push_back((end, bytes));
        self.bytes.add(bytes);
        Ok(())
    }

    fn wrong_blocks(
        &self,
        backend: &B,
        queue: &B::Queue,
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
    use binpool::{MemoryFlags, QueueOrder};
    use binpool_mock::{MockBackend, MockDevice};

    use super::*;

    /// How long the uses take, in microseconds.
    type Noted = Arc<Mutex<Vec<u64>>>;

    impl LastUse<MockBackend> for Noted {
        fn enqueue(&self, _: &InUse<'_, MockBackend>, takes: Duration) -> Result<(), Error> {
            self.lock().push(u64::try_from(takes.as_micros()).unwrap());
            Ok(())
        }
    }

    #[test]
    fn a_use_takes_what_is_left_of_its_time_and_is_pending_so_long() {
        let device = MockDevice::new();
        let backend = device.backend();
        let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
        let memory = backend.create_buffer(100, MemoryFlags::empty()).unwrap();
        let (noted, bytes) = (Noted::default(), Arc::new(Watermark::default()));
        let time = Duration::from_micros(10);
        let last_use = Box::new(Arc::clone(&noted));
        let behind = Behind::new(None, last_use, time, 2, Arc::clone(&bytes));
        let freed = |at: u64, queue_number| {
            device.pass(Duration::from_micros(at).checked_sub(device.now()).unwrap());
            let block = InUse {
                backend: &backend,
                queue: &queue,
                queue_number,
                memory: &memory,
                number: 0,
            };
            behind.begin(&block).unwrap();
            behind.end(&block).unwrap();
            (noted.lock().pop().unwrap(), bytes.restart() / 100)
        };
        // By time and queue: what the use takes, and how many are pending at most since the last one.
        assert_eq!(freed(0, 0), (10, 1));
        // It begins when the first ends, at 10, and ends at 14.
        assert_eq!(freed(4, 0), (4, 2));
        assert_eq!(freed(5, 1), (10, 3));
        assert_eq!(freed(14, 0), (10, 3));
        assert_eq!(freed(40, 0), (10, 2));
        assert_eq!(freed(50, 1), (10, 1));
    }
}

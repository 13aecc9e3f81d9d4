//! The workload `cross-thread`: one thread allocates, another one drops.

use std::{
    hint,
    sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel},
    thread::Scope,
};

use crate::{Subject, Work, pair::HOT_BYTES};

/// How many blocks go to the other thread at once, so that the channel's own cost is shared by as many.
const BATCH: u64 = 64;

/// How many batches are on their way at most: the producer waits for the first of them to come back empty.
const BATCHES: usize = 8;

/// How often a thread that has run dry looks again before it sleeps, so that few batches pay for a wake-up.
const LOOKS: usize = 1000;

/// The producer allocates blocks of 4096 bytes and sends them, 64 at a time, to a thread that drops them, in the order in
/// which they were allocated. The vector that they came in goes back, so that the channel allocates nothing, and at most
/// 512 blocks are live.
///
/// What the channels themselves cost, and the waiting of a thread that has run dry, are at most what the subject
/// [`Nothing`](crate::Nothing) takes here, whose consumer has always run dry.
#[derive(Debug)]
pub(crate) struct CrossThread<'a, S: Subject> {
    subject: &'a S,
    to_consumer: SyncSender<Vec<S::Block>>,
    emptied: Receiver<Vec<S::Block>>,
}

impl<'a, S: Subject> CrossThread<'a, S> {
    /// The workload on `subject`, with a consumer that ends when this is dropped.
    pub(crate) fn warmed_up(subject: &'a S, scope: &'a Scope<'a, '_>) -> Self {
        let (to_consumer, full) = sync_channel::<Vec<S::Block>>(BATCHES);
        let (to_producer, emptied) = sync_channel(BATCHES);
        for _ in 0..BATCHES {
            // There is room for all of them.
            let _ = to_producer.try_send(Vec::new());
        }
        scope.spawn(move || {
            while let Some(mut batch) = next(&full) {
                batch.clear();
                if to_producer.send(batch).is_err() {
                    break;
                }
            }
        });
        let mut workload = Self {
            subject,
            to_consumer,
            emptied,
        };
        workload.run(BATCH * BATCHES as u64);
        workload
    }

    /// Sends a batch of `blocks` blocks. Whether all were there.
    fn send(&self, blocks: u64) -> bool {
        let Some(mut batch) = next(&self.emptied) else {
            return false;
        };
        batch.extend((0..blocks).filter_map(|_| self.subject.allocate(HOT_BYTES)));
        let all = batch.len() as u64 == blocks;
        self.to_consumer.send(batch).is_ok() && all
    }

    /// Waits until every block has been dropped.
    fn drain(&self) -> bool {
        let batches = (0..BATCHES).map_while(|_| next(&self.emptied));
        let batches: Vec<_> = batches.collect();
        let are_all = batches.len() == BATCHES;
        // The consumer hands them over again, empty as they are, for the next run.
        let mut sent = batches
            .into_iter()
            .map(|batch| self.to_consumer.send(batch).is_ok());
        sent.all(|is_sent| is_sent) && are_all
    }
}

/// The next batch, as soon as there is one; `None` if there will be none.
fn next<T>(channel: &Receiver<T>) -> Option<T> {
    for _ in 0..LOOKS {
        match channel.try_recv() {
            Ok(batch) => return Some(batch),
            Err(TryRecvError::Disconnected) => return None,
            Err(TryRecvError::Empty) => hint::spin_loop(),
        }
    }
    channel.recv().ok()
}

impl<S: Subject> Work for CrossThread<'_, S> {
    /// Until the consumer has dropped the last block. The last batch is smaller where `pairs` is not a multiple of 64.
    fn run(&mut self, pairs: u64) -> bool {
        let sent = (0..pairs / BATCH).all(|_| self.send(BATCH)) && self.send(pairs % BATCH);
        self.drain() && sent
    }
}

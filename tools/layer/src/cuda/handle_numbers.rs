//! The numbers of contexts and streams in the recording.

use std::collections::HashMap;

use super::function::{LEGACY, PER_THREAD};
use crate::recording::{Device, Recording};

/// The contexts and streams of the program, numbered from 1 on in the order in which they appear.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    contexts: HashMap<usize, u32>,
    /// The number of each stream, by its handle and thread, with that of its context.
    streams: HashMap<(usize, u64), (u32, u32)>,
    last_context: u32,
    last_stream: u32,
}

impl Numbers {
    /// Returns the number of a context, if it has one.
    pub(super) fn known_context(&self, context: usize) -> Option<u32> {
        self.contexts.get(&context).copied()
    }

    /// Returns the number of a context. The recording is told of a new one, with this device.
    pub(super) fn context(&mut self, recording: &Recording, context: usize, device: Device) -> u32 {
        if let Some(known) = self.known_context(context) {
            return known;
        }
        self.last_context += 1;
        let number = self.last_context;
        self.contexts.insert(context, number);
        recording.context(number, &[device]);
        number
    }

    /// Returns the number of a stream. The legacy default stream is 0; the default stream of each thread has a number of its own.
    pub(super) fn stream(&mut self, recording: &Recording, context: u32, stream: usize) -> u32 {
        let thread = match stream {
            LEGACY => return 0,
            PER_THREAD => own_thread(),
            _ => 0,
        };
        if let Some((known, _)) = self.streams.get(&(stream, thread)) {
            return *known;
        }
        self.last_stream += 1;
        let number = self.last_stream;
        self.streams.insert((stream, thread), (number, context));
        let what = if stream == PER_THREAD {
            "the default stream of a thread"
        } else {
            "a stream"
        };
        recording.note("stream", 0, &format!("{number}: {what}, context {context}"));
        number
    }

    /// Forgets a stream that ends: another may get its handle.
    pub(super) fn end_stream(&mut self, stream: usize) {
        self.streams.remove(&(stream, 0));
    }

    /// Forgets a context that ends, with its streams.
    pub(super) fn end_context(&mut self, context: usize) {
        if let Some(ended) = self.contexts.remove(&context) {
            self.streams.retain(|_, (_, context)| *context != ended);
        }
    }
}

fn own_thread() -> u64 {
    // `gettid` of libc came with glibc 2.30, and the wheels are for 2.28.
    let id = rustix::thread::gettid().as_raw_nonzero().get();
    u64::try_from(id).unwrap_or(0)
}

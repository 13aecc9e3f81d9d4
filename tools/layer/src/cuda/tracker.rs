//! What the program has on CUDA devices, for the recording.

use std::sync::{Mutex, MutexGuard, OnceLock};

use binpool_trace::PoolEvent;

use super::{
    arguments::Arguments,
    driver::driver,
    function::{Effect, Function, Space},
    handle_numbers::Numbers,
    live::{Live, Taken},
};
use crate::{
    framework::{self, Tells},
    recording::{Device, Group, Lock, Recording, hold_over_fork, lock, recording},
};

/// Notes in the recording what the program does.
#[derive(Debug)]
pub(super) struct Tracker {
    recording: &'static Recording,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    numbers: Numbers,
    live: Live<Block>,
}

/// A block of the program.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Block {
    id: u64,
    stream: u32,
    /// Set for memory that a framework divides: its address is the ID.
    is_segment: bool,
}

/// A request of the program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) kind: &'static str,
    pub(super) bytes: usize,
    /// The handle of the context.
    pub(super) context: usize,
    /// The handle of the stream, if the call names one.
    pub(super) stream: Option<usize>,
}

/// Returns the tracker of this process, if it is recorded.
pub(super) fn tracker() -> Option<&'static Tracker> {
    static TRACKER: OnceLock<Option<Tracker>> = OnceLock::new();
    let made = TRACKER.get_or_init(|| {
        let recording = recording("CUDA")?;
        Some(Tracker {
            recording,
            state: Mutex::default(),
        })
    });
    let tracker = made.as_ref()?;
    // The driver does not work in a child of a fork, whose recording begins anew.
    hold_over_fork(Lock::Cuda, &tracker.state, |state| {
        *state = State::default();
    });
    Some(tracker)
}

impl Tracker {
    /// Notes a block that the program has at an address, or by a handle.
    pub(super) fn allocated(&self, space: Space, handle: usize, request: Request) {
        let block = match framework::tells() {
            Tells::Nothing => {
                let (group, stream) = self.group(request);
                let id = self.recording.allocated(group, request.bytes, stream);
                Block {
                    id,
                    stream,
                    is_segment: false,
                }
            }
            Tells::Blocks if space == Space::Memory => {
                let (memory, bytes) = (handle as u64, request.bytes as u64);
                self.recording.pool(PoolEvent::Taken { memory, bytes });
                Block {
                    id: memory,
                    stream: 0,
                    is_segment: true,
                }
            }
            Tells::Blocks | Tells::BlocksAndSegments => return,
        };
        let old = lock(&self.state)
            .live
            .put(space, handle, request.context, block);
        if let Some(old) = old {
            self.ended(old);
        }
    }

    fn ended(&self, block: Block) {
        if block.is_segment {
            let memory = block.id;
            self.recording.pool(PoolEvent::GivenBack { memory });
        } else {
            self.recording.freed(block.id);
        }
    }

    /// Notes a request that was refused for lack of memory.
    pub(super) fn refused(&self, request: Request) {
        // A framework that tells of its blocks tells of what it is refused.
        if framework::tells() != Tells::Nothing {
            return;
        }
        let (group, stream) = self.group(request);
        self.recording.refused(group, request.bytes, stream, 0);
    }

    fn group(&self, request: Request) -> (Group, u32) {
        let Request { kind, context, .. } = request;
        let (mut state, context) = self.with_context(context);
        let number = |stream| state.numbers.stream(self.recording, context, stream);
        let stream = request.stream.map_or(0, number);
        (Group { kind, context }, stream)
    }

    /// Returns the state, and the number of a context, which is the current one if it is new.
    fn with_context(&self, context: usize) -> (MutexGuard<'_, State>, u32) {
        let state = lock(&self.state);
        if let Some(known) = state.numbers.known_context(context) {
            return (state, known);
        }
        drop(state);
        // The driver is not asked while the state is locked: a fork takes the driver's own locks after that one.
        let device = driver().about_device().unwrap_or_else(|| Device {
            name: "a device".to_owned(),
            bytes: 0,
        });
        let mut state = lock(&self.state);
        let number = state.numbers.context(self.recording, context, device);
        (state, number)
    }

    /// Takes what a call is to end.
    pub(super) fn take(&self, effect: Effect, arguments: Arguments) -> Taken<Block> {
        if !effect.may_end_blocks() {
            // An allocation does not wait for the state twice.
            return Taken::Nothing;
        }
        lock(&self.state).live.take(effect, arguments)
    }

    /// Takes the blocks of the primary context of a device, which has ended.
    pub(super) fn take_primary(&self, device: usize) -> Taken<Block> {
        lock(&self.state).live.take_primary(device)
    }

    /// Puts back what a call was to end that has failed.
    pub(super) fn put_back(&self, taken: Taken<Block>) {
        lock(&self.state).live.put_back(taken);
    }

    /// Notes what a call in a context has ended, and what else it has done.
    pub(super) fn after(
        &self,
        function: &Function,
        arguments: Arguments,
        taken: Taken<Block>,
        context: usize,
    ) {
        let (mut state, stream) = match arguments.stream(function) {
            Some(handle) => {
                let (mut state, context) = self.with_context(context);
                let stream = state.numbers.stream(self.recording, context, handle);
                (state, Some(stream))
            }
            None => (lock(&self.state), None),
        };
        let ended = state.live.after(function.effect, arguments, taken);
        drop(state);
        for block in ended {
            if let Some(stream) = stream
                && stream != block.stream
                && !block.is_segment
            {
                self.recording.used(block.id, stream);
            }
            self.ended(block);
        }
    }

    /// Notes memory that could not come from a pool.
    pub(super) fn passed(&self, bytes: usize, why: &str) {
        self.recording.note("passed", bytes as u64, why);
    }

    /// Forgets a stream that ends.
    pub(super) fn end_stream(&self, stream: usize) {
        lock(&self.state).numbers.end_stream(stream);
    }

    /// Forgets the number of a context that has ended.
    pub(super) fn end_context(&self, context: usize) {
        lock(&self.state).numbers.end_context(context);
    }

    /// Forgets the number of the primary context of a device, which has ended.
    pub(super) fn end_primary(&self, device: usize) {
        let mut state = lock(&self.state);
        if let Some(context) = state.live.primary(device) {
            state.numbers.end_context(context);
        }
    }
}

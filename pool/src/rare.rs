//! States that few programs reach. Fuzzing looks for programs that reach one after another for the first time
//! (`fuzz/fuzz_targets/pool/states.rs`); in other builds this compiles to nothing.

#![cfg_attr(
    not(fuzzing),
    allow(unreachable_pub, reason = "only the fuzz target uses them")
)]

/// A rare state of a pool, or a rare step that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rare {
    /// A queue got memory of another one whose commands had ended.
    Crossing,
    /// The device was made to wait before it uses memory again.
    DeviceWait,
    /// The host waited before memory was used again.
    HostWait,
    /// A fence was put on a queue.
    Fence,
    /// A fence failed, and proved nothing.
    ForgottenFence,
    /// A block could not be released, since nothing tells when its commands end.
    QuarantinedBlock,
    /// A part of a segment could not, for the same reason.
    QuarantinedRange,
    /// A part of a segment waits to be scrubbed.
    Unscrubbed,
    /// Pages were unmapped at the addresses from which they had moved.
    StaleUnmapped,
    /// Unmapping them failed, and they stay there.
    StaleKept,
    /// A thread joined, and has an arena: after [`HomeLeft`](Self::HomeLeft), the arena of a thread that has ended.
    HomeTaken,
    /// A thread ended, and left its arena.
    HomeLeft,
    /// Blocks were taken from the caches of other threads.
    Stolen,
    /// A thread left blocks in the depot.
    MagazineLeft,
    /// A thread took blocks from the depot.
    MagazineTaken,
    /// The pool forgot idle queues.
    QueuesRetired,
    /// A pool of bins gave a larger block, to stay below its high water.
    LargerBlock,
    /// On a full device, a larger block served after a wait.
    LargerAfterWait,
    /// Free memory was released on a full device.
    RoomMade,
    /// A hook was called on a full device.
    HookCalled,
    /// A request waited for a queue on a full device.
    QueueWaitedFor,
    /// A wait for a queue failed on a full device.
    WaitFailed,
}

/// The number of states.
#[cfg(fuzzing)]
pub const STATES: usize = Rare::WaitFailed as usize + 1;

/// The states that any pool has reached since the last call of [`take_reached`].
#[cfg(fuzzing)]
static REACHED: parking_lot::Mutex<Vec<Rare>> = parking_lot::Mutex::new(Vec::new());

/// Records that a pool has reached a state.
#[cfg(fuzzing)]
pub(crate) fn reached(state: Rare) {
    let mut all = REACHED.lock();
    if !all.contains(&state) {
        all.push(state);
    }
}

/// Does nothing: only fuzzing looks for states.
#[cfg(not(fuzzing))]
#[inline]
pub(crate) const fn reached(_: Rare) {}

/// Returns the states that any pool has reached since the last call.
#[cfg(fuzzing)]
pub fn take_reached() -> Vec<Rare> {
    std::mem::take(&mut *REACHED.lock())
}

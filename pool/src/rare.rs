//! States that few programs reach. Fuzzing looks for programs that reach one after another for the first time
//! (`fuzz/fuzz_targets/pool/states.rs`); other builds have nothing of this.

#![cfg_attr(
    not(fuzzing),
    allow(unreachable_pub, reason = "public where somebody fuzzes")
)]

/// A state of a pool, or a step that it takes, that is rare.
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
    /// A block could not be released, since nothing says when its commands end.
    QuarantinedBlock,
    /// A part of a segment, for that reason.
    QuarantinedRange,
    /// A part of a segment waits for its scrubbing.
    Unscrubbed,
    /// Pages were unmapped at the addresses from which they had moved.
    StaleUnmapped,
    /// That failed, and they stay there.
    StaleKept,
    /// A thread joined, and so has an arena. After [`HomeLeft`](Self::HomeLeft) it is the arena of one that has ended.
    HomeTaken,
    /// A thread ended, and left its arena.
    HomeLeft,
    /// Blocks were taken out of the caches of threads.
    Stolen,
    /// A thread left blocks in the depot.
    MagazineLeft,
    /// A thread took blocks out of it.
    MagazineTaken,
    /// Idle queues were let go of.
    QueuesRetired,
    /// A pool of bins gave a larger block, to stay below its high water.
    LargerBlock,
    /// On a full device, a larger block served after a wait.
    LargerAfterWait,
    /// Free memory was released to make room.
    RoomMade,
    /// A hook made room.
    RoomByHook,
    /// A wait for a queue made room.
    RoomByWaiting,
    /// A wait for a queue failed on a full device.
    WaitFailed,
}

/// The number of states.
#[cfg(fuzzing)]
pub const STATES: usize = Rare::WaitFailed as usize + 1;

/// Those that any pool has reached since the last call of [`take_reached`].
#[cfg(fuzzing)]
static REACHED: parking_lot::Mutex<Vec<Rare>> = parking_lot::Mutex::new(Vec::new());

/// Takes note of a state.
#[cfg(fuzzing)]
pub(crate) fn reached(state: Rare) {
    let mut all = REACHED.lock();
    if !all.contains(&state) {
        all.push(state);
    }
}

/// Does nothing, as nobody looks for it.
#[cfg(not(fuzzing))]
#[inline]
pub(crate) const fn reached(_: Rare) {}

/// Returns the states that any pool has reached since the last call.
#[cfg(fuzzing)]
pub fn take_reached() -> Vec<Rare> {
    std::mem::take(&mut *REACHED.lock())
}

//! The steps of a program. Blocks, queues and pools are picked modulo how many there are.

use arbitrary::Arbitrary;

/// About `2^exponent` bytes, or a size at the ends of what there is.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(crate) struct Size {
    exponent: u8,
    low: u16,
}

impl Size {
    pub(crate) fn bytes(self, capacity: usize) -> usize {
        match self.exponent % 32 {
            exponent @ 0..20 => {
                let power = 1_usize << exponent;
                power + usize::from(self.low) % power
            }
            20 => 0,
            21 => capacity,
            22 => capacity + 1,
            23 => usize::MAX - usize::from(self.low),
            _ => usize::from(self.low) % 4096,
        }
    }
}

/// A part of a block: in 65536ths of its size, in any order.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(crate) struct Part {
    ends: Option<(u16, u16)>,
    /// Whether it starts on the device's alignment.
    aligned: bool,
}

impl Part {
    pub(crate) fn of(self, bytes: usize, alignment: usize) -> std::ops::Range<usize> {
        let Some((one, two)) = self.ends else {
            return 0..bytes;
        };
        let place = |end: u16| bytes * usize::from(end) / (1 << 16);
        let (mut start, end) = (place(one.min(two)), place(one.max(two)));
        if self.aligned {
            start -= start % alignment;
        }
        start..end
    }
}

/// By which call bytes are written.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(crate) enum How {
    Fill,
    Write,
    BlockingWrite,
    View,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub(crate) enum Call {
    CreateBuffer,
    CreateView,
    AllocateSvm,
    Commit,
    Release,
    Fill,
    Write,
    Read,
    Copy,
    Marker,
    Barrier,
    Status,
    Wait,
    Flush,
    Finish,
    Any,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub(crate) enum FaultOf {
    OutOfMemory,
    Backend,
    DeviceLost,
}

#[derive(Arbitrary, Debug)]
pub(crate) enum Step {
    Allocate {
        pool: bool,
        size: Size,
        queue: u8,
        thread: u8,
    },
    /// A block of the pool's home queue.
    AllocateAtHome {
        pool: bool,
        size: Size,
    },
    /// As many blocks of one size as fit, or a few; every second one goes.
    Churn {
        pool: bool,
        size: Size,
        blocks: u8,
    },
    Put {
        block: u8,
        queue: u8,
        part: Part,
        how: How,
        by_events: bool,
    },
    Copy {
        from: u8,
        to: u8,
        queue: u8,
        part: Part,
    },
    Check {
        block: u8,
    },
    Read {
        block: u8,
        queue: u8,
        part: Part,
    },
    OrderBefore {
        block: u8,
        queue: u8,
    },
    RecordUse {
        block: u8,
        queue: u8,
    },
    Bind {
        block: u8,
        queue: u8,
    },
    Unbind {
        block: u8,
    },
    Drop {
        block: u8,
        thread: u8,
    },
    CheckAndDrop {
        block: u8,
    },
    Release {
        block: u8,
    },
    EnqueueRelease {
        block: u8,
        queue: Option<u8>,
    },
    Detach {
        block: u8,
    },
    /// The next command waits for a new gate.
    Gate,
    OpenGates {
        fail: u8,
    },
    TrimTo {
        pool: bool,
        parts: u8,
    },
    FreeHeld {
        pool: bool,
    },
    Sweep {
        pool: bool,
    },
    Hold {
        pool: bool,
        holds: bool,
    },
    RetireQueue {
        pool: bool,
        queue: u8,
    },
    ReplaceQueue {
        queue: u8,
        out_of_order: bool,
    },
    WouldFit {
        pool: bool,
        size: Size,
    },
    /// A block that a hook drops when memory runs short.
    Cache {
        block: u8,
    },
    AddHook {
        pool: bool,
        clears_cache: bool,
    },
    RemoveHook,
    SetLimit {
        parts: u8,
    },
    Fail {
        call: Call,
        nth: u8,
        fault: FaultOf,
        forever: u8,
    },
    FailRandomly {
        call: Call,
        seed: u8,
        fault: FaultOf,
    },
    ClearFaults,
    /// One command runs that may.
    Step {
        which: u8,
    },
    RunAll,
}

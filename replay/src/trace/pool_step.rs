//! What the pool of a recorded program did, as its recording says it.

use binpool::Verdict;

use crate::trace::{error::Problem, parse_number};

/// A step of the pool of a recorded program, between two [events](crate::Event) of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStep {
    /// The number of events before it.
    pub events_before: usize,
    /// Its time, in nanoseconds since the recording began; 0 in a trace without times.
    pub time: u64,
    /// What the pool did.
    pub action: PoolAction,
}

/// What a pool did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoolAction {
    /// It got memory from its allocator: a segment, or one block by itself.
    Taken {
        /// The number of the memory.
        memory: u64,
        /// Its bytes.
        bytes: u64,
    },
    /// Memory left the pool.
    GivenBack {
        /// The number of the memory.
        memory: u64,
    },
    /// A block got its place, which it has whenever it is handed out.
    Placed {
        /// The number of the block: all of its IDs, without their lowest eight bits.
        block: u64,
        /// The number of the memory that it lies in.
        memory: u64,
        /// Its offset there, in bytes.
        offset: u64,
        /// The bytes that it takes.
        bytes: u64,
    },
    /// Pages were mapped to some bytes of a reservation.
    Mapped {
        /// The number of the reservation, which is the memory of the blocks in it.
        reservation: u64,
        /// Their offset there, in bytes.
        offset: u64,
        /// Their bytes.
        bytes: u64,
    },
    /// The pages of some bytes of a reservation were unmapped, all that were [mapped](Self::Mapped) there at once.
    Unmapped {
        /// The number of the reservation.
        reservation: u64,
        /// Their offset there, in bytes.
        offset: u64,
        /// Their bytes.
        bytes: u64,
    },
    /// The program freed a block, which commands of another stream still use: another tool's allocator has it with its free.
    Waiting {
        /// The number of the block.
        block: u64,
    },
    /// Anything else.
    Did {
        /// What it did, in a word: `untracked`, `miss`, `flush`, `trim`, `sweep`, `hook`, `wait`, `map`, `spare`.
        what: Box<str>,
        /// The bytes that it was about.
        bytes: u64,
        /// More about it, in words.
        text: Box<str>,
    },
}

/// The report of an allocation that failed for lack of memory, as the pool wrote it: the numbers of its
/// [`OutOfMemoryReport`](binpool::OutOfMemoryReport). Sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShortageReport {
    /// The cause.
    pub verdict: Verdict,
    /// The size of the request's class.
    pub class_bytes: u64,
    /// The requested bytes of all active blocks.
    pub active_bytes: u64,
    /// The number of active blocks.
    pub active_blocks: u64,
    /// The bytes of freed blocks of which the program has views.
    pub viewed_bytes: u64,
    /// What the pool had from its allocator.
    pub managed_bytes: u64,
    /// The free bytes of the pool.
    pub held_bytes: u64,
    /// The part of these that commands may still have used.
    pub pending_bytes: u64,
    /// The largest block that was held.
    pub largest_held_bytes: u64,
    /// What the pool released for this request.
    pub released_bytes: u64,
    /// The largest block that the allocator gives.
    pub largest_block_bytes: u64,
    /// The most that the allocator gives.
    pub capacity_bytes: u64,
    /// The memory of the device.
    pub device_bytes: u64,
    /// What the device had free, of all programs; `None` where it was not asked.
    pub device_free_bytes: Option<u64>,
}

impl ShortageReport {
    /// Reads words of the form `KEY=VALUE`. Unknown keys are ignored.
    pub(crate) fn read<'w>(words: impl Iterator<Item = &'w str>) -> Result<Self, Problem> {
        let mut report = Self {
            verdict: Verdict::DeviceFull,
            class_bytes: 0,
            active_bytes: 0,
            active_blocks: 0,
            viewed_bytes: 0,
            managed_bytes: 0,
            held_bytes: 0,
            pending_bytes: 0,
            largest_held_bytes: 0,
            released_bytes: 0,
            largest_block_bytes: 0,
            capacity_bytes: 0,
            device_bytes: 0,
            device_free_bytes: None,
        };
        for word in words {
            let (key, value) = word.split_once('=').ok_or(Problem::Form)?;
            if key == "verdict" {
                let found = Verdict::ALL.into_iter().find(|it| it.name() == value);
                report.verdict = found.ok_or(Problem::Verdict)?;
                continue;
            }
            if key == "device_free_bytes" {
                let free = parse_number(Some(value), "device_free_bytes", u64::MAX)?;
                report.device_free_bytes = Some(free);
                continue;
            }
            let mut numbers = report.numbers_mut();
            if let Some((key, number)) = numbers.iter_mut().find(|(name, _)| *name == key) {
                **number = parse_number(Some(value), key, u64::MAX)?;
            }
        }
        Ok(report)
    }

    fn numbers_mut(&mut self) -> [(&'static str, &mut u64); 12] {
        [
            ("class_bytes", &mut self.class_bytes),
            ("active_bytes", &mut self.active_bytes),
            ("active_blocks", &mut self.active_blocks),
            ("viewed_bytes", &mut self.viewed_bytes),
            ("managed_bytes", &mut self.managed_bytes),
            ("held_bytes", &mut self.held_bytes),
            ("pending_bytes", &mut self.pending_bytes),
            ("largest_held_bytes", &mut self.largest_held_bytes),
            ("released_bytes", &mut self.released_bytes),
            ("largest_block_bytes", &mut self.largest_block_bytes),
            ("capacity_bytes", &mut self.capacity_bytes),
            ("device_bytes", &mut self.device_bytes),
        ]
    }

    /// Returns the words that [`read`](Self::read) reads.
    pub(crate) fn words(mut self) -> String {
        let verdict = format!("verdict={}", self.verdict.name());
        let numbers = self
            .numbers_mut()
            .map(|(key, number)| format!("{key}={number}"));
        let all = [verdict].into_iter().chain(numbers);
        let free = self.device_free_bytes;
        let all: Vec<String> = all
            .chain(free.map(|free| format!("device_free_bytes={free}")))
            .collect();
        all.join(" ")
    }
}

impl PoolAction {
    /// Returns the words of the line before its time, and the text behind.
    pub(crate) fn words(&self) -> (String, &str) {
        match self {
            Self::Taken { memory, bytes } => (format!("s {memory} {bytes}"), ""),
            Self::GivenBack { memory } => (format!("S {memory}"), ""),
            Self::Placed {
                block,
                memory,
                offset,
                bytes,
            } => (format!("b {block} {memory} {offset} {bytes}"), ""),
            Self::Mapped {
                reservation,
                offset,
                bytes,
            } => (format!("m {reservation} {offset} {bytes}"), ""),
            Self::Unmapped {
                reservation,
                offset,
                bytes,
            } => (format!("M {reservation} {offset} {bytes}"), ""),
            Self::Waiting { block } => (format!("w {block}"), ""),
            Self::Did { what, bytes, text } => (format!("p {what} {bytes}"), text),
        }
    }
}

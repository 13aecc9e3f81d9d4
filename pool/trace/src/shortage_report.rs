//! The report of a request that failed for lack of memory, as recorded.

use crate::{
    TraceError, Verdict,
    words::{Words, form, number, push_words},
};

/// The report of a request that failed for lack of memory, as the pool wrote it. Sizes in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShortageReport {
    /// The cause.
    pub verdict: Verdict,
    /// The size of the request's class.
    pub class_bytes: u64,
    /// The requested bytes of all active blocks.
    pub active_bytes: u64,
    /// The number of active blocks.
    pub active_blocks: u64,
    /// The bytes of freed blocks that the program still has views of.
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
    /// The largest block that the allocator can allocate.
    pub largest_block_bytes: u64,
    /// The most that the allocator can allocate in all.
    pub capacity_bytes: u64,
    /// The memory of the device.
    pub device_bytes: u64,
    /// The bytes that the device had free, counting all programs; `None` if it was not asked.
    pub device_free_bytes: Option<u64>,
}

const VERDICT: &str = "verdict";
const DEVICE_FREE: &str = "device_free_bytes";

impl ShortageReport {
    /// Returns a report with this verdict, all of whose numbers are 0.
    #[must_use]
    pub fn new(verdict: Verdict) -> Self {
        Self {
            verdict,
            ..Self::default()
        }
    }

    /// The numbers that every report has, each with its key.
    fn numbers(&mut self) -> [(&'static str, &mut u64); 12] {
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

    /// Appends the line, without its end.
    pub(crate) fn write(mut self, line: &mut Vec<u8>) {
        let verdict = format!("{VERDICT}={}", self.verdict.name());
        push_words(line, &["r", &verdict]);
        let free = self.device_free_bytes;
        let numbers = self.numbers().map(|(key, number)| (key, *number));
        let free = free.map(|free| (DEVICE_FREE, free));
        for (key, number) in numbers.into_iter().chain(free) {
            push_words(line, &["", &format!("{key}={number}")]);
        }
    }

    /// Reads words of the form `KEY=VALUE`. Unknown keys are ignored.
    pub(crate) fn read(words: &mut Words<'_>) -> Result<Self, TraceError> {
        let mut report = Self::default();
        while let Some(word) = words.next() {
            let (key, value) = word.split_once('=').ok_or_else(form)?;
            if key == VERDICT {
                let found = Verdict::ALL.into_iter().find(|it| it.name() == value);
                report.verdict = found.ok_or_else(|| {
                    let names = Verdict::ALL.map(Verdict::name);
                    TraceError::malformed(format_args!(
                        "expected the verdict to be one of {}",
                        names.join(", ")
                    ))
                })?;
            } else if key == DEVICE_FREE {
                let free = number(Some(value), DEVICE_FREE, u64::MAX)?;
                report.device_free_bytes = Some(free);
            } else if let Some((key, own)) =
                report.numbers().into_iter().find(|(name, _)| *name == key)
            {
                *own = number(Some(value), key, u64::MAX)?;
            }
        }
        Ok(report)
    }
}

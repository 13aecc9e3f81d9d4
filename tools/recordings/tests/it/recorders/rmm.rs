//! The log of RMM's `logging_resource_adaptor`.

use std::fmt::Write as _;

use super::{History, Recorder, Tells, What};

const DAY: u64 = 24 * 3600 * 1_000_000;

/// How a stream is written, by its index.
pub(crate) const STREAMS: [u64; 3] = [0, 0x55d0_a0c2_f2c0, 2];

/// The thread that runs a line of the program.
pub(crate) const fn thread_of(site: usize) -> usize {
    site % 3
}

#[derive(Debug)]
pub(crate) struct Rmm {
    /// The microseconds from midnight to the beginning of the program.
    pub(crate) begins: u64,
}

impl Recorder for Rmm {
    fn devices(&self, _: usize) -> usize {
        1
    }

    fn tells(&self, _: &History) -> Tells {
        Tells {
            places: false,
            is_exact: true,
            completions: false,
            ends: false,
            entries: true,
            stacks: false,
            threads: true,
            times: true,
        }
    }

    fn write(&self, histories: &[History]) -> Vec<u8> {
        let mut log = "Thread,Time,Action,Pointer,Size,Stream\n".to_owned();
        let history = &histories[0];
        let first = history.happened.first().map_or(0, |(time, _)| *time);
        for (time, what) in history.recorded() {
            let of = |block: &usize| {
                let block = history.blocks[*block];
                (block.address, block.requested, block.stream, block.site)
            };
            let (action, (address, bytes, stream, site)) = match what {
                What::Allocated(block) => ("allocate", of(block)),
                What::Requested(block) => ("free", of(block)),
                What::Refused {
                    requested,
                    stream,
                    site,
                    ..
                } => ("allocate failure", (0, *requested, *stream, *site)),
                _ => continue,
            };
            let now = (self.begins + time - first) % DAY;
            let (seconds, micros) = (now / 1_000_000, now % 1_000_000);
            let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
            let seconds = seconds % 60;
            let (thread, stream) = (thread_of(site), STREAMS[stream]);
            writeln!(
                log,
                "{thread},{hours:02}:{minutes:02}:{seconds:02}.{micros:06},{action},{address:#x},{bytes},{stream:#x}"
            )
            .unwrap();
        }
        log.into_bytes()
    }
}

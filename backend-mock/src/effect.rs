//! The effect of a command on its memory.

use std::{fmt, sync::Arc};

use binpool_allocators::Sink;
use smallvec::SmallVec;

/// The closure of a kernel: it reads the first slices, and reads and writes the second.
pub(crate) type KernelBody = Box<dyn FnOnce(&[&[u8]], &mut [&mut [u8]]) + Send>;

/// The effect of a command on its memory.
#[derive(Default)]
pub(crate) enum Effect {
    #[default]
    Nothing,
    /// Writes the pattern over and over.
    Fill(SmallVec<[u8; 16]>),
    /// Copies what it reads to what it writes.
    Copy,
    Write(Arc<[u8]>),
    Read(Sink),
    Kernel(KernelBody),
}

impl fmt::Debug for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "Nothing",
            Self::Fill(_) => "Fill",
            Self::Copy => "Copy",
            Self::Write(_) => "Write",
            Self::Read(_) => "Read",
            Self::Kernel(_) => "Kernel",
        })
    }
}

impl Effect {
    /// Performs the work. A kernel is called with all slices; other work ignores slices that it does not need.
    pub(crate) fn perform(self, reads: &[&[u8]], writes: &mut [&mut [u8]]) {
        match (self, reads, writes) {
            (Self::Kernel(body), reads, writes) => body(reads, writes),
            (Self::Fill(pattern), _, [target]) => fill(target, &pattern),
            (Self::Copy, [source], [target]) => target.copy_from_slice(source),
            (Self::Write(data), _, [target]) => target.copy_from_slice(&data),
            (Self::Read(sink), [source], _) => {
                let bytes = source.to_vec();
                sink.put(move || bytes);
            }
            _ => {}
        }
    }
}

fn fill(target: &mut [u8], pattern: &[u8]) {
    match pattern {
        [byte] => target.fill(*byte),
        _ => target
            .chunks_exact_mut(pattern.len())
            .for_each(|chunk| chunk.copy_from_slice(pattern)),
    }
}

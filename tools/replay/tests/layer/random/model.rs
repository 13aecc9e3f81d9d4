//! What the bytes of memory must be, and which commands have used it.

/// A byte that was never written.
pub(super) const UNKNOWN: u16 = 256;

/// Memory of its own: what was written to it, and the commands that use it, by their numbers.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) bytes: Vec<u16>,
    /// The command that wrote last.
    writer: Option<usize>,
    /// Those that have read since.
    readers: Vec<usize>,
}

impl Memory {
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            bytes: vec![UNKNOWN; bytes],
            writer: None,
            readers: Vec::new(),
        }
    }

    /// The commands that one must come after that reads it, or writes it.
    pub(super) fn before(&self, is_write: bool) -> Vec<usize> {
        let readers = if is_write { &self.readers[..] } else { &[] };
        self.writer.iter().chain(readers).copied().collect()
    }

    /// Notes that a command uses it.
    pub(super) fn used(&mut self, command: usize, is_write: bool) {
        if is_write {
            self.writer = Some(command);
            self.readers.clear();
        } else {
            self.readers.push(command);
        }
    }

    pub(super) fn set(&mut self, at: usize, bytes: impl IntoIterator<Item = u16>) {
        for (place, byte) in self.bytes[at..].iter_mut().zip(bytes) {
            *place = byte;
        }
    }
}

/// Where bytes that were read are not what they must be.
pub(super) fn difference(read: &[u8], expected: &[u16]) -> Option<usize> {
    let differs =
        |(read, expected): (&u8, &u16)| *expected != UNKNOWN && u16::from(*read) != *expected;
    read.iter().zip(expected).position(differs)
}

//! A file that is written as memory, so that what is written is there however the process ends.

use std::{
    fs::{File, Metadata, OpenOptions},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use memmap2::{Advice, MmapMut, MmapOptions};
use rustix::{
    fs::{FallocateFlags, fallocate},
    process::{Resource, getrlimit},
};

/// The part of the file that is mapped first: a multiple of every page size. Each further part is twice as large as the one before.
const FIRST_WINDOW: usize = 1 << 20;

/// The largest part of the file that is mapped at a time. A program may no longer be able to open the file later on, such as after `chroot`.
const LARGEST_WINDOW: usize = 16 << 20;

/// A new file, to which bytes are appended. Until it is [cut](Self::cut), zeros follow them.
///
/// The file is opened when its size changes, and closed again: a program may close the files that it does not know, and open others by their numbers.
#[derive(Debug)]
pub(super) struct MappedFile {
    path: PathBuf,
    identity: Identity,
    /// The window; `None` once the file is cut.
    map: Option<MmapMut>,
    /// Where the window begins in the file.
    begin: usize,
    /// The bytes of the window, mapped or not.
    size: usize,
    /// The bytes of the window that are written.
    written: usize,
}

/// The number of a file and that of its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity(u64, u64);

impl Identity {
    fn of(file: &Metadata) -> Self {
        Self(file.ino(), file.dev())
    }
}

impl MappedFile {
    /// Makes a file.
    ///
    /// # Errors
    ///
    /// `AlreadyExists`, and whatever keeps a file from being made and mapped.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let path = std::path::absolute(path)?;
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)?;
        Ok(Self {
            identity: Identity::of(&file.metadata()?),
            map: Some(map(&file, 0, FIRST_WINDOW)?),
            path,
            begin: 0,
            size: FIRST_WINDOW,
            written: 0,
        })
    }

    /// Appends bytes.
    ///
    /// # Errors
    ///
    /// The disk is full, for example. After [out of descriptors](is_temporary), another try may succeed; nothing of these bytes is written then.
    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        // Before anything is written, so that a line is whole or is not there.
        if self.map.is_none() {
            self.map = Some(map(&self.open()?, self.begin, self.size)?);
        }
        let (now, later) = bytes.split_at(bytes.len().min(self.size - self.written));
        let mut next = None;
        if !later.is_empty() {
            let begin = self.begin + self.size;
            let size = (2 * self.size).min(LARGEST_WINDOW);
            let size = size.max(bytes.len().next_multiple_of(FIRST_WINDOW));
            next = Some((begin, size, map(&self.open()?, begin, size)?));
        }
        self.write(now);
        if let Some((begin, size, map)) = next {
            (self.begin, self.size, self.map, self.written) = (begin, size, Some(map), 0);
            self.write(later);
        }
        Ok(())
    }

    /// Writes what the window has room for.
    fn write(&mut self, bytes: &[u8]) {
        if let Some(window) = &mut self.map {
            window[self.written..][..bytes.len()].copy_from_slice(bytes);
            self.written += bytes.len();
        }
    }

    /// Cuts the zeros off that follow what is written. More can be appended.
    ///
    /// # Errors
    ///
    /// Whatever keeps the file from being cut.
    pub(super) fn cut(&mut self) -> io::Result<()> {
        // An access to a mapping beyond the end of its file would end the process.
        self.map = None;
        let file = self.open()?;
        file.set_len((self.begin + self.written) as u64)
    }

    fn open(&self) -> io::Result<File> {
        let file = OpenOptions::new().read(true).write(true).open(&self.path)?;
        if Identity::of(&file.metadata()?) == self.identity {
            Ok(file)
        } else {
            Err(io::Error::other("another file has its name now"))
        }
    }
}

/// Maps a part of the file, which is extended to the end of that part.
pub(crate) fn map(file: &File, begin: usize, bytes: usize) -> io::Result<MmapMut> {
    let end = (begin + bytes) as u64;
    let largest = getrlimit(Resource::Fsize).current;
    if largest.is_some_and(|largest| end > largest) {
        // The system would end the program by a signal.
        return Err(io::Error::from(io::ErrorKind::FileTooLarge));
    }
    // Without its blocks, a full disk would end the process at the first access.
    let allocated = fallocate(file, FallocateFlags::empty(), begin as u64, bytes as u64);
    let can_allocate = allocated != Err(rustix::io::Errno::OPNOTSUPP);
    if can_allocate {
        allocated?;
    } else {
        file.set_len(end)?;
    }
    // SAFETY: the layer has made the file, and only its processes and the command that started them know it; the command waits for their end.
    let map = unsafe {
        MmapOptions::new()
            .offset(begin as u64)
            .len(bytes)
            .map_mut(file)?
    };
    if !can_allocate {
        // If the file system could not reserve the blocks, a full disk is an error here.
        map.advise(Advice::PopulateWrite)?;
    }
    // A child of a fork has a recording of its own.
    map.advise(Advice::DontFork)?;
    Ok(map)
}

/// Returns whether the next line may succeed: the program has as many open files as it may have.
pub(super) fn is_temporary(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_has(path: &Path, expected: &[u8]) {
        assert_eq!(std::fs::read(path).unwrap(), expected);
    }

    #[test]
    fn what_is_appended_is_in_the_file_at_once_and_zeros_follow_until_it_is_cut() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let mut file = MappedFile::create(&path).unwrap();
        let expected: Vec<u8> = (1..=251).cycle().take(7 * FIRST_WINDOW / 2).collect();
        for part in expected.chunks(1000) {
            file.append(part).unwrap();
        }
        let found = std::fs::read(&path).unwrap();
        assert_eq!(found[..expected.len()], expected);
        assert_eq!(found.len(), 7 * FIRST_WINDOW);
        assert!(found[expected.len()..].iter().all(|byte| *byte == 0));

        file.cut().unwrap();
        assert_has(&path, &expected);
        file.append(b"more").unwrap();
        file.cut().unwrap();
        assert_has(&path, &[&expected[..], b"more"].concat());
    }

    #[test]
    fn more_than_a_window_is_appended_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let mut file = MappedFile::create(&path).unwrap();
        let expected: Vec<u8> = (1..=251).cycle().take(4 * FIRST_WINDOW).collect();
        file.append(&expected).unwrap();
        file.append(b"more").unwrap();
        file.cut().unwrap();
        assert_has(&path, &[&expected[..], b"more"].concat());
    }

    #[test]
    fn a_file_that_exists_is_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, "before").unwrap();
        let error = MappedFile::create(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_has(&path, b"before");
    }
}

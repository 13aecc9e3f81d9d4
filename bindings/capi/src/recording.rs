//! The functions of C for a recording, which is a handle there.

#![expect(unsafe_code, reason = "handles are pointers")]

use std::{
    ffi::CStr,
    fs::File,
    io::{self, Write},
    path::Path,
};

use binpool::PoolRecording;

use crate::{
    border::{Out, guarded, taken},
    status::{Failure, Status},
};

/// A recording of a pool, which goes on until it is finished.
#[derive(Debug)]
pub struct Recording {
    recording: PoolRecording,
    /// For the errors.
    path: String,
}

impl Recording {
    /// Begins a recording into the file at `path`, by `record`.
    pub(crate) fn begin(
        path: &CStr,
        record: impl FnOnce(Box<NewFile>) -> Result<PoolRecording, Failure>,
    ) -> Result<Self, Failure> {
        let path = path
            .to_str()
            .map_err(|_| Failure::argument("the argument `path` is not UTF-8"))?;
        let file = NewFile::create(Path::new(path)).map_err(|error| failed(path, &error))?;
        Ok(Self {
            recording: record(Box::new(file))?,
            path: path.to_owned(),
        })
    }
}

fn failed(path: &str, error: &io::Error) -> Failure {
    Failure::new(Status::Io, format!("{path} cannot be written: {error}"))
}

/// A file for a recording. What it had before is lost with the first write, and not before: a recording that cannot begin leaves the
/// file as it is, which may be that of the one that goes on.
#[derive(Debug)]
pub struct NewFile {
    file: File,
    is_empty: bool,
}

impl NewFile {
    /// Opens the file, or makes it.
    ///
    /// # Errors
    ///
    /// Those of the operating system.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut options = File::options();
        let file = options
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        // A pipe or a device has nothing to lose.
        let is_empty = !file.metadata()?.is_file();
        Ok(Self { file, is_empty })
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.is_empty {
            self.file.set_len(0)?;
            self.is_empty = true;
        }
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// The counts of a recording.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordingSummary {
    /// Blocks that were handed out.
    pub allocations: u64,
    /// Blocks that were freed.
    pub frees: u64,
    /// Requests that failed for lack of memory.
    pub shortages: u64,
}

/// Ends a recording, writes the rest of its file, and frees the handle, whatever it returns. `summary`, which may be null, gets the
/// counts. The pool may be gone.
///
/// Called once for each recording, by any thread. Errors: `IO`, if the file could not be written.
///
/// # Safety
///
/// `recording` is null, or a recording that was not finished yet and that no thread uses during or after the call. `summary` is null,
/// or a place for the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn binpool_recording_finish(
    recording: *mut Recording,
    summary: *mut RecordingSummary,
) -> Status {
    guarded(|| {
        // SAFETY: As the caller promises.
        let recording = unsafe { taken(recording, "recording") }?;
        // SAFETY: As the caller promises.
        let place = unsafe { Out::perhaps(summary) };
        let Recording { recording, path } = *recording;
        let found = recording.finish().map_err(|error| failed(&path, &error))?;
        if let Some(place) = place {
            place.set(RecordingSummary {
                allocations: found.allocations,
                frees: found.frees,
                shortages: found.shortages,
            });
        }
        Ok(())
    })
}

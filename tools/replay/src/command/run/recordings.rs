//! The recordings of a program and of those that it started.

use std::{
    collections::HashSet,
    error::Error,
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use binpool_trace::{Line, TraceError, shown};

use tempfile::TempPath;

use super::{frames::Symbols, named::Named, pools::Pools};
use crate::command::whole_file::{NotWritten, write_with};

/// The files of a recording that will be made.
#[derive(Debug)]
pub(super) struct Recordings {
    /// That of the first process.
    file: PathBuf,
    /// The names of what was in its folder before.
    before: HashSet<OsString>,
    /// The one that was there before.
    older: Option<Older>,
}

/// An older recording, under another name until the program has started. It has its own again if this is dropped.
#[derive(Debug)]
struct Older {
    file: PathBuf,
    aside: Option<TempPath>,
}

/// The recording of a process.
#[derive(Debug)]
pub(super) struct Recorded {
    pub(super) path: PathBuf,
    /// The name of the program's file.
    pub(super) program: String,
    /// The number of the process.
    pub(super) process: u32,
    pub(super) allocations: u64,
    /// Set if the process has not ended: its recording is as it writes it.
    pub(super) goes_on: bool,
}

impl Recordings {
    /// Makes room for the recording `file`.
    pub(super) fn at(file: &Path) -> Result<Self, NotWritten> {
        let not_written = |source| NotWritten {
            path: file.to_owned(),
            source,
        };
        let older = make_room(file).map_err(not_written)?;
        let names = names_beside(file).map_err(not_written)?;
        Ok(Self {
            file: file.to_owned(),
            before: names.into_iter().collect(),
            older,
        })
    }

    /// Removes the older recording: the program has started.
    pub(super) fn replace_older(mut self) -> Self {
        if let Some(mut older) = self.older.take() {
            older.aside = None;
        }
        self
    }

    /// Returns the files that were made since, that of the first process first.
    pub(super) fn made(&self) -> io::Result<Vec<PathBuf>> {
        let mut names = names_beside(&self.file)?;
        names.retain(|name| !self.before.contains(name));
        names.sort();
        let first = self.file.file_name().map(OsStr::to_owned);
        let others = names.iter().filter(|name| is_beside(&self.file, name));
        let first = first.as_ref().filter(|first| names.contains(first));
        let all = first.into_iter().chain(others);
        Ok(all.map(|name| self.file.with_file_name(name)).collect())
    }
}

impl Older {
    fn put_aside(file: &Path) -> io::Result<Self> {
        let mut aside = tempfile::Builder::new();
        let aside = aside.prefix(".binpool-").tempfile_in(folder_of(file))?;
        let aside = aside.into_temp_path();
        fs::rename(file, &aside)?;
        Ok(Self {
            file: file.to_owned(),
            aside: Some(aside),
        })
    }
}

impl Drop for Older {
    fn drop(&mut self) {
        if let Some(aside) = self.aside.take() {
            let _ = aside.persist(&self.file);
        }
    }
}

/// Puts an older recording aside, and sees whether a new one can be made.
fn make_room(file: &Path) -> io::Result<Option<Older>> {
    let older = match fs::symlink_metadata(file) {
        Ok(old) if old.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
        Ok(old) if !old.is_file() && !old.is_symlink() => {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a recording is written through memory that is mapped to its file, so it must be a regular file",
            ));
        }
        Ok(_) => Some(Older::put_aside(file)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    File::create_new(file)?;
    fs::remove_file(file)?;
    Ok(older)
}

/// Returns the folder of a file.
fn folder_of(file: &Path) -> &Path {
    let folder = file.parent().filter(|folder| *folder != Path::new(""));
    folder.unwrap_or(Path::new("."))
}

fn names_beside(file: &Path) -> io::Result<Vec<OsString>> {
    let entries = fs::read_dir(folder_of(file))?;
    entries
        .map(|entry| entry.map(|entry| entry.file_name()))
        .collect()
}

/// Returns whether a name is that of a further recording: `out.python3-1234.trace` beside `out.trace`.
fn is_beside(file: &Path, name: &OsStr) -> bool {
    let stem = file.file_stem().unwrap_or_default().as_encoded_bytes();
    let name_of_one = name.as_encoded_bytes().strip_prefix(stem);
    let rest = name_of_one.and_then(|rest| rest.strip_prefix(b"."));
    let rest = match file.extension() {
        Some(extension) => rest
            .and_then(|rest| rest.strip_suffix(extension.as_encoded_bytes()))
            .and_then(|rest| rest.strip_suffix(b".")),
        None => rest,
    };
    rest.is_some_and(|rest| rest.contains(&b'-'))
}

impl Recorded {
    /// Finishes a recording: names its native functions, and cuts off what the end of its process left. `None` for a file that is not a recording.
    pub(super) fn finish(
        path: &Path,
        symbols: &mut Symbols,
        pools: Option<&Pools>,
    ) -> Result<Option<Self>, Box<dyn Error>> {
        let not_read = |error| TraceError::from(error).in_file(shown(path.display()));
        let mut recorded = Self {
            path: path.to_owned(),
            program: String::new(),
            process: 0,
            allocations: 0,
            goes_on: false,
        };
        let whole = whole_lines(path).map_err(not_read)?;
        let mut lines = BufReader::new(whole);
        let mut header = Vec::new();
        while lines.fill_buf().map_err(not_read)?.first() == Some(&b'h') {
            lines.read_until(b'\n', &mut header).map_err(not_read)?;
        }
        for line in header.split(|byte| *byte == b'\n') {
            if let Ok(Some(Line::Header { key, value })) =
                Line::read(&String::from_utf8_lossy(line))
            {
                match key {
                    "program" => recorded.program = shown(value),
                    "process" => recorded.process = value.parse().unwrap_or(0),
                    _ => {}
                }
            }
        }
        if !header.starts_with(b"h version ") {
            return Ok(None);
        }
        recorded.goes_on = writes(recorded.process, path);
        let allocations = &mut recorded.allocations;
        if recorded.goes_on {
            *allocations = Named::new(symbols).copy(lines, &mut io::sink())?;
        } else {
            if let Some(pools) = pools {
                pools.push_header(&recorded.program, recorded.process, &mut header);
            }
            write_with(path, |file| {
                file.write_all(&header)?;
                *allocations = Named::new(symbols).copy(lines, file)?;
                Ok(())
            })?;
        }
        Ok(Some(recorded))
    }
}

/// Returns whether a process has not ended, and writes a recording, which is mapped into its memory. The number alone may be that of another
/// process: numbers are used again, and those of a container are its own.
fn writes(process: u32, recording: &Path) -> bool {
    let Ok(maps) = fs::read(format!("/proc/{process}/maps")) else {
        return false;
    };
    let Ok(recording) = fs::canonicalize(recording) else {
        return false;
    };
    // The list has a path at the end of a line, after a space, and a line break in it as this.
    let recording = recording.as_os_str().to_string_lossy();
    let recording = format!(" {}", recording.replace('\n', "\\012"));
    String::from_utf8_lossy(&maps)
        .lines()
        .any(|line| line.ends_with(&recording))
}

/// Opens a file up to the end of its last whole line: NUL bytes may follow, after a part of a line.
fn whole_lines(path: &Path) -> io::Result<impl Read> {
    const PART: usize = 1 << 16;
    let mut file = File::open(path)?;
    let mut end = file.metadata()?.len();
    let mut part = vec![0; PART];
    // Backwards, as the last line is near to the end.
    while end > 0 {
        let begin = end.saturating_sub(PART as u64);
        let length = usize::try_from(end - begin).unwrap_or(PART);
        file.seek(SeekFrom::Start(begin))?;
        file.read_exact(&mut part[..length])?;
        if let Some(last) = part[..length].iter().rposition(|byte| *byte == b'\n') {
            end = begin + last as u64 + 1;
            break;
        }
        end = begin;
    }
    file.rewind()?;
    Ok(file.take(end))
}

//! Writing whole files: after a failure, the previous file is unchanged. No command writes over what it reads.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use binpool_trace::shown;
use same_file::is_same_file;

use crate::command::output::{STANDARD_INPUT, is_standard_input};

/// The most symbolic links that one name may lead through, as on Linux.
const LINKS: usize = 40;

/// A file could not be written.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be written", shown(path.display()))]
pub(crate) struct NotWritten {
    pub(crate) path: PathBuf,
    pub(crate) source: io::Error,
}

/// The output of a command is one of its inputs, under this or another name.
#[derive(Debug, thiserror::Error)]
#[error(
    "the output {} is the input {}, which would be lost: write to another file",
    shown(output.display()),
    shown(input.display())
)]
pub(crate) struct WouldBeLost {
    output: PathBuf,
    input: PathBuf,
}

/// Refuses to write to a file that the command reads, whatever names it has. To be called before anything is written.
pub(crate) fn keep_inputs<'p>(
    output: &Path,
    inputs: impl IntoIterator<Item = &'p Path>,
) -> Result<(), WouldBeLost> {
    for input in inputs {
        let (file, name) = if is_standard_input(input) {
            (Path::new("/dev/stdin"), Path::new(STANDARD_INPUT))
        } else {
            (input, input)
        };
        // A terminal or a pipe has no contents to lose, and a pipe may be opened only once.
        let are_files = output.is_file() && file.is_file();
        if are_files && is_same_file(output, file).unwrap_or(false) {
            return Err(WouldBeLost {
                output: output.to_owned(),
                input: name.to_owned(),
            });
        }
    }
    Ok(())
}

/// Writes `contents` to a file.
pub(crate) fn write_file(path: &Path, contents: impl AsRef<[u8]>) -> Result<(), NotWritten> {
    write_with(path, |file| file.write_all(contents.as_ref()))
}

/// Writes to a file with `write`. The file replaces the previous one only when it is complete, also behind symbolic links.
/// A device, a pipe or an open file, such as `/dev/stdout`, is written directly.
pub(crate) fn write_with(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), NotWritten> {
    let written = replaceable(path).and_then(|target| match target {
        Some(target) => replace(&target, write),
        None => write_all(File::create(path)?, write).map(drop),
    });
    written.map_err(|source| NotWritten {
        path: path.to_owned(),
        source,
    })
}

/// Returns the file that `path` names behind all symbolic links, whether it exists or not; `None` if it cannot be replaced.
fn replaceable(path: &Path) -> io::Result<Option<PathBuf>> {
    if fs::metadata(path).is_ok_and(|file| !file.is_file()) {
        return Ok(None);
    }
    let mut path = path.to_owned();
    for _ in 0..LINKS {
        let folder = match path.parent() {
            Some(folder) if folder != Path::new("") => fs::canonicalize(folder)?,
            _ => fs::canonicalize(".")?,
        };
        // These folders list the files that this process has open. Their targets must be written directly, whatever their names.
        let is_open = folder.starts_with("/proc") || folder.starts_with("/dev/fd");
        let Some(name) = path.file_name().filter(|_| !is_open) else {
            return Ok(None);
        };
        let target = folder.join(name);
        match fs::read_link(&target) {
            Ok(link) => path = folder.join(link),
            Err(_) => return Ok(Some(target)),
        }
    }
    Ok(None)
}

/// Writes a temporary file beside `target`, and then renames it. It is removed on failure.
fn replace(target: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let before = match OpenOptions::new().write(true).open(target) {
        Ok(file) => Some(file.metadata()?.permissions()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let mut beside = tempfile::Builder::new();
    beside.prefix(".binpool-");
    // The mode of any new file: the system applies the umask.
    #[cfg(unix)]
    beside.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let beside = beside.tempfile_in(target.parent().unwrap_or(Path::new(".")))?;
    if let Some(permissions) = before {
        beside.as_file().set_permissions(permissions)?;
    }
    let beside = write_all(beside, write)?;
    // Some file systems report only here that they are full.
    beside.as_file().sync_all()?;
    beside.persist(target)?;
    Ok(())
}

fn write_all<F: Write>(
    file: F,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<F> {
    let mut file = BufWriter::new(file);
    write(&mut file)?;
    Ok(file.into_inner()?)
}

//! Files that cannot be written.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// A file could not be written.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be written", path.display())]
pub(crate) struct NotWritten {
    pub(crate) path: PathBuf,
    pub(crate) source: io::Error,
}

/// Writes a file, or says which one could not be.
pub(crate) fn write_file(path: &Path, contents: impl AsRef<[u8]>) -> Result<(), NotWritten> {
    fs::write(path, contents).map_err(|source| NotWritten {
        path: path.to_owned(),
        source,
    })
}

//! Pictures that cannot be written.

use std::{io, path::PathBuf};

/// The picture could not be written.
#[derive(Debug, thiserror::Error)]
#[error("the plot cannot be written to {}", path.display())]
pub(crate) struct NotWritten {
    pub(crate) path: PathBuf,
    pub(crate) source: io::Error,
}

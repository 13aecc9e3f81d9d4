//! Pictures and pages that cannot be written.

use std::{io, path::PathBuf};

/// The picture or the page could not be written.
#[derive(Debug, thiserror::Error)]
#[error("the picture cannot be written to {}", path.display())]
pub(crate) struct NotWritten {
    pub(crate) path: PathBuf,
    pub(crate) source: io::Error,
}

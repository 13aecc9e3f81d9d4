//! What commands and maps do with one memory object.

/// What commands and maps do with one memory object.
#[derive(Debug, Default)]
pub(crate) struct AccessLog {}

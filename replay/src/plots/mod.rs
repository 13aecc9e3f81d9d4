//! Pictures, for pages and for terminals.

mod axis;
mod labels;
pub(crate) mod picture;
pub(crate) mod scaling;
pub(crate) mod tuning;
pub(crate) mod tuning_text;

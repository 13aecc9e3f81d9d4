//! Plots as SVG.

pub(crate) mod axis;
mod labels;
pub(crate) mod svg;
pub(crate) mod timeline_svg;

//! Plots, as SVG and as text.

pub(crate) mod axis;
mod labels;
pub(crate) mod svg;
pub(crate) mod tuning_svg;
pub(crate) mod tuning_text;

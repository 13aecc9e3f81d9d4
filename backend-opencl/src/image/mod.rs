//! Images: their formats, their creation, and the commands on them.
//!
//! An image is a memory object with a [format](ImageFormat) and a [shape](ImageShape). The device decides how its pixels
//! lie in memory, so the host reaches them only by transfers and maps, and a part of an image is a [region](ImageRegion) in
//! pixels and not a range of bytes.
//!
//! An image over a buffer shares the buffer's log. Any other image has a log of its own, in which one byte stands for the
//! whole image: commands that read it run at the same time, and a command that writes it runs alone.

#[cfg(feature = "ndarray")]
mod array;
mod bounds;
mod cl_image;
mod color;
mod copy;
mod create;
mod fill;
mod format;
mod host_image;
mod layout;
mod limits;
mod problem;
mod raw;
mod region;
mod sampler;
mod shape;
#[cfg(test)]
mod tests;
mod transfer;
mod view;

#[cfg(feature = "ndarray")]
pub use array::ChannelValue;
pub use cl_image::ClImage;
pub use color::ImageColor;
pub use format::{ChannelOrder, ChannelType, ImageFormat};
pub use layout::HostPitches;
pub use problem::ImageProblem;
pub use region::ImageRegion;
pub use sampler::{Addressing, ClSampler, Filter, SamplerProperties};
pub use shape::{ImageKind, ImageShape};
pub use transfer::ImagePart;

//! Images: what they are made of, how they are made, and the commands on them.
//!
//! An image is a memory object with a [format](ImageFormat) and a [shape](ImageShape). The device lays its pixels out
//! as it likes, so that the host reaches them by transfers only, and a part of one is a [region](ImageRegion) in
//! pixels and not a range of bytes.
//!
//! What is not made over a buffer has a log of its own, of one "byte" that stands for all of the image: commands that
//! read it go side by side, and one that writes it goes alone. What is made over a buffer shares the buffer's log.

#[cfg(feature = "ndarray")]
mod array;
mod cl_image;
mod color;
mod copy;
mod create;
mod error;
mod fill;
mod format;
mod kind;
mod layout;
mod limits;
mod raw;
mod region;
mod shape;
mod transfer;

#[cfg(feature = "ndarray")]
pub use array::ChannelValue;
pub use cl_image::ClImage;
pub use color::ImageColor;
pub use error::{Axis, ImageError};
pub use format::{ChannelOrder, ChannelType, ImageFormat};
pub use kind::ImageKind;
pub(crate) use layout::HostLayout;
pub use layout::HostPitches;
pub use limits::ImageLimits;
pub use region::ImageRegion;
pub use shape::ImageShape;

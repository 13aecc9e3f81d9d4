//! The layout of pixels in the host's memory.

use binpool_allocators::InvalidRequest;

use super::{
    problem::ImageProblem,
    shape::{ImageKind, ImageShape},
};
use crate::{error::OpenClError, sys::pixels::HostLayout};

/// The distances of rows and of slices in the host's memory, in bytes (`pitches` of `PyOpenCL`).
///
/// Without a pitch there are no gaps. The host's bytes are whole rows and whole slices: the last row has its
/// padding, too.
///
/// The layers of a 1D array are rows here; slices are the planes of a 3D image and of a 2D array.
///
/// ```
/// use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
/// # use binpool_opencl::ImagePart;
/// use binpool_opencl::{
///     ChannelOrder, ChannelType, HostPitches, ImageFormat, ImageRegion, ImageShape, OpenClBackend,
/// };
///
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// // Rows of three pixels, which another library has put 8 bytes apart.
/// let rows = [[1_u8, 2, 3, 0, 0, 0, 0, 0], [4, 5, 6, 0, 0, 0, 0, 0]];
/// let format = ImageFormat::new(ChannelOrder::R, ChannelType::UnsignedInt8);
/// let shape = ImageShape::d2(3, 2);
/// let flags = MemoryFlags::empty();
/// let pitches = HostPitches::rows(8);
/// let image = backend.create_image_with_data(flags, format, shape, &rows, pitches)?;
///
/// let mut pixels = [0_u8; 6];
/// let all = ImageRegion::all(shape);
/// backend.read_part(&queue, ImagePart::new(&image, all), &mut pixels)?;
/// assert_eq!(pixels, [1, 2, 3, 4, 5, 6]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HostPitches {
    /// From the start of a row to the start of the next one, in bytes.
    pub row: Option<usize>,
    /// From the start of a slice to the start of the next one, in bytes.
    pub slice: Option<usize>,
}

impl HostPitches {
    /// No gaps between the pixels.
    pub const TIGHT: Self = Self {
        row: None,
        slice: None,
    };

    /// Rows that start `bytes` bytes apart.
    pub const fn rows(bytes: usize) -> Self {
        Self {
            row: Some(bytes),
            slice: None,
        }
    }

    /// Rows that start `row` bytes apart, in slices that start `slice` bytes apart.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::ImagePart;
    /// # use binpool_opencl::{
    /// #     ChannelOrder, ChannelType, HostPitches, ImageFormat, ImageRegion, ImageShape, OpenClBackend,
    /// # };
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let format = ImageFormat::new(ChannelOrder::R, ChannelType::UnsignedInt8);
    /// # let shape = ImageShape::d3(3, 1, 2);
    /// # let volume = backend.create_image_with_data(
    /// #     MemoryFlags::empty(),
    /// #     format,
    /// #     shape,
    /// #     &[1_u8, 2, 3, 4, 5, 6],
    /// #     HostPitches::TIGHT,
    /// # )?;
    /// // A volume of two slices of one row of three pixels: 1, 2, 3 and 4, 5, 6. The memory has room for two rows in each slice.
    /// let pitches = HostPitches::rows_and_slices(4, 8);
    /// let mut bytes = [0_u8; 16];
    /// let all = ImageRegion::all(shape);
    /// backend.read_part(&queue, ImagePart::new(&volume, all).with_pitches(pitches), &mut bytes)?;
    /// assert_eq!(bytes, [1, 2, 3, 0, 0, 0, 0, 0, 4, 5, 6, 0, 0, 0, 0, 0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn rows_and_slices(row: usize, slice: usize) -> Self {
        Self {
            row: Some(row),
            slice: Some(slice),
        }
    }

    /// Returns the layout of `shape`, which may be that of a region, with pixels of `item` bytes.
    pub(crate) fn layout(self, shape: ImageShape, item: usize) -> Result<HostLayout, ImageProblem> {
        let [width, height, depth] = shape.extent();
        let overflow = ImageProblem::Overflow { shape, item };
        let tight_row = width.checked_mul(item).ok_or(overflow.clone())?;
        let row = self.row.unwrap_or(tight_row);
        check_pitch("row", row, tight_row, item)?;
        let tight_slice = row.checked_mul(height).ok_or(overflow.clone())?;
        let slice = self.slice.unwrap_or(tight_slice);
        check_pitch("slice", slice, tight_slice, row)?;
        let has_slices = matches!(shape.kind(), ImageKind::D2Array | ImageKind::D3);
        if !has_slices && slice != tight_slice {
            return Err(ImageProblem::Other(format!(
                "a slice pitch of {slice} bytes for a {}, which has no slices: leave it out",
                shape.kind()
            )));
        }
        let pitches = match shape.kind() {
            ImageKind::D1 | ImageKind::D1Buffer => (0, 0),
            ImageKind::D2 => (row, 0),
            // The specification calls the distance of layers the slice pitch, but some runtimes read it from the row pitch:
            // both are set.
            ImageKind::D1Array => (row, row),
            ImageKind::D2Array | ImageKind::D3 => (row, slice),
        };
        Ok(HostLayout {
            pitches,
            bytes: slice.checked_mul(depth).ok_or(overflow)?,
        })
    }
}

pub(super) fn check_pitch(
    of: &'static str,
    pitch: usize,
    least: usize,
    multiple_of: usize,
) -> Result<(), ImageProblem> {
    if pitch < least || !pitch.is_multiple_of(multiple_of) {
        return Err(ImageProblem::Pitch {
            of,
            pitch,
            least,
            multiple_of,
        });
    }
    Ok(())
}

impl HostLayout {
    /// Checks that the host has that many bytes.
    pub(crate) fn check_length(&self, bytes: usize) -> Result<(), OpenClError> {
        if bytes == self.bytes {
            return Ok(());
        }
        let (expected, actual) = (self.bytes, bytes);
        Err(InvalidRequest::LengthMismatch { expected, actual }.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLANE: ImageShape = ImageShape::d2(5, 3);
    const VOLUME: ImageShape = ImageShape::d3(5, 3, 2);

    fn bytes(pitches: HostPitches, shape: ImageShape) -> Result<usize, ImageProblem> {
        pitches.layout(shape, 4).map(|layout| layout.bytes)
    }

    #[test]
    fn padding_belongs_to_rows_and_slices() {
        assert_eq!(bytes(HostPitches::TIGHT, VOLUME).unwrap(), 5 * 4 * 3 * 2);
        assert_eq!(bytes(HostPitches::rows(24), VOLUME).unwrap(), 24 * 3 * 2);
        let both = HostPitches::rows_and_slices(24, 96);
        assert_eq!(bytes(both, VOLUME).unwrap(), 96 * 2);
    }

    #[test]
    fn pitches_hold_what_lies_between_them() {
        for (pitches, of) in [
            (HostPitches::rows(16), "row"),
            (HostPitches::rows(22), "row"),
            (HostPitches::rows_and_slices(24, 48), "slice"),
            (HostPitches::rows_and_slices(24, 80), "slice"),
        ] {
            let refused = bytes(pitches, VOLUME).unwrap_err();
            assert!(
                refused.to_string().starts_with(&format!("a {of} pitch of")),
                "{pitches:?}: {refused}"
            );
        }
    }

    #[test]
    fn a_plane_has_no_slices() {
        let refused = bytes(HostPitches::rows_and_slices(20, 80), PLANE).unwrap_err();
        let problem = "a slice pitch of 80 bytes for a 2D image";
        assert!(refused.to_string().starts_with(problem), "{refused}");
    }

    #[test]
    fn sizes_that_no_number_holds_are_refused() {
        let row = usize::MAX / 8 * 4;
        for (pitches, shape) in [
            (HostPitches::TIGHT, ImageShape::d1(usize::MAX / 2)),
            (HostPitches::rows(row), PLANE),
            (HostPitches::rows_and_slices(20, row / 20 * 20), VOLUME),
        ] {
            let layout = pitches.layout(shape, 4);
            let is_refused =
                matches!(&layout, Err(error) if error.to_string().contains("overflows"));
            assert_eq!(is_refused, shape != VOLUME, "{layout:?}");
        }
    }
}

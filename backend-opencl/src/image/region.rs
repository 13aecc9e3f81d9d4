//! A box of pixels in an image.

use std::fmt;

use super::shape::ImageShape;
use crate::sys::pixels::PixelBox;

/// A box of pixels inside an image: where it starts, and how large it is.
///
/// The coordinates are x, y and z; the layers of a 1D array are its y, and those of a 2D array its z (OpenCL 3.0,
/// section 5.3.3).
///
/// ```
/// use binpool_opencl::{ImageProblem, ImageRegion, ImageShape};
///
/// let picture = ImageShape::d2(100, 60);
/// assert_eq!(ImageRegion::all(picture).pixels(), Some(6000));
///
/// // Two tiles side by side.
/// let tile = ImageRegion::new([0, 0], [50, 60]);
/// let next = tile.moved_to([50, 0]);
/// assert!(!next.overlaps(tile));
/// next.check_within(picture)?;
///
/// let region = tile.moved_to([51, 0]);
/// let beyond = ImageProblem::OutOfBounds { region, shape: picture };
/// assert_eq!(region.check_within(picture), Err(beyond));
/// # Ok::<(), ImageProblem>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ImageRegion {
    /// The first pixel.
    pub origin: [usize; 3],
    /// The number of pixels along each coordinate.
    pub size: [usize; 3],
}

impl ImageRegion {
    /// Returns the box of `size` pixels from `origin` on. Coordinates that are left out start at 0 and are 1 pixel large.
    ///
    /// ```
    /// use binpool_opencl::ImageRegion;
    ///
    /// let region = ImageRegion::new([2, 1], [4, 4]);
    /// assert_eq!(region, ImageRegion::new([2, 1, 0], [4, 4, 1]));
    /// ```
    ///
    /// Origin and size have the same coordinates, and at most three:
    ///
    /// ```compile_fail,E0308
    /// binpool_opencl::ImageRegion::new([2, 1], [4, 4, 1]);
    /// ```
    ///
    /// ```compile_fail,E0080
    /// binpool_opencl::ImageRegion::new([0; 4], [1; 4]);
    /// ```
    pub const fn new<const N: usize>(origin: [usize; N], size: [usize; N]) -> Self {
        Self {
            origin: three(origin, 0),
            size: three(size, 1),
        }
    }

    /// Returns the box of all pixels of an image of that shape.
    pub const fn all(shape: ImageShape) -> Self {
        Self {
            origin: [0; 3],
            size: shape.extent(),
        }
    }

    /// Returns a box of the same size at another origin. Coordinates that are left out are 0.
    #[must_use]
    pub const fn moved_to<const N: usize>(self, origin: [usize; N]) -> Self {
        Self {
            origin: three(origin, 0),
            size: self.size,
        }
    }

    /// Returns whether the two boxes of one image share a pixel.
    pub fn overlaps(self, other: Self) -> bool {
        (0..3).all(|at| {
            let end = |region: Self| region.origin[at].saturating_add(region.size[at]);
            self.origin[at] < end(other) && other.origin[at] < end(self)
        }) && !self.size.contains(&0)
            && !other.size.contains(&0)
    }

    /// Returns the number of pixels; `None` if no `usize` holds it.
    pub fn pixels(self) -> Option<usize> {
        let [x, y, z] = self.size;
        x.checked_mul(y)?.checked_mul(z)
    }
}

/// Returns one to three coordinates as three.
const fn three<const N: usize>(given: [usize; N], left_out: usize) -> [usize; 3] {
    const { assert!(N > 0 && N <= 3, "images have one to three coordinates") };
    let mut all = [left_out; 3];
    let mut at = 0;
    while at < N {
        all[at] = given[at];
        at += 1;
    }
    all
}

impl From<ImageRegion> for PixelBox {
    fn from(region: ImageRegion) -> Self {
        let ImageRegion { origin, size } = region;
        Self { origin, size }
    }
}

impl fmt::Display for ImageRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [width, height, depth] = self.size;
        let [x, y, z] = self.origin;
        write!(f, "{width}x{height}x{depth} pixels at ({x}, {y}, {z})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_overlap_where_they_share_a_pixel() {
        let one = ImageRegion::new([2, 2, 2], [2, 2, 2]);
        for axis in 0..3 {
            for at in 0..6 {
                let mut origin = [2; 3];
                origin[axis] = at;
                let other = one.moved_to(origin);
                let shares = (1..=3).contains(&at);
                assert_eq!(one.overlaps(other), shares, "{other}");
                assert_eq!(other.overlaps(one), shares, "{other}");
            }
        }
        let empty = ImageRegion::new([3, 3, 3], [1, 0, 1]);
        assert!(!one.overlaps(empty) && !empty.overlaps(one));
    }

    #[test]
    fn a_box_outside_an_image_is_named_with_the_image() {
        let outside = ImageRegion::new([3, 1], [2, 2]).check_within(ImageShape::d2(4, 3));
        let problem = "2x2x1 pixels at (3, 1, 0) do not lie inside a 2D image of 4x3";
        assert_eq!(outside.unwrap_err().to_string(), problem);
    }
}

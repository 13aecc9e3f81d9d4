//! Whether a region lies inside an image.

use super::{problem::ImageProblem, region::ImageRegion, shape::ImageShape};

impl ImageRegion {
    /// Checks that there is a pixel in it, and that all of it lies inside an image of that shape.
    ///
    /// # Errors
    ///
    /// [`EmptyRegion`](ImageProblem::EmptyRegion); [`OutOfBounds`](ImageProblem::OutOfBounds), also if its end overflows.
    pub fn check_within(self, shape: ImageShape) -> Result<(), ImageProblem> {
        if self.size.contains(&0) {
            return Err(ImageProblem::EmptyRegion { region: self });
        }
        let ends = self.origin.into_iter().zip(self.size);
        let is_within = ends.zip(shape.extent()).all(|((origin, size), extent)| {
            origin.checked_add(size).is_some_and(|end| end <= extent)
        });
        if is_within {
            return Ok(());
        }
        Err(ImageProblem::OutOfBounds {
            region: self,
            shape,
        })
    }
}

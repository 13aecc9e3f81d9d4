//! What a device's limits say of a shape.

use super::{
    problem::ImageProblem,
    shape::{ImageKind, ImageShape},
};
use crate::device::image_limits::ImageLimits;

impl ImageLimits {
    /// Checks that the device can hold an image of that shape.
    ///
    /// # Errors
    ///
    /// [`NoPixels`](ImageProblem::NoPixels), or [`TooLarge`](ImageProblem::TooLarge).
    pub fn check(&self, shape: ImageShape) -> Result<(), ImageProblem> {
        if shape.extent().contains(&0) {
            return Err(ImageProblem::NoPixels { shape });
        }
        let kind = shape.kind();
        let largest = match kind {
            ImageKind::D1 => [self.plane_width, 1, 1],
            ImageKind::D1Buffer => [self.buffer_width, 1, 1],
            ImageKind::D1Array => [self.plane_width, self.layers, 1],
            ImageKind::D2 => [self.plane_width, self.plane_height, 1],
            ImageKind::D2Array => [self.plane_width, self.plane_height, self.layers],
            ImageKind::D3 => [self.volume_width, self.volume_height, self.volume_depth],
        };
        let sizes = match kind {
            ImageKind::D1Array => ["width", "number of layers", "depth"],
            ImageKind::D2Array => ["width", "height", "number of layers"],
            _ => ["width", "height", "depth"],
        };
        let all = sizes
            .into_iter()
            .zip(shape.extent().into_iter().zip(largest));
        match all
            .into_iter()
            .find(|(_, (asked, largest))| asked > largest)
        {
            None => Ok(()),
            Some((size, (requested, largest))) => Err(ImageProblem::TooLarge {
                shape,
                size,
                requested,
                largest,
            }),
        }
    }
}

//! What a device's limits say of a shape.

use binpool_allocators::Error;

use super::shape::{ImageKind, ImageShape};
use crate::{device::image_limits::ImageLimits, error::OpenClError};

impl ImageLimits {
    /// Checks that the device can hold an image of that shape.
    ///
    /// # Errors
    ///
    /// [`Image`](OpenClError::Image) for a shape without pixels, and [`Unsupported`](Error::Unsupported) for one that is larger
    /// than the device's largest.
    pub fn check(&self, shape: ImageShape) -> Result<(), OpenClError> {
        if shape.extent().contains(&0) {
            let problem = format!("a {shape} has no pixels: each size has to be at least 1");
            return Err(OpenClError::Image(problem));
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
            Some((size, (asked, largest))) => Err(Error::unsupported(format!(
                "a {shape}: its {size} is {asked}, and this device's largest is {largest}"
            ))
            .into()),
        }
    }
}

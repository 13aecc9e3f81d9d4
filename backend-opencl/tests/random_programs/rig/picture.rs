//! Images that a program has in hand.

use binpool_conformance::Random;
use binpool_opencl::{ClImage, ImageRegion, ImageShape};

use crate::model::{
    cells::Cell,
    roots::{Place, Roots},
};

/// An image, and where its pixels lie in the model.
#[derive(Debug)]
pub(crate) struct Picture {
    pub(crate) name: String,
    pub(crate) image: ClImage,
    pub(crate) place: Place,
    pub(crate) row_pitch: usize,
    pub(crate) slice_pitch: usize,
}

impl Picture {
    pub(crate) fn item(&self) -> usize {
        self.image.item_bytes()
    }

    pub(crate) fn shape(&self) -> ImageShape {
        self.image.shape()
    }

    /// A box of pixels in it.
    pub(crate) fn any_region(&self, random: &mut Random) -> ImageRegion {
        let all = self.shape().extent();
        let mut region = ImageRegion::all(self.shape());
        if random.below(4) == 0 {
            return region;
        }
        for (axis, end) in all.into_iter().enumerate() {
            region.origin[axis] = random.below(end);
            region.size[axis] = 1 + random.below(end - region.origin[axis]);
        }
        region
    }

    /// Where the rows of the box start in the place, in the order in which the host has them.
    pub(crate) fn rows(&self, region: ImageRegion) -> Vec<usize> {
        let [x, y, z] = region.origin;
        let mut rows = Vec::new();
        for slice in z..z + region.size[2] {
            for row in y..y + region.size[1] {
                rows.push(slice * self.slice_pitch + row * self.row_pitch + x * self.item());
            }
        }
        rows
    }

    pub(crate) fn row_bytes(&self, region: ImageRegion) -> usize {
        region.size[0] * self.item()
    }

    pub(crate) fn bytes(&self, region: ImageRegion) -> usize {
        self.row_bytes(region) * region.size[1] * region.size[2]
    }

    /// The pixels of the box without gaps.
    pub(crate) fn read(&self, roots: &Roots, region: ImageRegion) -> Vec<Cell> {
        let bytes = self.row_bytes(region);
        let rows = self.rows(region).into_iter();
        rows.flat_map(|row| roots.read(self.place, row, bytes))
            .collect()
    }

    pub(crate) fn write(&self, roots: &mut Roots, region: ImageRegion, cells: &[Cell]) {
        let bytes = self.row_bytes(region);
        for (row, cells) in self.rows(region).into_iter().zip(cells.chunks(bytes)) {
            roots.write(self.place, row, cells);
        }
    }
}

//! Maps of images to the host's memory, row by row.

use std::fmt;

use binpool_allocators::{InvalidRequest, On, Result};
use bytemuck::{AnyBitPattern, NoUninit};

use super::{
    guard::{HostMap, PendingMap, Reads, Writes, check_elements},
    mapping::{MapMode, Mapped, Mapping},
};
use crate::{
    backend::OpenClBackend,
    error::OpenClError,
    event::ClOn,
    image::{ClImage, ImageRegion},
};

/// Pixels of an image that the host reads: rows of `T`, until it is dropped. Commands that write the image are refused
/// meanwhile; see [`OpenClBackend::map_image`](crate::OpenClBackend::map_image).
///
/// Dropping it enqueues the end of the map, as [`unmap`](Self::unmap) does, and logs the error.
///
/// ```
/// # use binpool_allocators::{Backend, MemoryFlags, Queue, QueueOrder};
/// # use binpool_opencl::{ChannelOrder, ChannelType, HostPitches, ImageFormat};
/// # use binpool_opencl::{ImageRegion, ImageShape, OpenClBackend};
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let other_queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let format = ImageFormat::new(ChannelOrder::Rgba, ChannelType::UnormInt8);
/// # let tight = HostPitches::default();
/// let shape = ImageShape::d2(3, 2);
/// let picture = [[0_u8; 4], [1; 4], [2; 4], [3; 4], [4; 4], [5; 4]];
/// let image = backend.create_image_with_data(MemoryFlags::empty(), format, shape, &picture, tight)?;
///
/// let map = backend.map_image::<[u8; 4]>(&queue, &image, ImageRegion::all(shape))?;
/// assert_eq!(map.row(1, 0), Some(&[[3; 4], [4; 4], [5; 4]][..]));
/// assert_eq!(map.row(2, 0), None);
/// assert!(map.rows().eq(picture.chunks(3)));
/// // The rows need not follow each other.
/// assert!(map.row_pitch() >= 12 && map.slice_pitch() == 0);
/// # #[cfg(feature = "ndarray")]
/// assert_eq!(map.shaped().map(|pixels| pixels[[0, 1, 2]]), Some([5; 4])); // Slice, row, pixel.
/// let ended = map.unmap()?;
///
/// let corner = ImageRegion::new([1, 1], [2, 1]);
/// let map = backend.map_image::<[u8; 4]>(queue.after(&[ended]), &image, corner)?;
/// assert_eq!(map.row(0, 0), Some(&[[4; 4], [5; 4]][..]));
/// map.unmap_on(&other_queue)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type ImageMap<'m, T> = HostMap<'m, T, Reads, Rows>;

/// Pixels of an image that the host reads and writes: rows of `T`, until it is dropped. All commands on the image are
/// refused meanwhile; see [`OpenClBackend::map_image_mut`](crate::OpenClBackend::map_image_mut).
///
/// Dropping it enqueues the end of the map, as [`unmap`](Self::unmap) does, and logs the error.
///
/// ```
/// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
/// # use binpool_opencl::{ChannelOrder, ChannelType, ImageFormat};
/// # use binpool_opencl::{ImageRegion, ImageShape, OpenClBackend};
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let other_queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let format = ImageFormat::new(ChannelOrder::Rgba, ChannelType::Float);
/// // A volume of 2 slices, each of 3 rows of 4 pixels.
/// let shape = ImageShape::d3(4, 3, 2);
/// let image = backend.create_image(MemoryFlags::empty(), format, shape)?;
/// let all = ImageRegion::all(shape);
/// let mut map = backend.map_image_mut::<[f32; 4]>(&queue, &image, all)?;
/// assert!(map.row_pitch() >= 64 && map.slice_pitch() >= 3 * map.row_pitch());
/// for slice in 0..2 {
///     for row in 0..3 {
///         map.row_mut(row, slice).ok_or("within the region")?.fill([slice as f32; 4]);
///     }
/// }
/// assert_eq!(map.rows().count(), 6);
/// map.unmap_on(&other_queue)?;
///
/// let map = backend.map_image_mut::<f32>(&queue, &image, all)?; // By channel: 16 in a row.
/// assert_eq!(map.row(2, 1), Some(&[1.0; 16][..]));
/// # #[cfg(feature = "ndarray")]
/// assert_eq!(map.shaped().map(|channels| channels.dim()), Some((2, 3, 16)));
/// map.unmap()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type ImageMapMut<'m, T> = HostMap<'m, T, Writes, Rows>;

/// The positions of the rows of a mapped region, in bytes.
///
/// ```
/// use binpool_opencl::ImageMapMut;
///
/// fn clear(map: &mut ImageMapMut<u8>, row: usize) -> Option<()> {
///     Some(map.row_mut(row, 0)?.fill(0))
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// The bytes of a row.
    bytes: usize,
    row_pitch: usize,
    slice_pitch: usize,
    count: usize,
    slices: usize,
}

impl Rows {
    fn of<T: AnyBitPattern>(mapping: &Mapping<'_>) -> Result<Self> {
        let view = mapping.view();
        check_elements::<T>(view.as_slice())?;
        let ([width, rows, slices], item) = mapping.pixels();
        let [row_pitch, slice_pitch] = view.pitches();
        let (bytes, element) = (width.saturating_mul(item), size_of::<T>());
        // The runtime chooses the pitches, so rows may start where no `T` can: that is refused, too.
        let whole = |bytes: usize| element > 0 && bytes.is_multiple_of(element);
        let apart = |pitch: usize, count| count == 1 || pitch.is_multiple_of(align_of::<T>());
        if !whole(bytes) || !apart(row_pitch, rows) || !apart(slice_pitch, slices) {
            return Err(InvalidRequest::NotWholeElements { bytes, element }.into());
        }
        Ok(Self {
            bytes,
            row_pitch,
            slice_pitch,
            count: rows,
            slices,
        })
    }

    /// Returns the bytes of a row.
    fn range(self, row: usize, slice: usize) -> Option<std::ops::Range<usize>> {
        if row >= self.count || slice >= self.slices {
            return None;
        }
        let start = slice * self.slice_pitch + row * self.row_pitch;
        Some(start..start + self.bytes)
    }
}

impl<'m, T: AnyBitPattern, A> HostMap<'m, T, A, Rows> {
    /// Returns the map of pixels that are there.
    fn of_pixels(mapping: Mapping<'m>) -> Result<Self> {
        let rows = Rows::of::<T>(&mapping)?;
        Ok(Self::new(mapping, rows))
    }
}

impl<T: AnyBitPattern, A> HostMap<'_, T, A, Rows> {
    /// Returns the elements of a row of a slice of the region, both counted from 0; `None` outside of the region.
    /// The layers of a 1D array are rows, those of a 2D array slices.
    pub fn row(&self, row: usize, slice: usize) -> Option<&[T]> {
        let range = self.layout.range(row, slice)?;
        let bytes = self.mapping.view().as_slice().get(range)?;
        bytemuck::try_cast_slice(bytes).ok()
    }

    /// Returns all rows, slice by slice.
    ///
    /// ```
    /// use binpool_opencl::ImageMap;
    ///
    /// /// Returns the pixels of all rows, and the bytes that the map has between them.
    /// fn gathered(map: &ImageMap<u32>, slices: usize) -> (Vec<u32>, usize) {
    ///     let pixels = map.rows().flatten().copied().collect();
    ///     let row = map.row(0, 0).map_or(0, size_of_val);
    ///     let padding = map.row_pitch() - row;
    ///     assert!(slices == 1 || map.slice_pitch() >= map.row_pitch());
    ///     (pixels, padding)
    /// }
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::{ChannelOrder, ChannelType, HostPitches, ImageFormat};
    /// # use binpool_opencl::{ImageRegion, ImageShape, OpenClBackend};
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let format = ImageFormat::new(ChannelOrder::R, ChannelType::UnsignedInt32);
    /// let shape = ImageShape::d2(2, 2);
    /// let pixels = [1_u32, 2, 3, 4];
    /// let image = backend.create_image_with_data(MemoryFlags::empty(), format, shape, &pixels, HostPitches::TIGHT)?;
    /// let map = backend.map_image(&queue, &image, ImageRegion::all(shape))?;
    /// assert_eq!(gathered(&map, 1).0, pixels);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn rows(&self) -> impl Iterator<Item = &[T]> {
        let slices = 0..self.layout.slices;
        slices
            .flat_map(|slice| (0..self.layout.count).map(move |row| (row, slice)))
            .filter_map(|(row, slice)| self.row(row, slice))
    }

    /// The distance between rows in the map, in bytes.
    pub fn row_pitch(&self) -> usize {
        self.layout.row_pitch
    }

    /// The distance between slices in the map, in bytes; 0 if there is only one.
    pub fn slice_pitch(&self) -> usize {
        self.layout.slice_pitch
    }

    /// Returns the elements as an array of slices, rows, and elements of a row: `PyOpenCL`'s `enqueue_map_image`.
    /// `None` if a pitch is not a whole number of elements.
    #[cfg(feature = "ndarray")]
    pub fn shaped(&self) -> Option<ndarray::ArrayView3<'_, T>> {
        let shape = self.layout.shape::<T>()?;
        let bytes = self.mapping.view().as_slice();
        let elements = bytemuck::try_cast_slice(bytes).ok()?;
        ndarray::ArrayView3::from_shape(shape, elements).ok()
    }
}

impl<T: AnyBitPattern + fmt::Debug, A> fmt::Debug for HostMap<'_, T, A, Rows> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.rows()).finish()
    }
}
#[cfg(feature = "ndarray")]
impl Rows {
    fn shape<T>(self) -> Option<ndarray::StrideShape<ndarray::Ix3>> {
        use ndarray::ShapeBuilder;
        let elements = |bytes: usize, count| {
            if count == 1 {
                return Some(0);
            }
            bytes
                .is_multiple_of(size_of::<T>())
                .then(|| bytes / size_of::<T>())
        };
        let row = elements(self.row_pitch, self.count)?;
        let slice = elements(self.slice_pitch, self.slices)?;
        let shape = (self.slices, self.count, self.bytes / size_of::<T>());
        Some(shape.strides((slice, row, 1)))
    }
}

impl<T: AnyBitPattern + NoUninit> ImageMapMut<'_, T> {
    /// Returns the elements of a row of a slice, to be written; see [`row`](Self::row).
    pub fn row_mut(&mut self, row: usize, slice: usize) -> Option<&mut [T]> {
        let range = self.layout.range(row, slice)?;
        let bytes = self.mapping.view_mut().as_mut_slice().get_mut(range)?;
        bytemuck::try_cast_slice_mut(bytes).ok()
    }
}

/// Maps of images, by OpenCL 3.0, section 5.3.4; `PyOpenCL`'s `enqueue_map_image`. The whole image counts as mapped, even
/// if the region is smaller.
///
/// # Errors
///
/// All of them: [`Image`](OpenClError::Image) for a region without pixels or beyond the image;
/// [`NotWholeElements`](InvalidRequest::NotWholeElements) if a row is not a whole number of `T`, or rows start where no `T`
/// can; [`HostAccess`](InvalidRequest::HostAccess) if the flags of the image forbid it;
/// [`Mapped`](InvalidRequest::Mapped); [`ForeignObject`](InvalidRequest::ForeignObject); and the failures of the
/// runtime.
impl OpenClBackend {
    /// Maps a region of an image to be read, and waits until it is there.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::{ChannelOrder, ChannelType, HostPitches, ImageFormat, ImageRegion, ImageShape, OpenClBackend};
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let format = ImageFormat::new(ChannelOrder::Rgba, ChannelType::UnormInt8);
    /// let shape = ImageShape::d2(2, 2);
    /// # let tight = HostPitches::default();
    /// # let image =
    /// #     backend.create_image_with_data(MemoryFlags::empty(), format, shape, &[[9_u8; 4]; 4], tight)?;
    /// let map = backend.map_image::<[u8; 4]>(&queue, &image, ImageRegion::all(shape))?;
    /// let reds: u32 = map.rows().flatten().map(|pixel| u32::from(pixel[0])).sum();
    /// assert_eq!(reds, 4 * 9);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [above](#errors).
    pub fn map_image<'q, 'm, T: AnyBitPattern>(
        &self,
        on: impl Into<ClOn<'q>>,
        image: &'m ClImage,
        region: ImageRegion,
    ) -> Result<ImageMap<'m, T>, OpenClError> {
        let pending = self.enqueue_map_image(on, image, region)?;
        Ok(pending.wait()?)
    }

    /// Maps a region of an image to be read and written, and waits until it is there.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::{ChannelOrder, ChannelType, ImageFormat, ImagePart, ImageRegion, ImageShape, OpenClBackend};
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let format = ImageFormat::new(ChannelOrder::Rgba, ChannelType::UnormInt8);
    /// let shape = ImageShape::d2(64, 32);
    /// let image = backend.create_image(MemoryFlags::empty(), format, shape)?;
    /// let mut map = backend.map_image_mut::<[u8; 4]>(&queue, &image, ImageRegion::all(shape))?;
    /// if let Some(first) = map.row_mut(0, 0) {
    ///     first.fill([255, 0, 0, 255]);
    /// }
    /// drop(map);
    /// let mut seen = [[0_u8; 4]; 64];
    /// let first = ImageRegion::new([0, 0], [64, 1]);
    /// backend.read_part(&queue, ImagePart::new(&image, first), &mut seen)?;
    /// assert_eq!(seen, [[255, 0, 0, 255]; 64]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [above](#errors).
    pub fn map_image_mut<'q, 'm, T: AnyBitPattern + NoUninit>(
        &self,
        on: impl Into<ClOn<'q>>,
        image: &'m ClImage,
        region: ImageRegion,
    ) -> Result<ImageMapMut<'m, T>, OpenClError> {
        let pending = self.enqueue_map_image_mut(on, image, region, MapMode::ReadWrite)?;
        Ok(pending.wait()?)
    }

    /// Enqueues a map of a region of an image to be read, without waiting for it.
    ///
    /// ```
    /// use binpool_allocators::Outcome;
    /// use binpool_opencl::ImageColor;
    /// # use binpool_allocators::{Backend, MemoryFlags, Queue, QueueOrder};
    /// # use binpool_opencl::{ChannelOrder, ChannelType, ImageFormat, ImageRegion, ImageShape, OpenClBackend};
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let format = ImageFormat::new(ChannelOrder::Rgba, ChannelType::UnormInt8);
    /// # let shape = ImageShape::d2(2, 2);
    /// # let all = ImageRegion::all(shape);
    /// # let image = backend.create_image(MemoryFlags::empty(), format, shape)?;
    ///
    /// // After whatever the program waits for, and after the fill, without a wait list.
    /// let gate = backend.create_user_event()?;
    /// let white = ImageColor::Float([1.0; 4]);
    /// backend.enqueue_fill_image(queue.after(std::slice::from_ref(&gate)), &image, all, white)?;
    /// let pending = backend.enqueue_map_image::<u8>(&queue, &image, all)?;
    /// backend.resolve_user_event(&gate, Outcome::Complete)?;
    /// let map = pending.wait()?;
    /// assert_eq!(map.row(1, 0), Some(&[255; 8][..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [above](#errors).
    pub fn enqueue_map_image<'q, 'm, T: AnyBitPattern>(
        &self,
        on: impl Into<ClOn<'q>>,
        image: &'m ClImage,
        region: ImageRegion,
    ) -> Result<PendingMap<'m, ImageMap<'m, T>>, OpenClError> {
        self.map_image_as(on.into(), image, region, None)
    }

    /// Enqueues a map of a region of an image for the writes that `mode` names, without waiting for it.
    ///
    /// ```
    /// use binpool_allocators::{Error, InvalidRequest};
    /// use binpool_opencl::{ImageColor, MapMode, OpenClError};
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::{ChannelOrder, ChannelType, ImageFormat, ImageRegion, ImageShape, OpenClBackend};
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let format = ImageFormat::new(ChannelOrder::Rgba, ChannelType::UnormInt8);
    /// # let shape = ImageShape::d2(2, 2);
    /// # let image = backend.create_image(MemoryFlags::empty(), format, shape)?;
    ///
    /// let (left, right) = (ImageRegion::new([0, 0], [1, 2]), ImageRegion::new([1, 0], [1, 2]));
    /// let pending = backend.enqueue_map_image_mut::<u8>(&queue, &image, left, MapMode::Overwrite)?;
    /// // Whatever is mapped of an image, all of it is the host's, from the call on.
    /// let refused = backend.enqueue_fill_image(&queue, &image, right, ImageColor::Float([1.0; 4]));
    /// assert!(matches!(
    ///     refused,
    ///     Err(OpenClError::Device(Error::InvalidRequest(InvalidRequest::Mapped { .. })))
    /// ));
    /// let mut map = pending.wait()?;
    /// for row in 0..2 {
    ///     map.row_mut(row, 0).ok_or("within the region")?.fill(7);
    /// }
    /// map.unmap()?;
    /// assert_eq!(backend.map_image::<u8>(&queue, &image, left)?.row(1, 0), Some(&[7; 4][..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [above](#errors).
    pub fn enqueue_map_image_mut<'q, 'm, T: AnyBitPattern + NoUninit>(
        &self,
        on: impl Into<ClOn<'q>>,
        image: &'m ClImage,
        region: ImageRegion,
        mode: MapMode,
    ) -> Result<PendingMap<'m, ImageMapMut<'m, T>>, OpenClError> {
        self.map_image_as(on.into(), image, region, Some(mode))
    }

    fn map_image_as<'m, T: AnyBitPattern, A>(
        &self,
        On { queue, wait_for }: ClOn<'_>,
        image: &'m ClImage,
        region: ImageRegion,
        mode: Option<MapMode>,
    ) -> Result<PendingMap<'m, HostMap<'m, T, A, Rows>>, OpenClError> {
        self.check_image(queue, image, region)?;
        MapMode::check(mode, image.flags())?;
        let mapped = Mapped::Image(image, region);
        let mapping = Mapping::enqueue(self, queue, mapped, mode, wait_for)?;
        Ok(PendingMap::new(mapping, HostMap::of_pixels))
    }
}

//! Transfers between the host's pixels and an image's.

use std::sync::Arc;

use binpool_allocators::{PendingRead, Result};
use bytemuck::{AnyBitPattern, NoUninit};

use super::{
    cl_image::ClImage,
    error::ImageError,
    layout::{HostLayout, HostPitches},
    region::ImageRegion,
    shape::ImageShape,
};
use crate::{
    backend::OpenClBackend,
    cl_error::Purpose,
    event::ClEvent,
    order::access::Access,
    queue::ClQueue,
    sys::{self, HostBytes},
};

/// Transfers between the host and images (`enqueue_copy`; OpenCL 3.0, section 5.3.3).
///
/// The host's bytes are as many as the size of the region, the format, and the pitches say: whole rows, and whole
/// slices.
impl OpenClBackend {
    /// Writes the host's pixels to a region of an image, and waits until they are there.
    ///
    /// # Errors
    ///
    /// [`EmptyRegion`](ImageError::EmptyRegion), [`OutOfBounds`](ImageError::OutOfBounds),
    /// [`Pitch`](ImageError::Pitch); data of another length; objects of another backend; whatever the command or
    /// something before it fails with.
    pub fn write_image<T: NoUninit>(
        &self,
        queue: &ClQueue,
        image: &ClImage,
        region: ImageRegion,
        data: &[T],
        pitches: HostPitches,
        wait_for: &[ClEvent],
    ) -> Result<(), ImageError> {
        let layout = self.check_transfer(queue, image, region, pitches)?;
        let data: &[u8] = bytemuck::cast_slice(data);
        layout.check_length(data.len())?;
        let uses = [image.used(Access::Write)];
        let purpose = Purpose::Memory(layout.bytes());
        self.submit_and_wait(queue, purpose, &uses, wait_for, |wait, enqueued| {
            let image = (image.handle(), region);
            sys::image::write_borrowed(queue.handle(), image, (data, layout), wait, enqueued)
        })?;
        Ok(())
    }

    /// Reads a region of an image, and waits until its pixels are there.
    ///
    /// Padding between rows and slices stays as it is.
    ///
    /// # Errors
    ///
    /// As [`write_image`](Self::write_image).
    pub fn read_image<T: NoUninit + AnyBitPattern>(
        &self,
        queue: &ClQueue,
        image: &ClImage,
        region: ImageRegion,
        data: &mut [T],
        pitches: HostPitches,
        wait_for: &[ClEvent],
    ) -> Result<(), ImageError> {
        let layout = self.check_transfer(queue, image, region, pitches)?;
        let data: &mut [u8] = bytemuck::cast_slice_mut(data);
        layout.check_length(data.len())?;
        let uses = [image.used(Access::Read)];
        let purpose = Purpose::Memory(layout.bytes());
        self.submit_and_wait(queue, purpose, &uses, wait_for, |wait, enqueued| {
            let image = (image.handle(), region);
            sys::image::read_borrowed(queue.handle(), image, (data, layout), wait, enqueued)
        })?;
        Ok(())
    }

    /// Enqueues a write of the host's pixels, which the command keeps until it has ended.
    ///
    /// # Errors
    ///
    /// As [`write_image`](Self::write_image), as far as it is known by then.
    pub fn enqueue_write_image(
        &self,
        queue: &ClQueue,
        image: &ClImage,
        region: ImageRegion,
        data: Arc<[u8]>,
        pitches: HostPitches,
        wait_for: &[ClEvent],
    ) -> Result<ClEvent, ImageError> {
        let layout = self.check_transfer(queue, image, region, pitches)?;
        layout.check_length(data.len())?;
        let uses = [image.used(Access::Write)];
        let purpose = Purpose::Memory(layout.bytes());
        let event = self.submit(queue, purpose, &uses, wait_for, |wait| {
            let image = (image.handle(), region);
            sys::image::write_kept(queue.handle(), image, (&data, layout), wait)
        })?;
        event.keep(data);
        Ok(event)
    }

    /// Enqueues a read of a region, without gaps between its pixels.
    ///
    /// # Errors
    ///
    /// As [`write_image`](Self::write_image), as far as it is known by then.
    pub fn enqueue_read_image(
        &self,
        queue: &ClQueue,
        image: &ClImage,
        region: ImageRegion,
        wait_for: &[ClEvent],
    ) -> Result<PendingRead<ClEvent>, ImageError> {
        let layout = self.check_transfer(queue, image, region, HostPitches::TIGHT)?;
        let target = Arc::new(HostBytes::new(layout.bytes())?);
        let uses = [image.used(Access::Read)];
        let purpose = Purpose::Memory(layout.bytes());
        let event = self.submit(queue, purpose, &uses, wait_for, |wait| {
            let image = (image.handle(), region);
            sys::image::read_kept(queue.handle(), image, (&target, layout), wait)
        })?;
        event.keep(Arc::clone(&target));
        Ok(PendingRead::new(event, move || target.take()))
    }

    /// Checks a command on a region of an image.
    pub(crate) fn check_image(
        &self,
        queue: &ClQueue,
        image: &ClImage,
        region: ImageRegion,
    ) -> Result<(), ImageError> {
        self.check_own_queue(queue)?;
        self.check_own_image(image)?;
        region.check_within(image.shape())
    }

    fn check_transfer(
        &self,
        queue: &ClQueue,
        image: &ClImage,
        region: ImageRegion,
        pitches: HostPitches,
    ) -> Result<HostLayout, ImageError> {
        self.check_image(queue, image, region)?;
        let part = ImageShape::of(image.shape().kind(), region.size);
        pitches.layout(part, image.item_bytes())
    }
}

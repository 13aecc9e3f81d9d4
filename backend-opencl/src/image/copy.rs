//! Copies between images, and between images and buffers.

use binpool_allocators::{AsMemory, InvalidRequest, Region, Result};

use super::{cl_image::ClImage, error::ImageError, region::ImageRegion};
use crate::{
    access::{Access, Use},
    backend::OpenClBackend,
    cl_error::{ClResult, Purpose},
    event::ClEvent,
    queue::ClQueue,
    sys::{self, MemHandle, Place},
};

/// Copies on the device (`enqueue_copy`; OpenCL 3.0, sections 5.3.4 and 5.3.6).
impl OpenClBackend {
    /// Enqueues a copy of the region `from` of one image to the region of the same size at `to` of another one, or of
    /// the same.
    ///
    /// # Errors
    ///
    /// [`FormatMismatch`](ImageError::FormatMismatch), [`EmptyRegion`](ImageError::EmptyRegion),
    /// [`OutOfBounds`](ImageError::OutOfBounds), [`OverlappingCopy`](ImageError::OverlappingCopy); images over the
    /// same bytes of a buffer; objects of another backend; a failure of the runtime.
    pub fn enqueue_copy_image(
        &self,
        queue: &ClQueue,
        source: &ClImage,
        from: ImageRegion,
        destination: &ClImage,
        to: [usize; 3],
        wait_for: &[ClEvent],
    ) -> Result<ClEvent, ImageError> {
        let into = from.moved_to(to);
        self.check_image(queue, source, from)?;
        self.check_image(queue, destination, into)?;
        if source.format() != destination.format() {
            return Err(ImageError::FormatMismatch {
                from: source.format(),
                to: destination.format(),
            });
        }
        let uses = [source.used(Access::Read), destination.used(Access::Write)];
        if source == destination {
            if from.overlaps(into) {
                return Err(ImageError::OverlappingCopy { from, to: into });
            }
        } else {
            check_apart(&uses)?;
        }
        let purpose = Purpose::Memory(source.region_bytes(from)?);
        let event = self.submit(queue, purpose, &uses, wait_for, |wait| {
            let source = (source.handle(), from);
            sys::image::enqueue_copy(queue.handle(), source, (destination.handle(), to), wait)
        })?;
        Ok(event)
    }

    /// Enqueues a copy of the region `from` of an image to the bytes of `memory` from `offset` on, without gaps between
    /// its pixels.
    ///
    /// # Errors
    ///
    /// [`EmptyRegion`](ImageError::EmptyRegion), [`OutOfBounds`](ImageError::OutOfBounds); memory that is too small,
    /// or that the image is made over; objects of another backend; a failure of the runtime.
    pub fn enqueue_copy_image_to_buffer(
        &self,
        queue: &ClQueue,
        source: &ClImage,
        from: ImageRegion,
        memory: &dyn AsMemory<Self>,
        offset: usize,
        wait_for: &[ClEvent],
    ) -> Result<ClEvent, ImageError> {
        let read = source.used(Access::Read);
        let memory = (memory, offset, Access::Write);
        self.between(
            queue,
            (source, from, read),
            memory,
            wait_for,
            |buffer, wait| {
                let source = (source.handle(), from);
                sys::image::enqueue_copy_to_buffer(queue.handle(), source, buffer, wait)
            },
        )
    }

    /// Enqueues a copy of the bytes of `memory` from `offset` on, which are pixels without gaps, to the region `into`
    /// of an image.
    ///
    /// # Errors
    ///
    /// As [`enqueue_copy_image_to_buffer`](Self::enqueue_copy_image_to_buffer).
    pub fn enqueue_copy_buffer_to_image(
        &self,
        queue: &ClQueue,
        memory: &dyn AsMemory<Self>,
        offset: usize,
        destination: &ClImage,
        into: ImageRegion,
        wait_for: &[ClEvent],
    ) -> Result<ClEvent, ImageError> {
        let write = destination.used(Access::Write);
        let memory = (memory, offset, Access::Read);
        self.between(
            queue,
            (destination, into, write),
            memory,
            wait_for,
            |buffer, wait| {
                let destination = (destination.handle(), into);
                sys::image::enqueue_copy_from_buffer(queue.handle(), buffer, destination, wait)
            },
        )
    }

    /// A copy between a region of an image and bytes of a buffer.
    fn between(
        &self,
        queue: &ClQueue,
        (image, region, used): (&ClImage, ImageRegion, Use<'_>),
        (memory, offset, access): (&dyn AsMemory<Self>, usize, Access),
        wait_for: &[ClEvent],
        enqueue: impl FnOnce((&MemHandle, usize), &sys::WaitList<'_>) -> ClResult<sys::EventHandle>,
    ) -> Result<ClEvent, ImageError> {
        self.check_image(queue, image, region)?;
        let size = memory.size();
        let bytes = Region::new(offset, image.region_bytes(region)?);
        bytes.check_within(size)?;
        // There are bytes to copy, so that the block is not the one of 0 bytes.
        let memory = memory.memory_on(queue).ok_or(out_of(bytes, size))?;
        self.check_own_memory(memory)?;
        let place = memory.place(bytes).ok_or(out_of(bytes, size))?;
        let uses = [used, memory.used(bytes, access)];
        check_apart(&uses)?;
        let purpose = Purpose::Memory(bytes.bytes);
        let event = self.submit(queue, purpose, &uses, wait_for, |wait| match place {
            Place::Buffer(buffer, offset) => enqueue((buffer, offset), wait),
            // The runtime keeps a buffer that was made over a block until the copy has ended.
            Place::Svm(range) => {
                let (buffer, offset) = range.as_buffer()?;
                enqueue((&buffer, offset), wait)
            }
        })?;
        Ok(event)
    }
}

fn out_of(region: Region, size: usize) -> InvalidRequest {
    InvalidRequest::OutOfBounds {
        offset: region.offset,
        bytes: region.bytes,
        size,
    }
}

/// Checks that source and destination share no bytes of a buffer that images are made over.
fn check_apart([from, to]: &[Use<'_>; 2]) -> Result<(), ImageError> {
    if std::ptr::eq(from.log, to.log) && from.region.overlaps(to.region) {
        return Err(InvalidRequest::OverlappingCopy {
            from: from.region.offset,
            to: to.region.offset,
            bytes: from.region.bytes,
        }
        .into());
    }
    Ok(())
}

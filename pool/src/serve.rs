//! Requests that take more than a block which the thread has at hand.

use std::{panic::Location, sync::Arc};

use binpool_allocators::{Allocator, Queue, QueueOf};

use crate::{PoolError, PooledBuffer, request::Request, seeing::asker::Asker, shared::Shared};

impl<A: Allocator> Shared<A> {
    /// A block that this thread does not have at hand, or of which a note is to be taken.
    #[cold]
    #[track_caller]
    pub(crate) fn serve(
        self: &Arc<Self>,
        queue: &QueueOf<A>,
        bytes: usize,
    ) -> Result<PooledBuffer<A>, PoolError> {
        let asker = self.notes.asker(Location::caller());
        let result = match asker {
            None => self.serve_unnoted(queue, bytes),
            Some(asker) => self.serve_noted(queue, bytes, asker),
        };
        #[cfg(feature = "snapshot")]
        if let Err(PoolError::OutOfMemory(report)) = &result {
            self.write_shortage(report, asker);
        }
        result
    }

    fn serve_noted(
        self: &Arc<Self>,
        queue: &QueueOf<A>,
        bytes: usize,
        asker: Asker,
    ) -> Result<PooledBuffer<A>, PoolError> {
        if let Some(grant) = self.at_hand_noted(queue.id(), bytes, asker) {
            return Ok(PooledBuffer::from_hand(grant, bytes));
        }
        let mut result = self.serve_unnoted(queue, bytes);
        match &mut result {
            Ok(buffer) => {
                if let Some(block) = buffer.block_mut() {
                    self.state.lock().note_begin(block, bytes, asker);
                }
            }
            Err(error) if error.is_out_of_memory() => {
                if let Some(tape) = &mut self.state.lock().watch.tape {
                    tape.refuse(bytes, queue.id(), asker);
                }
            }
            Err(_) => {}
        }
        result
    }

    fn serve_unnoted(
        self: &Arc<Self>,
        queue: &QueueOf<A>,
        bytes: usize,
    ) -> Result<PooledBuffer<A>, PoolError> {
        if bytes == 0 {
            self.state.lock().count_empty();
            return Ok(PooledBuffer::new(self, queue, 0, None));
        }
        let Some(request) = self.request(bytes)? else {
            return Err(self.never_fits(bytes));
        };
        let block = self.allocate(queue, request)?;
        tracing::trace!(asked = bytes, bytes = block.class_size(), "allocated");
        if self.scrubber.is_on_hand_out() {
            block.scrub_for(queue)?;
        }
        Ok(block)
    }

    /// The request in terms of the size classes; `None` for what is larger than the device's largest block. A class that
    /// would be too large for the device where the request is not, has blocks of exact sizes.
    pub(crate) fn request(&self, asked: usize) -> Result<Option<Request>, PoolError> {
        let classes = &self.classes;
        let (alignment, largest) = (self.alignment, self.allocator.largest_block());
        let rounded = alignment.round_up(asked).unwrap_or(asked);
        let bin = classes.bin_number(rounded);
        let class_size = classes.alloc_size(bin);
        if class_size < rounded || bin >= classes.bin_count() {
            return Err(PoolError::SizeClassTooSmall {
                requested: rounded,
                class_size,
            });
        }
        let class_size = alignment.round_up(class_size).unwrap_or(class_size);
        let sizes = [class_size, rounded, asked];
        let bytes = sizes.into_iter().find(|size| *size <= largest);
        Ok(bytes.map(|bytes| Request { asked, bin, bytes }))
    }
}

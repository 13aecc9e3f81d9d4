//! The limits and capabilities of a device.

use crate::{Align, FailureOrder, InvalidRequest, SvmSupport};

/// The limits and capabilities of one device. All sizes are in bytes.
///
/// A backend fills them in when it opens the device, and checks requests against them:
///
/// ```
/// use binpool_allocators::{Align, DeviceLimits, Error, InvalidRequest};
///
/// let alignment = Align::new(256).expect("a power of two");
/// let mut limits = DeviceLimits::new("my device", 8_000_000, 2_000_000, alignment);
/// limits.out_of_order_queues = true;
/// assert!(!limits.svm.any(), "what is not set is not there");
/// limits.check_block(2_000_000)?;
/// let Err(Error::InvalidRequest(refusal)) = limits.check_block(2_000_001) else { unreachable!() };
/// assert_eq!(refusal, InvalidRequest::TooLarge { requested: 2_000_001, largest: 2_000_000 });
/// # Ok::<(), Error>(())
/// ```
///
/// Programs read them ([`Backend::limits`](crate::Backend::limits)):
///
/// ```
/// # use binpool_allocators::{Backend, QueueOrder};
/// # use binpool_mock::MockDevice;
/// # let backend = MockDevice::builder().out_of_order_queues(false).build().backend();
/// let limits = backend.limits();
/// let order = if limits.out_of_order_queues { QueueOrder::OutOfOrder } else { QueueOrder::InOrder };
/// let queue = backend.create_queue(order)?;
/// assert_eq!((limits.capacity_bytes, limits.alignment.bytes()), (1 << 30, 256));
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceLimits {
    /// The device's name, for display.
    pub device_name: String,
    /// The memory of the device. The runtime reports this size but need not enforce it: `PoCL` and
    /// NVIDIA's OpenCL both create more buffers than this without an error.
    pub capacity_bytes: u64,
    /// The largest single block.
    pub largest_block_bytes: usize,
    /// The alignment that sub-regions must have, and that fresh blocks have.
    pub alignment: Align,
    /// The largest alignment that can be requested for SVM.
    pub largest_svm_alignment: Align,
    /// The kinds of SVM that the device has.
    pub svm: SvmSupport,
    /// Set if the device has out-of-order queues.
    pub out_of_order_queues: bool,
    /// What the order of commands guarantees once one of them has failed.
    pub failure_order: FailureOrder,
    /// Set if views of buffers are [only addresses](crate::Allocator::views_are_addresses).
    pub buffer_views_are_addresses: bool,
    /// Set if views of SVM are [only addresses](crate::Allocator::views_are_addresses).
    pub svm_views_are_addresses: bool,
}

impl DeviceLimits {
    /// The limits of a device without SVM and with in-order queues only. The other fields can be set afterwards.
    #[must_use]
    pub fn new(
        device_name: impl Into<String>,
        capacity_bytes: u64,
        largest_block_bytes: usize,
        alignment: Align,
    ) -> Self {
        Self {
            device_name: device_name.into(),
            capacity_bytes,
            largest_block_bytes,
            alignment,
            largest_svm_alignment: alignment,
            svm: SvmSupport::default(),
            out_of_order_queues: false,
            failure_order: FailureOrder::default(),
            buffer_views_are_addresses: false,
            svm_views_are_addresses: false,
        }
    }

    /// Checks that a block of `bytes` bytes can be requested at all.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest::ZeroSize`] or [`InvalidRequest::TooLarge`].
    pub fn check_block(&self, bytes: usize) -> crate::Result<()> {
        if bytes == 0 {
            return Err(InvalidRequest::ZeroSize.into());
        }
        if bytes > self.largest_block_bytes {
            return Err(InvalidRequest::TooLarge {
                requested: bytes,
                largest: self.largest_block_bytes,
            }
            .into());
        }
        Ok(())
    }
}

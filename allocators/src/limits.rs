//! What a device can hold and do.

use crate::{Align, error::InvalidRequest};

/// The kinds of shared virtual memory (SVM) that a device has, after OpenCL 3.0, section 3.3.3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SvmSupport {
    /// Coarse-grained: the host maps it before touching it.
    pub coarse: bool,
    /// Fine-grained: host and device touch it without maps.
    pub fine: bool,
    /// Fine-grained, with atomics that host and device both see.
    pub atomics: bool,
    /// Any pointer of the host's own heap works on the device.
    pub system: bool,
}

impl SvmSupport {
    /// Whether the device has any SVM that can be allocated.
    #[must_use]
    pub const fn any(self) -> bool {
        self.coarse || self.fine
    }
}

/// What one device can hold and do. All sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceLimits {
    /// The device's name, for people.
    pub device_name: String,
    /// All memory of the device. A promise of the runtime, not a bound that it enforces: `PoCL` and
    /// NVIDIA's OpenCL both create more buffers than this without an error.
    pub capacity_bytes: u64,
    /// The largest single block.
    pub largest_block_bytes: usize,
    /// What sub-regions must start on, and what fresh blocks do start on.
    pub alignment: Align,
    /// The largest alignment that SVM can be asked for.
    pub largest_svm_alignment: Align,
    /// Which kinds of SVM there are.
    pub svm: SvmSupport,
    /// Whether queues can be out of order.
    pub out_of_order_queues: bool,
    /// Whether threads may use views of one buffer while others make and release such. NVIDIA's driver crashes.
    pub concurrent_views: bool,
}

impl DeviceLimits {
    /// Limits of a device without SVM and with in-order queues only, whose views threads may share; set the other
    /// fields after.
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
            concurrent_views: true,
        }
    }

    /// Checks that a block of `bytes` bytes can be asked for at all.
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

//! The limits of a device, as it reports them.

use binpool_allocators::{Align, DeviceLimits, FailureOrder, SvmSupport};
use cl3::device::{
    CL_DEVICE_GLOBAL_MEM_SIZE, CL_DEVICE_MAX_MEM_ALLOC_SIZE, CL_DEVICE_MEM_BASE_ADDR_ALIGN,
    CL_DEVICE_NAME, CL_DEVICE_QUEUE_ON_HOST_PROPERTIES, CL_DEVICE_SVM_ATOMICS,
    CL_DEVICE_SVM_CAPABILITIES, CL_DEVICE_SVM_COARSE_GRAIN_BUFFER, CL_DEVICE_SVM_FINE_GRAIN_BUFFER,
    CL_DEVICE_SVM_FINE_GRAIN_SYSTEM,
};

use crate::sys::{ClResult, DeviceId};

/// `CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE` among the properties that queues of a device can have.
const OUT_OF_ORDER: u64 = cl3::command_queue::CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE;

/// The largest alignment that every device takes for SVM: the size of its largest data type, `long16`.
/// `PoCL` and Intel's runtime answer with null to more.
pub(crate) const LARGEST_SVM_ALIGNMENT: usize = 128;

/// The platform of NVIDIA's runtime.
pub(crate) const NVIDIA: &str = "NVIDIA CUDA";

/// The platform of Intel's runtime for processors.
pub(crate) const INTEL: &str = "Intel(R) OpenCL";

/// The platform of `PoCL`.
pub(crate) const POCL: &str = "Portable Computing Language";

/// Asks the device for its limits.
pub(crate) fn query(device: DeviceId) -> ClResult<DeviceLimits> {
    let number = |what| device.info(what)?.number();
    let mut limits = DeviceLimits::new(
        device.info(CL_DEVICE_NAME)?.text(),
        number(CL_DEVICE_GLOBAL_MEM_SIZE)?,
        device.info(CL_DEVICE_MAX_MEM_ALLOC_SIZE)?.size()?,
        alignment(device.info(CL_DEVICE_MEM_BASE_ADDR_ALIGN)?.size()?),
    );
    limits.largest_svm_alignment = bytes_aligned(LARGEST_SVM_ALIGNMENT);
    // Devices before OpenCL 2.0 do not answer this question.
    limits.svm = svm_support(number(CL_DEVICE_SVM_CAPABILITIES).unwrap_or(0));
    limits.out_of_order_queues = number(CL_DEVICE_QUEUE_ON_HOST_PROPERTIES)? & OUT_OF_ORDER != 0;
    // Every runtime that was measured does so (docs/failures.md), so all others are taken to.
    limits.failure_order = FailureOrder::FailsEarly;
    Ok(limits)
}

/// Returns the base address alignment, which OpenCL counts in bits.
fn alignment(bits: usize) -> Align {
    bytes_aligned(bits / 8)
}

/// Returns the alignment of that many bytes, or of the next power of two.
fn bytes_aligned(bytes: usize) -> Align {
    bytes
        .checked_next_power_of_two()
        .and_then(Align::new)
        .unwrap_or(Align::ONE)
}

fn svm_support(capabilities: u64) -> SvmSupport {
    let has = |bit: u64| capabilities & bit != 0;
    SvmSupport {
        coarse: has(CL_DEVICE_SVM_COARSE_GRAIN_BUFFER),
        fine: has(CL_DEVICE_SVM_FINE_GRAIN_BUFFER),
        atomics: has(CL_DEVICE_SVM_ATOMICS),
        system: has(CL_DEVICE_SVM_FINE_GRAIN_SYSTEM),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_alignment_is_told_in_bits() {
        for (bits, bytes) in [(4096, 512), (1024, 128), (8, 1), (0, 1), (1000, 128)] {
            assert_eq!(alignment(bits).bytes(), bytes, "{bits} bits");
        }
    }

    #[test]
    fn svm_capabilities_are_bits() {
        assert_eq!(svm_support(0), SvmSupport::default());
        let coarse_only = svm_support(0x1);
        assert!(coarse_only.coarse && !coarse_only.fine && !coarse_only.atomics);
        let pocl = svm_support(0xb);
        assert!(pocl.coarse && pocl.fine && pocl.atomics && !pocl.system);
    }
}

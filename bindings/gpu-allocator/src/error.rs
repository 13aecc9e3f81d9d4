//! The errors of an allocation, as in the crate `gpu-allocator`.

/// The result of a call of this crate.
///
/// ```
/// use binpool_gpu_allocator::{AllocationError, Result};
///
/// let failed: Result<()> = Err(AllocationError::OutOfMemory);
/// assert_eq!(failed.unwrap_err().to_string(), "Out of memory");
/// ```
pub type Result<V, E = AllocationError> = std::result::Result<V, E>;

/// Why an allocator could not be made, or could not serve a request.
///
/// ```
/// use binpool_gpu_allocator::AllocationError;
///
/// fn is_worth_another_try(error: &AllocationError) -> bool {
///     matches!(error, AllocationError::OutOfMemory) // Once something is freed.
/// }
/// assert!(!is_worth_another_try(&AllocationError::NoCompatibleMemoryTypeFound));
/// ```
#[derive(Debug, thiserror::Error)]
pub enum AllocationError {
    /// No memory is left.
    #[error("Out of memory")]
    OutOfMemory,
    /// `vkMapMemory` failed.
    #[error("Failed to map memory: {0}")]
    FailedToMap(String),
    /// No memory type fits the requirements and the location.
    #[error("No compatible memory type available")]
    NoCompatibleMemoryTypeFound,
    /// The size is 0, or the alignment is not a power of two.
    #[error("Invalid AllocationCreateDesc")]
    InvalidAllocationCreateDesc,
    /// The physical device is null.
    #[error("Invalid AllocatorCreateDesc {0}")]
    InvalidAllocatorCreateDesc(String),
    /// Another failure, such as that of a Vulkan call.
    #[error("Internal error: {0}")]
    Internal(String),
    /// Never returned: an error of gpu-allocator's Direct3D 12 part, for programs that name it.
    #[error("Initial `BARRIER_LAYOUT` needs at least `Device10`")]
    BarrierLayoutNeedsDevice10,
    /// Never returned: an error of gpu-allocator's Direct3D 12 part, for programs that name it.
    #[error("Castable formats require enhanced barriers")]
    CastableFormatsRequiresEnhancedBarriers,
    /// Never returned: an error of gpu-allocator's Direct3D 12 part, for programs that name it.
    #[error("Castable formats require at least `Device12`")]
    CastableFormatsRequiresAtLeastDevice12,
}

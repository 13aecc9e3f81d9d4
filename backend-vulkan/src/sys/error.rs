//! The results of Vulkan's calls.

use ash::vk;
use binpool_allocators::{Error, OutOfMemory, Scope};

/// A call of Vulkan that failed: the source of the [`Error`]s of this crate.
///
/// ```
/// use std::error::Error as _;
///
/// use binpool_allocators::Error;
/// use binpool_vulkan::VulkanError;
///
/// /// The `VkResult` of a failure, if Vulkan answered it.
/// fn result_of(error: &Error) -> Option<i32> {
///     let source = error.source()?.downcast_ref::<VulkanError>()?;
///     eprintln!("{} failed", source.call());
///     Some(source.code())
/// }
///
/// assert_eq!(result_of(&Error::unsupported("something else")), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call} returned {result:?} ({})", .result.as_raw())]
pub struct VulkanError {
    call: &'static str,
    result: vk::Result,
}

impl VulkanError {
    pub(crate) const fn new(call: &'static str, result: vk::Result) -> Self {
        Self { call, result }
    }

    /// The function of Vulkan.
    #[must_use]
    pub const fn call(&self) -> &'static str {
        self.call
    }

    /// The `VkResult`.
    #[must_use]
    pub const fn code(&self) -> i32 {
        self.result.as_raw()
    }

    pub(crate) fn is_lost(self) -> bool {
        self.result == vk::Result::ERROR_DEVICE_LOST
    }

    /// Returns the error of a request for `bytes` bytes of this memory.
    pub(crate) fn shortage(self, bytes: usize, scope: Scope) -> Error {
        let scope = match self.result {
            vk::Result::ERROR_OUT_OF_HOST_MEMORY => Scope::Host,
            // A device has at most `maxMemoryAllocationCount` blocks: freeing others helps as it does for bytes.
            vk::Result::ERROR_OUT_OF_DEVICE_MEMORY | vk::Result::ERROR_TOO_MANY_OBJECTS => scope,
            _ => return self.into(),
        };
        OutOfMemory::new(bytes, scope).with_source(self).into()
    }
}

impl From<VulkanError> for Error {
    fn from(error: VulkanError) -> Self {
        if error.is_lost() {
            return Self::DeviceLost {
                operation: error.call,
                source: Some(error.into()),
            };
        }
        Self::backend(error.call, Some(error.code()), error)
    }
}

/// Names the call of a result.
pub(crate) trait Named<T> {
    fn of(self, call: &'static str) -> Result<T, VulkanError>;
}

impl<T> Named<T> for Result<T, vk::Result> {
    fn of(self, call: &'static str) -> Result<T, VulkanError> {
        self.map_err(|result| VulkanError::new(call, result))
    }
}

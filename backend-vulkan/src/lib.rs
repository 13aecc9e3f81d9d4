//! The Vulkan backend of binpool.
//!
//! [`VulkanBackend`] implements `Backend` and `VirtualMemory` of `binpool_allocators` over Vulkan 1.2, whose loader is loaded when it is first needed:
//! programs start without Vulkan, and get an error that says what to install.

#![deny(unsafe_code)]

/// Implements `Debug`, with the fields that say something to a program.
macro_rules! debug_by {
    ($name:ident $(, |$this:ident| $($field:ident: $value:expr),+)?) => {
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                $(let $this = self;)?
                f.debug_struct(stringify!($name))
                    $($(.field(stringify!($field), &$value))+)?
                    .finish_non_exhaustive()
            }
        }
    };
}

mod backend;
mod device;
mod kernel;
mod mark;
mod own_submit;
mod queue;
mod runtime;
mod staging;
mod sys;
#[cfg(test)]
mod tests;

pub use backend::{VulkanBackend, VulkanEvent, VulkanMemory, VulkanQueue};
pub use device::VulkanDevice;
pub use kernel::{Argument, VulkanKernel};
pub use mark::VulkanMark;
pub use own_submit::OwnSubmit;
pub use queue::QueueStream;
pub use sys::{VulkanBlock, VulkanError};

#[cfg(test)]
extern crate self as binpool_vulkan;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;

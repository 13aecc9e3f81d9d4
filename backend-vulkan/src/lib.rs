//! The Vulkan backend of binpool.
//!
//! [`VulkanBackend`] implements `Backend` and `VirtualMemory` of `binpool_allocators` over Vulkan 1.2, whose loader is loaded when it is first needed:
//! programs start without Vulkan, and get an error that says what to install.

#![deny(unsafe_code)]

#[macro_use(debug_by)]
extern crate binpool_allocators;

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

//! Calls of Vulkan: types that own what it has made. All of the crate's unsafe code but what a program promises lies here.
//!
//! ```text
//! error         results of calls
//! instance      the loader, an instance
//! facts         what a device tells
//! device        a device, its queues
//! timeline      numbers that grow as commands end
//! commands      commands as they are recorded
//! submission    commands on their way to the device
//! stream        commands that run one after the other
//! memory        buffers, memory, pages
//! pipeline      kernels
//! ```

#![expect(unsafe_code, reason = "calls of Vulkan")]

mod commands;
mod device;
mod error;
mod facts;
mod instance;
mod memory;
mod pipeline;
mod stream;
mod submission;
mod timeline;

pub(crate) use self::{
    commands::{At, Commands},
    device::{Device, DeviceQueue},
    error::Named,
    facts::Facts,
    instance::Instance,
    memory::Place,
    pipeline::Pipeline,
    stream::Lane,
    submission::{HeldBack, Wait},
    timeline::Timeline,
};
pub use self::{error::VulkanError, memory::VulkanBlock};

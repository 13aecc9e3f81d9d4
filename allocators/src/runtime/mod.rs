//! What a device runtime has to do, and everything that is the same on every device.
//!
//! A backend implements [`Runtime`]: memory, streams, commands, marks. It gets [`Backend`](crate::Backend),
//! [`Transfers`](crate::Transfers) and, with [`RuntimePages`], [`VirtualMemory`](crate::VirtualMemory) from here:
//!
//! - memory, queues and events with identities and owners, views and parts of memory;
//! - all checks of arguments, before the runtime is called;
//! - memory that lives until the last command that uses it has ended, whatever the program drops meanwhile;
//! - if the program wants it, the order of commands that conflict ([`Core::order_conflicts`]).
//!
//! The split is that of `wgpu-core` over `wgpu-hal`: the layer below checks nothing, so it is small, and all backends
//! mean the same.
//!
//! ```text
//! runtime    what a backend writes
//! uses       the commands that use a block
//! deferred   what is freed once commands have ended
//! memory     blocks, views, parts          pages    which pages are mapped where
//! queue, event
//! enqueue    a command on its way          backend    the trait for programs
//! ```

mod backend;
mod core;
mod deferred;
mod enqueue;
mod event;
mod memory;
mod pages;
mod queue;
mod runtime;
mod uses;

pub use self::{
    core::Core,
    enqueue::enqueue,
    event::CoreEvent,
    memory::{Access, CoreMemory, Part},
    pages::RuntimePages,
    queue::CoreQueue,
    runtime::Runtime,
};

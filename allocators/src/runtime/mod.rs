//! What a backend must implement for its device, and everything that is the same on every device.
//!
//! A backend implements [`Runtime`]: memory, streams, commands, marks. It gets [`Backend`](crate::Backend) and, with [`RuntimePages`],
//! [`VirtualMemory`](crate::VirtualMemory) from here:
//!
//! - memory, queues and events with identities and owners, views and parts of memory;
//! - all checks of arguments, before the runtime is called;
//! - memory that lives until the last command that uses it has ended, whatever the program drops meanwhile;
//! - on request, the order of conflicting commands ([`Core::order_conflicts`]).
//!
//! The split is that of `wgpu-core` and `wgpu-hal`: the lower layer checks nothing, so it is small, and all backends
//! behave the same.
//!
//! ```text
//! objects    what a runtime's memory, queues and marks are
//! uses       the commands that use a block
//! deferred   what is freed once commands have ended
//! core       what all clones of a backend share
//! mapped     which pages are mapped where in a reservation
//! memory     blocks, views, parts
//! argument   arguments of kernels
//! traits     Runtime: what a backend writes
//! queue, event
//! enqueue    a command on its way
//! backend    the trait for programs, over all of this
//! pages      runtimes with virtual memory
//! ```

mod argument;
mod backend;
mod core;
mod deferred;
mod enqueue;
mod event;
mod mapped;
mod memory;
mod objects;
mod pages;
mod queue;
mod traits;
mod uses;

pub use self::{
    argument::Argument,
    backend::adopt_block,
    core::Core,
    enqueue::enqueue,
    event::CoreEvent,
    memory::{CoreMemory, Part},
    objects::Objects,
    pages::RuntimePages,
    queue::{CoreQueue, adopt_queue},
    traits::Runtime,
    uses::Access,
};

//! The calls of the CUDA driver. All unsafe code of the crate is here.
//!
//! The types own what the driver has made, and undo it when they are dropped. All may be used from any thread: each call makes its context
//! current on the calling thread, and then the one that was so before.

#![allow(unsafe_code, reason = "this is where it is")]

mod allocation;
mod capture;
mod context;
mod current;
mod device;
mod driver;
mod gate;
mod kept;
mod left;
mod mark;
mod module;
mod pages;
mod relaxed;
mod reservation;
mod slot;
mod staging;
mod status;
mod stream;
mod streams;
mod unfreed;

pub(crate) use allocation::{Allocation, DriverPool};
pub(crate) use context::Context;
pub(crate) use device::{DeviceFacts, count, facts, page_bytes};
pub(crate) use driver::{Address, Driver, Handle, Sharing};
pub(crate) use gate::Gate;
pub(crate) use mark::Mark;
pub(crate) use module::Module;
pub(crate) use pages::Pages;
pub(crate) use reservation::Reservation;
pub(crate) use staging::Staging;
pub use status::CudaError;
pub(crate) use status::CudaResult;
pub(crate) use stream::{LEGACY, PER_THREAD, Stream};
pub(crate) use streams::context_of;

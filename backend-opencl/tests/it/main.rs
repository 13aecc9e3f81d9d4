//! The tests of the OpenCL backend. What needs a process of its own is beside this one: the sweep, the random programs, and
//! what looks at how the process grows.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod accesses;
mod alignment;
mod behind_failures;
mod buffers;
mod cache;
mod characterize;
mod common;
mod conformance;
mod debug;
mod elements;
mod every_device;
mod failure_order;
mod hazards;
mod host_sides;
#[cfg(feature = "ndarray")]
mod image_arrays;
mod image_buffers;
mod image_commands;
mod image_formats;
mod image_maps;
mod image_transfers;
mod images;
mod interop;
mod kernel_images;
mod kernel_offsets;
mod kernel_refusals;
mod kernels;
mod maps;
mod memory;
mod memory_arguments;
mod migration;
mod objects;
mod on_ended;
mod ordering;
mod p2p;
mod parts;
mod pipes;
mod pool;
mod raw_memory;
mod readme;
mod rects;
mod reuse;
mod samplers;
mod scrub;
mod selection;
mod shortage;
mod stress;
mod svm;
mod svm_styles;
mod transfers;
mod two_devices;
mod unmaps;
mod view_launches;
mod views;

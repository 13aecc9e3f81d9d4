//! CUDA: the injection that records, and the `libcuda.so.1` in front of the driver's, which records and pools.

mod arguments;
mod cupti;
mod device_pools;
mod driver;
mod driver_places;
mod fork;
mod front;
mod function;
mod injection;
mod inside;
mod live;
mod numbers;
mod observer;
mod pages;
mod passed;
mod pooling;
mod real;
mod serve;
mod tracker;
#[cfg(target_arch = "x86_64")]
mod trampolines;

pub use driver_places::cuda_driver;

//! CUDA: the injection that records, and the `libcuda.so.1` in front of the driver's, which records and pools.
//!
//! - The driver: [`driver_places`] and [`driver_library`] find it, and [`driver`] has the calls that the layer makes itself ([`own_calls`]).
//! - Calls of the program come by [`trampolines`] to [`interposer`], or by [`cupti`] to [`injection`], with their [`arguments`]. [`function`] says what
//!   each function does.
//! - Recordings: [`observer`] tells [`tracker`] of calls, which keeps what is [`live`], and the numbers of contexts and streams ([`handle_numbers`]).
//! - Pools: [`serve`] decides which calls come to [`pooling`], which has the [`device_pools`]. What a program has beside them is in [`unpooled`].

mod arguments;
mod cupti;
mod device_pools;
mod driver;
mod driver_library;
mod driver_places;
mod fork;
mod function;
mod handle_numbers;
mod injection;
mod interposer;
mod live;
mod observer;
mod own_calls;
mod pages;
mod pooling;
mod serve;
mod tracker;
#[cfg(target_arch = "x86_64")]
mod trampolines;
mod unpooled;

pub use driver_places::cuda_driver;

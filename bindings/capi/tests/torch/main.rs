//! The functions for PyTorch, over the stand-in for the driver.

#![allow(clippy::unwrap_used, reason = "a failing test panics")]
#![expect(unsafe_code, reason = "the functions are those of C")]

mod child;
mod class;
mod exceptions;
mod streams;
mod threads;

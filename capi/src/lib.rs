//! binpool for other languages.

#![deny(unsafe_code)]

pub mod any_pool;
pub mod torch;

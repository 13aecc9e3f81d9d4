//! Type erasure: a backend that is chosen at run time.

mod backend;
mod mirror;
mod objects;

pub use backend::AnyBackend;
pub use objects::{AnyEvent, AnyMemory, AnyQueue};

//! Programs and their kernels.

mod argument;
mod bound;
mod declaration;
#[expect(
    clippy::module_inception,
    reason = "a kernel is the idea of this file as of the folder"
)]
mod kernel;
mod launch;
#[cfg(feature = "images")]
mod object_types;
#[cfg(feature = "images")]
mod objects;
mod parameter;
mod problem;
mod program;
mod taken;
mod work_size;

pub use argument::{Argument, LocalMemory};
pub use kernel::ClKernel;
pub use launch::Launch;
pub use parameter::{Extent, Parameter, ParameterAccess, ParameterKind};
pub use problem::KernelProblem;
pub use program::ClProgram;

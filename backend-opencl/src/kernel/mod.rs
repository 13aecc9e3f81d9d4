//! Programs and their kernels.

mod argument;
mod bound;
mod built;
mod declaration;
mod enqueue;
mod error;
#[expect(
    clippy::module_inception,
    reason = "a kernel is the idea of this file as of the folder"
)]
mod kernel;
mod launch;
mod local_memory;
mod parameter;
mod program;
mod touched;
mod work_size;

pub use argument::Argument;
pub use error::{KernelError, LaunchMemory, ParameterProblem, WorkSizeProblem};
pub use kernel::ClKernel;
pub use launch::Launch;
pub use local_memory::LocalMemory;
pub use parameter::{Extent, Parameter, ParameterAccess, ParameterKind};
pub use program::ClProgram;

//! Memory of a pool for programs that call OpenCL themselves.

pub(super) mod limit;
mod pools;
mod runtime;

pub(super) use pools::{ContextPool, ContextPools, PooledBlock, ProgramQueue};
pub(super) use runtime::{Kind, forget_blocks_in_children, is_out_of_memory, is_pools, status_of};

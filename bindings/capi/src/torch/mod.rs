//! Functions for PyTorch's `CUDAPluggableAllocator`: the tensors of a program lie in a pool of binpool.
//!
//! ```python
//! import torch
//!
//! memory = torch.cuda.memory
//! allocator = memory.CUDAPluggableAllocator("libbinpool_capi.so", "binpool_torch_allocate", "binpool_torch_free")
//! memory.change_current_allocator(allocator)  # Before the first tensor on a device.
//! ```
//!
//! Each device has one pool over virtual memory, in the primary context, which is PyTorch's. It is made at the first request. Each request
//! names its stream, as PyTorch's own allocator has it: what is freed serves the same stream at once, and another stream once the commands
//! before have ended. The streams must live as long as the program, as those of `torch.cuda.Stream` do.
//!
//! `Tensor.record_stream`, `torch.cuda.empty_cache` and captures of graphs reach the pool where their functions are set, by address:
//!
//! ```python
//! import ctypes
//!
//! library = ctypes.CDLL("libbinpool_capi.so")
//! address = lambda function: ctypes.cast(function, ctypes.c_void_p).value
//! allocator.allocator().set_record_stream_fn(address(library.binpool_torch_record_stream))
//! allocator.allocator().set_reset_fn(address(library.binpool_torch_empty_cache))
//! allocator.allocator().set_begin_allocate_to_pool(address(library.binpool_torch_refuse_graph))
//! ```
//!
//! # Without memory
//!
//! PyTorch uses what it gets without a check for null. So [`binpool_torch_allocate`] throws a C++ exception, whose text is the
//! pool's report: `torch.OutOfMemoryError` where PyTorch's library has what makes one, else `RuntimeError`.
//! Callers that cannot catch exceptions, such as those by `ctypes`, use [`binpool_torch_try_allocate`].
//!
//! # Graphs
//!
//! A graph uses its memory at each launch, and the pool would give it to others meanwhile. So [`binpool_torch_refuse_graph`] refuses
//! captures; where it is not set, they are wrong. For graphs, leave PyTorch's own allocator in place, and take its memory from the pool:
//! `memory_pool = torch.cuda.MemPool(CUDAPluggableAllocator(library, "binpool_torch_allocate_segment", "binpool_torch_free_segment").allocator())`,
//! which is named in `torch.cuda.graph(graph, pool=memory_pool.id)`. PyTorch then keeps the blocks of the graph itself until the graph is gone.
//! [`binpool_torch_allocate_segment`] gives out what no command uses any more, and [`binpool_torch_free_segment`] waits for the device.
//!
//! # In place of `CUDAPluggableAllocator`
//!
//! The Python package builds an allocator against the installed PyTorch (`bindings/python/binpool/torch_allocator`), which answers all that PyTorch's own
//! answers, and has graphs. Below it are [`binpool_torch_request`] and the functions beside that, which are for it alone.
//!
//! Questions that PyTorch asks its own allocator (`torch.cuda.memory_allocated`, `memory_stats`, `memory_snapshot`) are refused by PyTorch:
//! [`pool_of`] and [`binpool_torch_pool`] answer them.

mod class;
mod exception;
mod functions;
mod names;
mod pages;
mod pools;
mod segments;
#[cfg(unix)]
mod sharing;

pub use class::{
    Figures, Granted, PagesWatcher, binpool_torch_allocate_segment,
    binpool_torch_enable_peer_access, binpool_torch_figures, binpool_torch_free_segment,
    binpool_torch_pages, binpool_torch_request, binpool_torch_reset_peaks, binpool_torch_set_limit,
    binpool_torch_watch_pages,
};

pub use functions::{
    allocate, binpool_torch_allocate, binpool_torch_empty_cache, binpool_torch_free,
    binpool_torch_pool, binpool_torch_record_stream, binpool_torch_refuse_graph,
    binpool_torch_try_allocate,
};
pub use names::name_requests;
pub use pools::pool_of;
#[cfg(unix)]
pub use sharing::{
    binpool_torch_drop_received, binpool_torch_receive, binpool_torch_share,
    binpool_torch_take_back,
};

"""binpool as the allocator of PyTorch, on CUDA.

One line, before the first tensor on a GPU::

    import binpool.torch; binpool.torch.use()

PyTorch's streams are honoured: a tensor that is freed goes to its next user only behind the commands of its stream, and of those that
``Tensor.record_stream`` named.
"""

import ctypes
import functools

import torch

from binpool import Pool, _binpool

__all__ = ["memory_pool", "pool", "use"]


@functools.cache
def _allocator() -> torch.cuda.memory.CUDAPluggableAllocator:
    library = _binpool.__file__
    functions = ctypes.CDLL(library)
    allocator = torch.cuda.memory.CUDAPluggableAllocator(library, "binpool_torch_allocate", "binpool_torch_free")
    for set_function, name in [
        ("set_record_stream_fn", "binpool_torch_record_stream"),
        ("set_reset_fn", "binpool_torch_empty_cache"),
        ("set_begin_allocate_to_pool", "binpool_torch_refuse_graph"),
    ]:
        address = ctypes.cast(functions[name], ctypes.c_void_p).value
        getattr(allocator.allocator(), set_function)(address)
    return allocator


def use() -> None:
    """Make binpool the allocator of PyTorch in this process.

    Call it before the first tensor on a GPU: PyTorch takes no other allocator later. ``torch.cuda.memory`` then has no figures of its own:
    :func:`pool` has them. Captures of CUDA graphs are refused: for those, see :func:`memory_pool`.
    """
    torch.cuda.memory.change_current_allocator(_allocator())


def memory_pool() -> torch.cuda.MemPool:
    """Return a ``torch.cuda.MemPool`` that takes its memory from binpool, for a program that keeps PyTorch's own allocator.

    CUDA graphs need that, since only PyTorch's allocator keeps the memory of a graph as long as the graph lives::

        memory = binpool.torch.memory_pool()
        with torch.cuda.graph(graph, pool=memory.id):
            ...
    """
    return torch.cuda.MemPool(_allocator().allocator())


def pool(device: int | None = None) -> Pool:
    """Return the pool of a device, by its number (by default the current one)."""
    return _binpool.cuda_pool(torch.cuda.current_device() if device is None else device)

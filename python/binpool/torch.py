"""binpool as the allocator of PyTorch, on CUDA.

One line, before the first tensor on a GPU::

    import binpool.torch; binpool.torch.use()

PyTorch's streams are honoured: a tensor that is freed goes to its next user only behind the commands of its stream, and of those that
``Tensor.record_stream`` named.
"""

import ctypes

import torch

from binpool import _binpool

__all__ = ["pool", "use"]


def use():
    """Make binpool the allocator of PyTorch in this process.

    Call it before the first tensor on a GPU: PyTorch takes no other allocator later. ``torch.cuda.memory`` then has no figures of its own:
    :func:`pool` has them.
    """
    library = _binpool.__file__
    allocator = torch.cuda.memory.CUDAPluggableAllocator(library, "binpool_torch_allocate", "binpool_torch_free")
    functions = ctypes.CDLL(library)
    record_stream = ctypes.cast(functions.binpool_torch_record_stream, ctypes.c_void_p).value
    empty_cache = ctypes.cast(functions.binpool_torch_empty_cache, ctypes.c_void_p).value
    allocator.allocator().set_record_stream_fn(record_stream)
    allocator.allocator().set_reset_fn(empty_cache)
    torch.cuda.memory.change_current_allocator(allocator)


def pool(device=None):
    """Return the pool of a device, by its number (by default the current one)."""
    return _binpool.cuda_pool(torch.cuda.current_device() if device is None else device)

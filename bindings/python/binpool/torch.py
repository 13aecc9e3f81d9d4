"""binpool as the allocator of PyTorch, on CUDA.

One line, at any time::

    import binpool.torch; binpool.torch.use()

PyTorch's streams are honoured: a tensor that is freed goes to its next user only after the commands of its stream, and of those that
``Tensor.record_stream`` named.
"""

import ctypes
import functools
import pathlib
import warnings
from typing import Any, NoReturn

import torch

from binpool import Pool, _binpool, _torch_build

__all__ = ["memory_pool", "pool", "use"]

_NO_GRAPHS = (
    "CUDA graphs need the allocator that binpool builds with a C++ compiler (see the warning of binpool.torch.use()): install one, or "
    "leave PyTorch's own allocator in place and take the memory of graphs from the pool, by binpool.torch.memory_pool()"
)


def use() -> None:
    """Make binpool the allocator of PyTorch in this process. Tensors that exist already keep their memory until they are freed.

    The first call on a machine builds a library against the installed PyTorch, which takes a few seconds, with the C++ compiler that the
    variable ``CXX`` names, or ``c++``. It is kept in ``~/.cache/binpool``, or the folder that ``BINPOOL_CACHE_DIR`` names.

    Without a compiler there is a warning, and binpool uses ``torch.cuda.memory.CUDAPluggableAllocator``, which has to come before the
    first use of a GPU, ``torch.cuda.set_device`` included. ``torch.cuda.memory`` then has no figures, and CUDA graphs are refused.
    """
    _use_instead()


@functools.cache
def _use_instead() -> None:
    if torch.version.cuda is None:
        raise RuntimeError("this PyTorch is built without CUDA: binpool.torch needs one with it")
    if _built():
        return
    try:
        torch.cuda.memory.change_current_allocator(_pluggable("binpool_torch_allocate", "binpool_torch_free"))
    except RuntimeError as error:
        raise RuntimeError(
            "PyTorch's allocator is in use already: call binpool.torch.use() before torch.cuda.set_device() and everything else that "
            "uses a GPU, or install a C++ compiler, with which it may be called later"
        ) from error
    _refuse_graphs()


@functools.cache
def _built() -> bool:
    """Install the allocator that is built against PyTorch, and return whether that worked; if not, warn."""
    try:
        _install(_torch_build.library("torch_allocator"))
    except (_torch_build.BuildError, OSError) as error:
        warnings.warn(
            f"binpool could not build its allocator for PyTorch: {error}. It uses CUDAPluggableAllocator instead, without torch.cuda's "
            "memory figures and snapshots, CUDA graphs, torch.cuda.MemPool, and tensors that processes share.",
            RuntimeWarning,
            stacklevel=4,
        )
        return False
    return True


def _install(library: pathlib.Path) -> None:
    """Install the allocator of this library, which is built against PyTorch. ``RuntimeError`` says why PyTorch cannot have it."""
    function = ctypes.CDLL(str(library)).binpool_torch_install
    function.restype = ctypes.c_char_p
    if failure := function(_binpool.__file__.encode()):
        raise RuntimeError(f"binpool cannot be PyTorch's allocator: {failure.decode(errors='replace')}")


def _pluggable(allocate: str, free: str) -> torch.cuda.memory.CUDAPluggableAllocator:
    library = _binpool.__file__
    functions = ctypes.CDLL(library)
    allocator = torch.cuda.memory.CUDAPluggableAllocator(library, allocate, free)
    for set_function, name in [
        ("set_record_stream_fn", "binpool_torch_record_stream"),
        ("set_reset_fn", "binpool_torch_empty_cache"),
        ("set_begin_allocate_to_pool", "binpool_torch_refuse_graph"),
    ]:
        address = ctypes.cast(functions[name], ctypes.c_void_p).value
        getattr(allocator.allocator(), set_function)(address)
    return allocator


def _refuse_graphs() -> None:
    """Refuse graphs before PyTorch begins to capture: an allocator that refuses them later leaves the random generators in the capture."""

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise RuntimeError(_NO_GRAPHS)

    torch.cuda.graph.__enter__ = refuse
    torch.cuda.CUDAGraph.capture_begin = refuse


@functools.cache
def _segments() -> torch.cuda.memory.CUDAPluggableAllocator:
    return _pluggable("binpool_torch_allocate_segment", "binpool_torch_free_segment")


def memory_pool() -> torch.cuda.MemPool:
    """Return a ``torch.cuda.MemPool`` that takes its memory from binpool.

    A program that keeps PyTorch's own allocator has the memory of its graphs from binpool so::

        memory = binpool.torch.memory_pool()
        with torch.cuda.graph(graph, pool=memory.id):
            ...

    After :func:`use`, every ``torch.cuda.MemPool`` takes its memory from binpool.
    """
    if torch.cuda.get_allocator_backend() == "binpool":
        return torch.cuda.MemPool()
    return torch.cuda.MemPool(_segments().allocator())


def pool(device: int | None = None) -> Pool:
    """Return the pool of a device, by its number (by default the current one)."""
    return _binpool.cuda_pool(torch.cuda.current_device() if device is None else device)

"""The types of the library in Rust."""

import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Literal, TypeAlias, TypeVar, final

import pyopencl as cl

from binpool._svm import SVM

__all__ = [
    "CudaBlock",
    "HookId",
    "LiveGroup",
    "MemoryPool",
    "OpenCLPool",
    "Pool",
    "QueueAllocator",
    "Recording",
    "SVMPool",
    "Statistics",
    "__version__",
    "cuda_pool",
    "cupy_allocate",
    "cupy_allocate_unhooked",
    "cupy_choose_whole_allocations",
    "cupy_graph_bytes",
    "cupy_pool",
    "part_of_buffer",
    "release_buffer",
    "view",
]

_Path: TypeAlias = str | bytes | os.PathLike[str] | os.PathLike[bytes]
_Reuse: TypeAlias = Literal["opportunistic", "same_queue", "insert_wait", "wait_on_host"]

@final
class Statistics:
    """The figures of a pool at one moment; sizes in bytes. As a string, a table."""

    active_blocks: int
    """The blocks in use."""
    active_bytes: int
    """The bytes of the blocks in use."""
    peak_active_bytes: int
    """The peak of the bytes in use."""
    viewed_blocks: int
    """The freed blocks that still have views."""
    viewed_bytes: int
    held_blocks: int
    """The free blocks."""
    held_bytes: int
    pending_blocks: int
    """The free blocks whose commands may still run."""
    pending_bytes: int
    managed_bytes: int
    """The bytes that the pool has from the device."""
    peak_managed_bytes: int
    """The peak of the bytes from the device."""
    planned_blocks: int
    """The blocks of a period, if the program repeats its work and the pool has a plan for it; otherwise 0."""
    planned_bytes: int
    """The bytes of the segments with planned places."""
    planned_peak_bytes: int
    """The most of the planned bytes that are in use at once."""
    hits: int
    """The requests served from free memory."""
    ended_hits: int
    """The hits with a block of another queue whose commands had ended."""
    device_wait_hits: int
    """The hits for which a queue was made to wait."""
    host_wait_hits: int
    """The hits for which the host waited."""
    carved_hits: int
    """The hits with a block carved from a segment."""
    misses: int
    """The requests that needed memory from the device."""
    empty_allocations: int
    out_of_memory: int
    """The requests that failed for lack of memory."""
    released_blocks: int
    """The blocks and segments released to the device."""
    maps: int
    unmaps: int
    move_nanoseconds: int
    hit_rate: float
    """The share of all requests that were hits, from 0 to 1."""

@final
class LiveGroup:
    """Blocks in use that one line of the program requested, under one tag."""

    tag: str | None
    """The tag of the request; ``None`` without one."""
    call_site: str | None
    """The line, as ``file.py:12 in function``; ``None`` for blocks from before ``watch``."""
    blocks: int
    bytes: int
    """The bytes that were requested."""
    oldest_seconds: float | None
    """``None`` for blocks from before ``watch``."""

@final
class Recording:
    """A recording of a pool. It goes on until it is finished, by :meth:`finish` or at the end of a ``with`` statement."""

    @property
    def path(self) -> Path: ...
    def finish(self) -> Path:
        """End the recording, write the rest of it, and return the path of its file."""
    def view(self, page: _Path) -> Path:
        """Write a page for the browser that shows the finished recording, and return its path."""
    def __enter__(self) -> Recording: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...

@final
class HookId:
    """Identifies a hook of a pool, to remove it again."""

class Pool:
    """What all pools have in common. All methods may be called from any thread."""

    limit: int | None
    """The most bytes that the pool takes from the device, at least 1; ``None`` for no limit."""
    @property
    def statistics(self) -> Statistics: ...
    def trim(self, bytes: int = 0) -> int:
        """Release free memory until the pool has at most ``bytes`` bytes of the device; return the bytes released."""
    def add_reclaim_hook(self, hook: Callable[[int], object]) -> HookId:
        """Add a function that frees memory when a request of this many bytes finds none; it is called before the request fails, and again
        while it returns a true value: that it freed something."""
    def remove_reclaim_hook(self, id: HookId) -> bool:
        """Remove what :meth:`add_reclaim_hook` has added; return whether it was there."""
    def watch(self) -> None:
        """Begin to track which line of the program requests each block."""
    def stop_watching(self) -> None:
        """End what :meth:`watch` began, and its cost. A recording that is not finished goes on."""
    def live_blocks(self) -> list[LiveGroup]:
        """Return the blocks in use by the lines that requested them, largest first; an error if the pool is not watched."""
    def report(self) -> str:
        """Return the figures and the blocks in use, as a text to read or log."""
    def record(self, path: _Path) -> Recording:
        """Record every request, with its line of the program, in a file."""
    def snapshot(self) -> str:
        """Return what the pool has, block by block, as JSON."""
    def view(self, page: _Path) -> Path:
        """Write a page for the browser that shows the pool at this moment, and return its path."""

_Block = TypeVar("_Block", cl.Buffer, SVM, covariant=True)

@final
class QueueAllocator(Generic[_Block]):
    """An allocator for arrays of one queue or several."""

    def __call__(self, bytes: int) -> _Block: ...
    def allocate(self, bytes: int) -> _Block: ...

class OpenCLPool(Pool, Generic[_Block]):
    """What all pools for PyOpenCL have in common, with the methods and figures of PyOpenCL's own pools."""

    @property
    def active_blocks(self) -> int: ...
    @property
    def active_bytes(self) -> int: ...
    @property
    def held_blocks(self) -> int: ...
    @property
    def managed_bytes(self) -> int: ...
    def free_held(self) -> int:
        """Release all free memory, and return the bytes released; the same as :meth:`trim`."""
    def stop_holding(self) -> int:
        """Release all free memory, and from now on each block when it is dropped; return the bytes released."""

    def on(self, queue: cl.CommandQueue) -> QueueAllocator[_Block]:
        """Return the allocator for arrays of ``queue``."""
    def on_any(self, *queues: cl.CommandQueue) -> QueueAllocator[_Block]:
        """Return an allocator for arrays that commands on any of these queues use."""
    def used_on(self, data: object, queue: cl.CommandQueue) -> None:
        """Record that commands on ``queue`` use an array, or what an allocator of this pool returned."""
    def __call__(self, bytes: int) -> _Block:
        """Return a block of at least ``bytes`` bytes for the pool's queue."""
    def allocate(self, bytes: int) -> _Block:
        """Return a block, as a call does."""

@final
class MemoryPool(OpenCLPool[cl.Buffer]):
    """A pool of buffers for PyOpenCL, and an allocator for the queue that it was made for."""

    segments: bool
    """Whether blocks are parts of larger buffers instead of buffers of their own."""
    def __new__(
        cls,
        context_or_queue: cl.Context | cl.CommandQueue,
        *,
        device: cl.Device | None = None,
        limit: int | None = None,
        segments: bool | None = None,
        reuse: _Reuse = "opportunistic",
    ) -> MemoryPool: ...

@final
class SVMPool(OpenCLPool[SVM]):
    """A pool of shared virtual memory for PyOpenCL, used as a :class:`MemoryPool` is."""

    def __new__(
        cls,
        context_or_queue: cl.Context | cl.CommandQueue,
        *,
        device: cl.Device | None = None,
        limit: int | None = None,
        fine_grained: bool = False,
        reuse: _Reuse = "opportunistic",
    ) -> SVMPool: ...

__version__: str

def view(recording: _Path, page: _Path) -> Path:
    """Write a page for the browser that shows a recording of a pool, and return its path."""

def release_buffer(buffer: cl.Buffer) -> None:
    """Release the block or the part that a buffer is."""

def part_of_buffer(buffer: cl.Buffer, origin: int, size: int, flags: int) -> cl.Buffer:
    """Return a buffer over a part of a buffer of binpool's."""

def cuda_pool(device: int) -> Pool:
    """Return the pool of a CUDA device, which PyTorch allocates from."""

@final
class CudaBlock:
    """A block of CuPy's, which is released when Python drops this."""

def cupy_allocate(bytes: int) -> Any:
    """Return a ``cupy.cuda.MemoryPointer`` for the current stream of the current device, and call the thread's hooks."""

def cupy_allocate_unhooked(bytes: int) -> Any:
    """Do the same without hooks."""

def cupy_choose_whole_allocations(are_chosen: bool) -> None:
    """Choose whether each block is an allocation of ``cuMemAlloc`` from now on."""

def cupy_pool(device: int) -> Pool:
    """Return the pool of CuPy's blocks on a device."""

def cupy_graph_bytes(device: int) -> int:
    """Return the bytes that are kept for the graphs of a device."""

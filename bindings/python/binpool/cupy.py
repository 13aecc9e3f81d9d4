"""binpool as the allocator of CuPy, on CUDA.

One line::

    import binpool.cupy; binpool.cupy.use()

CuPy's streams are honoured: an array belongs to the stream that was current when it was made. CuPy's own calls answer:
``cupy.get_default_memory_pool()`` has the figures, limits and frees of binpool's pool of the current device.
"""

import os

import cupy
from cupy.cuda import memory_hook

from binpool import Pool, _binpool, _errors

__all__ = ["DefaultPool", "OutOfMemoryError", "allocator", "pool", "use"]

# CuPy counts memory in multiples of this many bytes.
_UNIT = 512

# The streams that arrays were made for. The pool may ask one whether its commands have ended as long as the program runs, so they
# are kept.
_streams: dict[tuple[int, int], object] = {}

# The devices to which the limit of the environment was applied.
_limited: set[int] = set()

#: Returns a ``cupy.cuda.MemoryPointer`` to this many bytes for the current stream of the current device.
allocator = _binpool.cupy_allocate


class OutOfMemoryError(_errors.OutOfMemoryError, cupy.cuda.memory.OutOfMemoryError):  # type: ignore[misc]
    """Out of memory, as CuPy and binpool raise it. The text begins as CuPy's own, and continues with the pool's report."""

    def __init__(self, size: int, total: int, limit: int = 0, report: str = "") -> None:
        cupy.cuda.memory.OutOfMemoryError.__init__(self, size, total, limit)
        self._report = report
        self.args = (f"{self.args[0]}\n{report}",)

    def __reduce__(self) -> tuple[type, tuple[int, int, int, str]]:
        return type(self), (self._size, self._total, self._limit, self._report)


class DefaultPool(cupy.cuda.MemoryPool):  # type: ignore[misc]
    """binpool's pools in place of CuPy's default pool. Each method is about the pool of the current device."""

    malloc = staticmethod(allocator)

    def used_bytes(self) -> int:
        """Return the bytes of blocks in use, including those kept for graphs."""
        return _graph_bytes() + pool().statistics.active_bytes

    def total_bytes(self) -> int:
        """Return the bytes that the pool and the graphs have from the device."""
        return _graph_bytes() + pool().statistics.managed_bytes

    def free_bytes(self) -> int:
        """Return the bytes that the pool has from the device and that are not in use."""
        statistics = pool().statistics
        return statistics.managed_bytes - statistics.active_bytes

    def n_free_blocks(self) -> int:
        """Return the number of free blocks."""
        return pool().statistics.held_blocks

    def free_all_blocks(self, stream: cupy.cuda.Stream | None = None) -> None:
        """Release free memory to the device: that of all streams, even if one is named."""
        _graph_bytes()
        pool().trim()

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        """Set the most bytes that the pool takes from the device, or a fraction of all that the device has; 0 means no limit."""
        if size is not None and fraction is not None:
            raise ValueError("size and fraction cannot be specified at one time")
        if size is None and fraction is not None:
            if not 0 <= fraction <= 1:
                raise ValueError(f"memory limit fraction out of range: {fraction}")
            _, total = cupy.cuda.runtime.memGetInfo()
            size = int(fraction * total)
        if size is not None and size < 0:
            raise ValueError(f"memory limit size out of range: {size}")
        pool().limit = size or None

    def get_limit(self) -> int:
        """Return the limit in bytes; 0 for no limit."""
        return pool().limit or 0


def use(*, ipc: bool = False) -> None:
    """Make binpool the allocator of CuPy in this process.

    ``cupy.get_default_memory_pool()`` is a :class:`DefaultPool` from now on. With ``ipc``, each array is an allocation of ``cuMemAlloc``
    of its own, as ``cupy.cuda.runtime.ipcGetMemHandle`` needs it. That takes more memory than blocks carved from larger ones.
    """
    _binpool.cupy_choose_whole_allocations(ipc)
    cupy.cuda.set_allocator(allocator)
    cupy._default_memory_pool = DefaultPool()


def pool(device: int | None = None) -> Pool:
    """Return the pool of a device, by its number (by default the current one).

    PyTorch has the same pool, if it uses binpool, too, and CuPy was not told to use one for IPC.
    """
    device = cupy.cuda.runtime.getDevice() if device is None else device
    found = _binpool.cupy_pool(device)
    _apply_limit(device, found)
    return found


def _graph_bytes() -> int:
    """Return the bytes kept for graphs. Call this before reading the pool's figures: it releases what ended graphs kept."""
    return _binpool.cupy_graph_bytes(cupy.cuda.runtime.getDevice())


def _apply_limit(device: int, pool: Pool) -> None:
    """Set the limit of the environment, once, as CuPy's own pool does."""
    if device in _limited:
        return
    _limited.add(device)
    limit = os.environ.get("CUPY_GPU_MEMORY_LIMIT")
    if limit is None:
        return
    if limit.endswith("%"):
        with cupy.cuda.Device(device):
            _, total = cupy.cuda.runtime.memGetInfo()
        pool.limit = int(float(limit[:-1]) / 100 * total) or None
    else:
        pool.limit = int(limit) or None


def _first_use(device: int, address: int) -> None:
    """Keep the current stream, which has this address, and apply the limit of the environment to a new pool."""
    _streams[device, address] = cupy.cuda.get_current_stream()
    pool(device)


def _lacking(size: int, total: int, limit: int, report: str) -> OutOfMemoryError:
    return OutOfMemoryError(size, total, limit, report)


def _rounded(bytes: int) -> int:
    return -(-bytes // _UNIT) * _UNIT


def _hooked(bytes: int) -> cupy.cuda.MemoryPointer:
    """Allocate, and call the thread's hooks as CuPy's own pool does. They learn of memory from the device after the pool has it."""
    hooks = memory_hook.get_memory_hooks().values()
    device, rounded = cupy.cuda.runtime.getDevice(), _rounded(bytes)
    for hook in hooks:
        hook.malloc_preprocess(device_id=device, size=bytes, mem_size=rounded)
    before = pool(device).statistics.managed_bytes
    pointer = None
    try:
        pointer = _binpool.cupy_allocate_unhooked(bytes)
        grown = pool(device).statistics.managed_bytes - before
        if grown > 0:
            for hook in hooks:
                hook.alloc_preprocess(device_id=device, mem_size=grown)
            for hook in hooks:
                hook.alloc_postprocess(device_id=device, mem_size=grown, mem_ptr=pointer.ptr)
    finally:
        address, number = (0, 0) if pointer is None else (pointer.ptr, id(pointer.mem))
        for hook in hooks:
            hook.malloc_postprocess(device_id=device, size=bytes, mem_size=rounded, mem_ptr=address, pmem_id=number)
    return pointer


def _before_free(device: int, bytes: int, address: int, number: int) -> None:
    for hook in memory_hook.get_memory_hooks().values():
        hook.free_preprocess(device_id=device, mem_size=_rounded(bytes), mem_ptr=address, pmem_id=number)


def _after_free(device: int, bytes: int, address: int, number: int) -> None:
    for hook in memory_hook.get_memory_hooks().values():
        hook.free_postprocess(device_id=device, mem_size=_rounded(bytes), mem_ptr=address, pmem_id=number)

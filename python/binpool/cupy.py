"""binpool as the allocator of CuPy, on CUDA.

One line::

    import binpool.cupy; binpool.cupy.use()

CuPy's streams are honoured: an array belongs to the stream that was current when it was made.
"""

import cupy

from binpool import Pool, _binpool

__all__ = ["allocator", "pool", "use"]

# The streams that arrays were made for. The pool may ask one whether its commands have ended as long as the program runs, so they
# are kept.
_streams: dict[int, object] = {}


def allocator(bytes: int) -> cupy.cuda.MemoryPointer:
    """Return a ``cupy.cuda.MemoryPointer`` to ``bytes`` bytes for the current stream of the current device."""
    device = cupy.cuda.runtime.getDevice()
    if bytes == 0:
        return cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(0, 0, None, device), 0)
    stream = cupy.cuda.get_current_stream()
    address = stream.ptr
    if address not in _streams:
        _streams[address] = stream
    block = _binpool.cuda_allocate(bytes, device, address)
    return cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(block.pointer, bytes, block, device), 0)


def use() -> None:
    """Make binpool the allocator of CuPy in this process."""
    cupy.cuda.set_allocator(allocator)


def pool(device: int | None = None) -> Pool:
    """Return the pool of a device, by its number (by default the current one).

    PyTorch has the same pool, if it uses binpool, too.
    """
    return _binpool.cuda_pool(cupy.cuda.runtime.getDevice() if device is None else device)

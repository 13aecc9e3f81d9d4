"""Memory pools for PyOpenCL, PyTorch and CuPy.

For PyOpenCL::

    import binpool
    pool = binpool.MemoryPool(queue)
    a = pyopencl.array.zeros(queue, 1000, numpy.float32, allocator=pool)

For PyTorch and CuPy over CUDA, see :mod:`binpool.torch` and :mod:`binpool.cupy`.
"""

from binpool._binpool import (
    HookId,
    LiveGroup,
    MemoryPool,
    OpenCLPool,
    Pool,
    QueueAllocator,
    Recording,
    Statistics,
    SVMPool,
    __version__,
    view,
)
from binpool._errors import Error, OutOfMemoryError
from binpool._tag import tag

__all__ = [
    "Error",
    "HookId",
    "LiveGroup",
    "MemoryPool",
    "OpenCLPool",
    "OutOfMemoryError",
    "Pool",
    "QueueAllocator",
    "Recording",
    "SVMPool",
    "Statistics",
    "__version__",
    "tag",
    "view",
]

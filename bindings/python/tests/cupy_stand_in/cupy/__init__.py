"""A stand-in for CuPy, as far as binpool needs it, for tests without a GPU."""

from cupy import cuda

_default_memory_pool = cuda.MemoryPool()


def get_default_memory_pool():
    return _default_memory_pool

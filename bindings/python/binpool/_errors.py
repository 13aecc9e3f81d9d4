"""The exceptions of binpool."""

import builtins
import functools


class Error(Exception):
    """A pool could not do what was requested. The text says why, and what to do.

    Where PyOpenCL is in use, it is a :class:`pyopencl.Error`, too: a ``LogicError`` for a request that makes no sense.
    """


class OutOfMemoryError(Error, builtins.MemoryError):
    """Neither the pool nor the device has the memory. The text is a report: what holds it, why nothing fits, what to do.

    Where PyOpenCL is in use, it is a :class:`pyopencl.MemoryError`, too.
    """


@functools.cache
def of_pyopencl(error: type[Error], also: type[Exception]) -> type[Error]:
    """Return one of these errors as a kind of PyOpenCL's, too."""
    return type(error.__name__, (error, also), {"__module__": "binpool", "__doc__": error.__doc__})

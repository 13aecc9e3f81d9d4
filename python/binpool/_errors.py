"""The exceptions of binpool."""

import builtins


class Error(Exception):
    """A pool could not do what was requested. The text says why, and what to do."""


class OutOfMemoryError(Error, builtins.MemoryError):
    """Neither the pool nor the device has the memory. The text is a report: what holds it, why nothing fits, what to do.

    Where PyOpenCL is in use, it is a :class:`pyopencl.MemoryError`, too.
    """


def of_pyopencl(memory_error: type[Exception]) -> type[OutOfMemoryError]:
    """Return the error as a kind of ``pyopencl.MemoryError``, too."""
    name = OutOfMemoryError.__name__
    return type(name, (OutOfMemoryError, memory_error), {"__module__": "binpool", "__doc__": OutOfMemoryError.__doc__})

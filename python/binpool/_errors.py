"""The exceptions of binpool."""

import builtins
import functools
import sys


class Error(Exception):
    """A pool could not do what it was asked for. The text says why, and what to do."""


class OutOfMemoryError(Error, builtins.MemoryError):
    """Neither the pool nor the device has the memory. The text is a report: who has it, why nothing fits, what to do.

    Where PyOpenCL is in use, it is a :class:`pyopencl.MemoryError`, too.
    """


@functools.cache
def _of_pyopencl(memory_error: type[Exception]) -> type[OutOfMemoryError]:
    name = OutOfMemoryError.__name__
    return type(name, (OutOfMemoryError, memory_error), {"__module__": "binpool", "__doc__": OutOfMemoryError.__doc__})


def out_of_memory_class() -> type[OutOfMemoryError]:
    """Return the class of what is raised: a kind of ``pyopencl.MemoryError``, if the program has imported PyOpenCL."""
    pyopencl = sys.modules.get("pyopencl")
    return OutOfMemoryError if pyopencl is None else _of_pyopencl(pyopencl.MemoryError)

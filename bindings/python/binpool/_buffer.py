"""Blocks of buffers."""

import pyopencl

from binpool import _binpool, _errors


class Buffer(pyopencl.Buffer):
    """A block of a :class:`MemoryPool`, which goes back once: by :meth:`release`, or when Python drops it.

    Or a part of one, which keeps it.
    """

    # A `pyopencl.Buffer` becomes one of these, so they have nothing that it has not.
    __slots__ = ()

    def release(self) -> None:
        """Return the block to its pool. Commands enqueued before may still use it; apart from them, only its parts may."""
        _binpool.release_buffer(self)

    def get_sub_region(self, origin: int, size: int, flags: int = 0) -> pyopencl.Buffer:
        """Return a buffer over ``size`` bytes from the byte ``origin`` on. While it exists, the pool does not reuse the block."""
        if size == 0:
            raise _errors.of_pyopencl(_errors.Error, pyopencl.LogicError)("an empty part: a buffer of OpenCL has at least one byte")
        part: pyopencl.Buffer = _binpool.part_of_buffer(self, origin, size, flags)
        return part

    def __getitem__(self, part: slice) -> pyopencl.Buffer:
        if not isinstance(part, slice):
            raise TypeError(f"a part of a buffer is a slice, not {type(part).__name__}")
        start, stop, step = part.indices(self.size)
        if step != 1:
            raise ValueError(f"a part of a buffer is contiguous: use a step of 1, not {step}")
        return self.get_sub_region(start, max(stop - start, 0))

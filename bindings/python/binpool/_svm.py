"""Blocks of shared virtual memory."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyopencl


class SVM(pyopencl.SVM):  # type: ignore[type-arg] # It is generic for type checkers only.
    """A block of an :class:`SVMPool`, which is released once: by :meth:`release`, :meth:`enqueue_release`, or when Python drops it.

    A view of its bytes on the host (``memoryview(block.mem)``, ``numpy.asarray(block.mem)``, ``block.buf``) keeps it. While one is left,
    a release is refused by a ``BufferError``, as a change of the size of a ``bytearray`` is.
    """

    @property
    def buf(self) -> npt.NDArray[np.uint8]:
        """The bytes on the host, as an array."""
        return np.frombuffer(self.mem, np.uint8)

    def release(self) -> None:
        """Return the block to its pool. Commands enqueued before may still use it; nothing else may."""
        self.mem.release()

    def enqueue_release(
        self, queue: pyopencl.CommandQueue | None = None, wait_for: Sequence[pyopencl.Event] | None = None
    ) -> pyopencl.Event:
        """Release the block by a command on ``queue``, or on the block's own, and return the event of that command."""
        event: pyopencl.Event = self.mem.enqueue_release(queue, wait_for)
        return event

    def bind_to_queue(self, queue: pyopencl.CommandQueue) -> None:
        """Make ``queue`` the block's only queue: what is enqueued there from now on runs after the commands of its former queues.

        A queue that is out of order is refused. The block then stays as it was: on its former queue, or without one.
        """
        self.mem.bind_to_queue(queue)

    def unbind_from_queue(self) -> None:
        """Wait for the commands of the block's queues, and leave it without a queue.

        Before a command uses the block again, name its queue by :meth:`bind_to_queue` or by the pool's ``used_on``. The pool does not wait
        for other commands: it may free the memory, or give it to the next request, while they run.
        """
        self.mem.unbind_from_queue()

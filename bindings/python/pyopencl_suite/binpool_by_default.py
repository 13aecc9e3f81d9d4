"""A plugin of pytest that makes pools of binpool the default allocator of PyOpenCL's arrays.

PyOpenCL's own tests run with it as they are: an array that names no allocator gets its memory from a pool of its context, by the
allocator of its queue. ``BINPOOL_SUITE`` chooses another: ``stock`` leaves PyOpenCL's default (no pool), ``svm`` takes binpool's pool of
shared virtual memory, and ``pyopencl`` and ``pyopencl_svm`` take PyOpenCL's own pools.
"""

import functools
import os

import pyopencl as cl
import pyopencl.array as cl_array
import pyopencl.tools as cl_tools
import pytest

import binpool

_CHOICE = os.environ.get("BINPOOL_SUITE", "binpool")
_pools = {}
_requests = 0


def _allocator(queue):
    pool = _pools.get(queue.context)
    if pool is None:
        if _CHOICE == "pyopencl":
            pool = cl_tools.MemoryPool(cl_tools.ImmediateAllocator(queue))
        elif _CHOICE == "pyopencl_svm":
            pool = cl_tools.SVMPool(cl_tools.SVMAllocator(queue.context, 0, queue=queue))
        elif _CHOICE == "svm":
            pool = binpool.SVMPool(queue)
        else:
            pool = binpool.MemoryPool(queue)
        _pools[queue.context] = pool
    return pool if _CHOICE.startswith("pyopencl") else pool.on(queue)


def requests():
    """Return how many arrays have got the allocator so far."""
    return _requests


_array_init = cl_array.Array.__init__


@functools.wraps(_array_init)
def _init(self, cq, shape, dtype, order="C", allocator=None, *args, **kwargs):
    global _requests
    if allocator is None and isinstance(cq, cl.CommandQueue) and kwargs.get("data") is None:
        allocator = _allocator(cq)
        _requests += 1
    _array_init(self, cq, shape, dtype, order, allocator, *args, **kwargs)


if _CHOICE != "stock":
    cl_array.Array.__init__ = _init


@pytest.fixture(autouse=True)
def _pools_of_one_test():
    yield
    _pools.clear()


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"allocator: {_CHOICE}; arrays without one that got it: {requests()}")

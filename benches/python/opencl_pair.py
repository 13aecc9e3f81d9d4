"""What an allocation and its free cost in Python: PyOpenCL's buffers and pools, and binpool's.

    python opencl_pair.py

Prints the median of 15 runs for each, in nanoseconds a pair.
"""

import functools

import pyopencl as cl
import pyopencl.tools as cl_tools

import binpool
from pairs import median_ns


def main():
    device = cl.get_platforms()[0].get_devices()[0]
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    read_write = cl.mem_flags.READ_WRITE
    pool = binpool.MemoryPool(queue)
    allocators = {
        "no pool": lambda bytes: cl.Buffer(context, read_write, bytes),
        "PyOpenCL's MemoryPool": cl_tools.MemoryPool(cl_tools.ImmediateAllocator(queue)),
        "binpool.MemoryPool": pool.on(queue),
        "binpool.MemoryPool, segments=False": binpool.MemoryPool(queue, segments=False).on(queue),
    }
    if device.svm_capabilities:
        svm = cl_tools.SVMAllocator(context, 0, queue=queue)
        allocators["PyOpenCL's SVMPool"] = cl_tools.SVMPool(svm)
        allocators["binpool.SVMPool"] = binpool.SVMPool(queue).on(queue)
    print(f"{device.platform.name}, {device.name}: nanoseconds a pair")
    for bytes in (4096, 1 << 20):
        found = median_ns(*(functools.partial(allocate, bytes) for allocate in allocators.values()))
        for name, nanoseconds in zip(allocators, found, strict=True):
            print(f"{bytes:>8} bytes  {name:<36} {nanoseconds:8.0f}")


main()

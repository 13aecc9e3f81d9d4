"""What an allocation and its free cost in Python: PyOpenCL's buffers and pools, and binpool's.

    python opencl_pair.py

Prints the median of 15 runs for each, in nanoseconds a pair.
"""

import statistics
import timeit

import pyopencl as cl
import pyopencl.tools as cl_tools

import binpool

RUNS, PAIRS = 15, 20_000


def pairs(allocators, bytes):
    """Time all allocators in turn, so that what else the machine does meets each alike."""
    times = {name: [] for name in allocators}
    for _ in range(RUNS):
        for name, allocate in allocators.items():
            times[name].append(timeit.timeit(lambda: allocate(bytes), number=PAIRS) / PAIRS * 1e9)
    return {name: statistics.median(runs) for name, runs in times.items()}


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
        for name, nanoseconds in pairs(allocators, bytes).items():
            print(f"{bytes:>8} bytes  {name:<36} {nanoseconds:8.0f}")


main()

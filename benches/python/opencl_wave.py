"""A wave on a square, in PyOpenCL: how much device memory a program of a page takes, without a pool and with each.

    python opencl_wave.py none|pyopencl|binpool [SIDE [STEPS]]

The domain is refined as the wave spreads, so that the sizes of arrays change, and all that a step computes is a new array. With
binpool it also writes `wave.trace` and `wave.html`, the page of `binpool view`.
"""

import sys
import time

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pyopencl.tools as cl_tools


def refine(u, side, new_side, queue, allocator):
    """The same wave on a finer grid."""
    old = u.get().reshape(side, side)
    rows = np.linspace(0, side - 1, new_side).astype(int)
    return cl_array.to_device(queue, np.ascontiguousarray(old[np.ix_(rows, rows)]).ravel(), allocator=allocator)


def main():
    choice = sys.argv[1]
    side = int(sys.argv[2]) if len(sys.argv) > 2 else 256
    steps = int(sys.argv[3]) if len(sys.argv) > 3 else 40
    context = cl.Context([cl.get_platforms()[0].get_devices()[0]])
    queue = cl.CommandQueue(context)
    pool = None
    if choice == "binpool":
        import binpool

        pool = binpool.MemoryPool(queue)
        recording = pool.record("wave.trace")
    elif choice == "pyopencl":
        pool = cl_tools.MemoryPool(cl_tools.ImmediateAllocator(queue))

    peak = 0
    begin = time.perf_counter()
    x = np.linspace(-1, 1, side, dtype=np.float32)
    bump = np.exp(-40 * (x[:, None] ** 2 + x[None, :] ** 2)).ravel()
    u = cl_array.to_device(queue, bump, allocator=pool)
    before = u.copy()
    for step in range(steps):
        if step and step % 8 == 0:
            finer = side + side // 8
            u, before = (refine(it, side, finer, queue, pool) for it in (u, before))
            side = finer
        # The rows above and below, and the columns beside, as arrays of their own.
        up = cl_array.concatenate([u[side:], u[:side]])
        down = cl_array.concatenate([u[-side:], u[:-side]])
        left = cl_array.concatenate([u[1:], u[:1]])
        right = cl_array.concatenate([u[-1:], u[:-1]])
        after = 2 * u - before + 0.1 * (up + down + left + right - 4 * u)
        before, u = u, after
        if choice == "pyopencl":
            peak = max(peak, pool.managed_bytes)
    energy = float(cl_array.vdot(u, u).get())
    queue.finish()
    seconds = time.perf_counter() - begin
    if choice == "binpool":
        recording.finish()
        recording.view("wave.html")
        peak = pool.statistics.peak_managed_bytes
        print(f"in use at most {pool.statistics.peak_active_bytes / 2**20:.1f} MiB")
    print(f"{choice}: reserved at most {peak / 2**20:.1f} MiB, energy {energy:.6f}, {seconds:.2f} s")


main()

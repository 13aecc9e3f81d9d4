#!/usr/bin/env python3
"""Times a pair of allocation and free with CuPy's own pool and with binpool, in turns within one process, in nanoseconds."""

import functools
import statistics
import time

import cupy
from cupy.cuda import memory

import binpool.cupy

SIZES = [("1 KiB", 1 << 10), ("1 MiB", 1 << 20), ("64 MiB", 64 << 20)]
ROUNDS, PAIRS = 15, 10_000


def nanoseconds(function, *arguments):
    began = time.perf_counter_ns()
    for _ in range(PAIRS):
        function(*arguments)
    return (time.perf_counter_ns() - began) / PAIRS


def main():
    own = cupy.cuda.MemoryPool()
    binpool.cupy.use()
    allocators = {"CuPy": own.malloc, "binpool": binpool.cupy.allocator}
    streams = {"null": cupy.cuda.Stream.null, "own": cupy.cuda.Stream(non_blocking=True)}
    print("| stream | call | CuPy's pool | binpool | ratio |\n|---|---|---:|---:|---:|")
    for stream_name, stream in streams.items():
        for size_name, bytes in SIZES:
            calls = {"cupy.empty": functools.partial(cupy.empty, bytes, "u1"), "cupy.cuda.alloc": functools.partial(memory.alloc, bytes)}
            for call_name, call in calls.items():
                found = {name: [] for name in allocators}
                with stream:
                    for _ in range(ROUNDS):
                        for name, allocator in allocators.items():
                            cupy.cuda.set_allocator(allocator)
                            call()
                            found[name].append(nanoseconds(call))
                theirs, ours = [statistics.median(found[name]) for name in allocators]
                print(f"| {stream_name} | {call_name} of {size_name} | {theirs:.0f} | {ours:.0f} | {ours / theirs:.2f} |", flush=True)


if __name__ == "__main__":
    main()

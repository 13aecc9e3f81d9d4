#!/usr/bin/env python3
"""Runs a program of CuPy over one allocator, and prints results, times and memory as JSON:

    cupy_program.py {wave,gradients,pairs} {cupy,binpool} [--steps N]

`wave` steps the wave equation, and `gradients` solves Poisson's equation by conjugate gradients, on grids of varying sizes: both by
expressions of whole arrays, each of whose parts is a temporary. `pairs` times an allocation and its free.
"""

import argparse
import json
import random
import statistics
import time

import cupy

from pairs import median_ns

SEED = 20261125
GIB = 1 << 30


def wave(choose):
    """A hundred steps of the wave equation. Returns the energy."""
    side = choose.randint(1024, 3072)
    now = cupy.random.default_rng(SEED).random((side, side), dtype=cupy.float32)
    before = now.copy()
    for _ in range(100):
        around = (cupy.roll(now, 1, 0) + cupy.roll(now, -1, 0) + cupy.roll(now, 1, 1) + cupy.roll(now, -1, 1)) - 4 * now
        now, before = 2 * now - before + 0.1 * around, now
    return float(((now - before) ** 2).mean())


def gradients(choose):
    """Fifty rounds of conjugate gradients. Returns what is left of the residual."""
    side = choose.randint(1024, 3072)

    def poisson(x):
        padded = cupy.pad(x, 1)
        return 4 * x - padded[:-2, 1:-1] - padded[2:, 1:-1] - padded[1:-1, :-2] - padded[1:-1, 2:]

    rest = cupy.random.default_rng(SEED).random((side, side), dtype=cupy.float32)
    found, direction = cupy.zeros_like(rest), rest.copy()
    length = (rest * rest).sum()
    for _ in range(50):
        image = poisson(direction)
        share = length / (direction * image).sum()
        found = found + share * direction
        rest = rest - share * image
        former, length = length, (rest * rest).sum()
        direction = rest + (length / former) * direction
    return float(length)


def run(program, steps):
    choose = random.Random(SEED)
    free, total = cupy.cuda.runtime.memGetInfo()
    before, used = total - free, 0
    results, times = [], []
    for _ in range(steps):
        cupy.cuda.Device().synchronize()
        began = time.perf_counter()
        results.append(program(choose))
        cupy.cuda.Device().synchronize()
        times.append(time.perf_counter() - began)
        free, total = cupy.cuda.runtime.memGetInfo()
        used = max(used, total - free - before)
    return {
        "results": results,
        "median_ms": 1e3 * statistics.median(times[steps // 4:]),
        "total_s": sum(times),
        "used_gib": used / GIB,
    }


def pairs():
    cupy.zeros(1)  # Makes the context of the device, which other programs have.
    array, memory, nothing = median_ns(
        lambda: cupy.empty(1 << 20, cupy.uint8),
        lambda: cupy.cuda.alloc(1 << 20),
        lambda: None,
    )
    return {"array_ns": array, "memory_ns": memory, "nothing_ns": nothing}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program", choices=["wave", "gradients", "pairs"])
    parser.add_argument("allocator", choices=["cupy", "binpool"])
    parser.add_argument("--steps", type=int, default=30)
    options = parser.parse_args()
    said = {"program": options.program, "allocator": options.allocator}
    if options.allocator == "binpool":
        import binpool.cupy

        binpool.cupy.use()

        def peak_bytes():
            return binpool.cupy.pool().statistics.peak_managed_bytes
    else:
        peak_bytes = cupy.get_default_memory_pool().total_bytes  # It never shrinks here.
    if options.program == "pairs":
        said |= pairs()
    else:
        said |= run({"wave": wave, "gradients": gradients}[options.program], options.steps)
        said["reserved_gib"] = peak_bytes() / GIB
    print(json.dumps(said))


if __name__ == "__main__":
    main()

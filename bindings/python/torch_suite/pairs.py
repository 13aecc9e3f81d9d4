"""Host time of `torch.empty` and its end, in nanoseconds: the least of some rounds, after warming up."""

import sys
import time

import torch
from checks import use


def pair_ns(size: int, rounds: int = 20, pairs: int = 2000) -> float:
    least = float("inf")
    for _ in range(rounds):
        start = time.perf_counter_ns()
        for _ in range(pairs):
            torch.empty(size, dtype=torch.uint8, device="cuda")
        least = min(least, (time.perf_counter_ns() - start) / pairs)
    return least


if __name__ == "__main__":
    which = sys.argv[1] if len(sys.argv) > 1 else "binpool"
    if which == "pluggable":
        from binpool import _binpool

        memory = torch.cuda.memory
        allocator = memory.CUDAPluggableAllocator(_binpool.__file__, "binpool_torch_allocate", "binpool_torch_free")
        memory.change_current_allocator(allocator)
    else:
        use([which])
    kept = [torch.empty(1 << 20, dtype=torch.uint8, device="cuda") for _ in range(10)]
    print(which, {name: round(pair_ns(size)) for name, size in [("1 KiB", 1 << 10), ("1 MiB", 1 << 20), ("64 MiB", 64 << 20)]}, flush=True)

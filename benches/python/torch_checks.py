#!/usr/bin/env python3
"""Checks PyTorch over the pool, on a device: `torch_checks.py LIBRARY`. Each check is a process. Prints what was seen, and fails where
that is wrong."""

import ctypes
import subprocess
import sys


def torch_over(library):
    import torch

    allocator = torch.cuda.memory.CUDAPluggableAllocator(library, "binpool_torch_allocate", "binpool_torch_free")
    loaded = ctypes.CDLL(library)
    address = lambda function: ctypes.cast(function, ctypes.c_void_p).value
    allocator.allocator().set_record_stream_fn(address(loaded.binpool_torch_record_stream))
    allocator.allocator().set_reset_fn(address(loaded.binpool_torch_empty_cache))
    return torch, allocator


def a_lack_of_memory_is_an_exception(library):
    torch, allocator = torch_over(library)
    torch.cuda.memory.change_current_allocator(allocator)
    for _ in range(3):
        try:
            torch.empty(1 << 44, dtype=torch.uint8, device="cuda")
        except Exception as error:  # noqa: BLE001 (which one it is, is the question)
            caught = error
        print(type(caught), isinstance(caught, torch.OutOfMemoryError), isinstance(caught, RuntimeError))
        assert isinstance(caught, torch.OutOfMemoryError) and "out of memory: 16.0 TiB" in str(caught)
    print(caught)
    assert torch.ones(1000, device="cuda").sum().item() == 1000


def a_recorded_use_is_respected(library):
    torch, allocator = torch_over(library)
    torch.cuda.memory.change_current_allocator(allocator)
    other = torch.cuda.Stream()
    torch.cuda.synchronize()
    wrong = 0
    for _ in range(20):
        block = torch.full((1 << 24,), 7.0, device="cuda")
        other.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(other):
            torch.cuda._sleep(20_000_000)
            total = block.sum()
        block.record_stream(other)
        del block
        torch.full((1 << 24,), 0.0, device="cuda")
        torch.cuda.synchronize()
        wrong += total.item() != 7.0 * (1 << 24)
    print("wrong sums:", wrong)
    assert wrong == 0


def an_emptied_cache_gives_memory_back(library):
    torch, allocator = torch_over(library)
    torch.cuda.memory.change_current_allocator(allocator)
    free = lambda: torch.cuda.mem_get_info()[0]
    torch.cuda.synchronize()
    before = free()
    block = torch.empty(8 << 30, dtype=torch.uint8, device="cuda")
    held = free()
    del block
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    print("free before, with, after:", before, held, free())
    assert before - held >= 8 << 30 and before - free() < 1 << 28


def a_graph_is_captured_in_a_memory_pool(library):
    torch, allocator = torch_over(library)
    pool = torch.cuda.MemPool(allocator.allocator())
    given = torch.zeros(1 << 20, device="cuda")
    (given.sin() + given.cos()).sum()  # Loads the kernels.
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool.id):
        out = ((given * 2 + 1).sin() + given.cos()).sum()
    others = [torch.full((1 << 20,), 5.0, device="cuda") for _ in range(8)]
    for value in [0.5, 1.0, 2.0]:
        given.fill_(value)
        graph.replay()
        expected = ((given * 2 + 1).sin() + given.cos()).sum()
        print(value, out.item(), expected.item())
        assert out.item() == expected.item()
    assert all((other == 5.0).all().item() for other in others)
    figures = (ctypes.c_uint64 * 7)()
    ctypes.CDLL(library).binpool_torch_figures(0, figures)
    print("of the pool:", list(figures))
    assert figures[3] > 0


CHECKS = [
    a_lack_of_memory_is_an_exception,
    a_recorded_use_is_respected,
    an_emptied_cache_gives_memory_back,
    a_graph_is_captured_in_a_memory_pool,
]

if __name__ == "__main__":
    library, *chosen = sys.argv[1:]
    if chosen:
        [check(library) for check in CHECKS if check.__name__ in chosen]
    else:
        failed = [check.__name__ for check in CHECKS if subprocess.run([sys.executable, __file__, library, check.__name__]).returncode]
        print("failed:", failed)
        sys.exit(bool(failed))

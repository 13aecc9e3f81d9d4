#!/usr/bin/env python3
"""Checks PyTorch over the pool, on a device. Each check is a process. Prints what was seen, and fails where that is wrong. The package
`binpool` has to be installed."""

import subprocess
import sys

import torch

import binpool.torch


def a_lack_of_memory_is_an_exception():
    binpool.torch.use()
    for _ in range(3):
        try:
            torch.empty(1 << 44, dtype=torch.uint8, device="cuda")
        except Exception as error:  # noqa: BLE001 (which one it is, is the question)
            caught = error
        print(type(caught), isinstance(caught, torch.OutOfMemoryError), isinstance(caught, RuntimeError))
        assert isinstance(caught, torch.OutOfMemoryError) and "out of memory: could not allocate 16.0 TiB" in str(caught)
    print(caught)
    assert torch.ones(1000, device="cuda").sum().item() == 1000


def a_recorded_use_is_respected():
    binpool.torch.use()
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


def an_emptied_cache_gives_memory_back():
    binpool.torch.use()

    def free():
        return torch.cuda.mem_get_info()[0]

    torch.cuda.synchronize()
    before = free()
    block = torch.empty(8 << 30, dtype=torch.uint8, device="cuda")
    held = free()
    del block
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    print("free before, with, after:", before, held, free())
    assert before - held >= 8 << 30 and before - free() < 1 << 28


def a_graph_is_captured_in_a_memory_pool():
    pool = binpool.torch.memory_pool()
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
    reserved = binpool.torch.pool().statistics.peak_managed_bytes
    print("of the pool:", reserved)
    assert reserved > 0


def a_graph_without_a_memory_pool_is_refused():
    binpool.torch.use()
    given = torch.zeros(1 << 20, device="cuda")
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            given + 1
    except RuntimeError as error:
        print(error)
        assert "binpool.torch.memory_pool()" in str(error)
    else:
        raise AssertionError("a graph was captured")
    assert (given + 1).sum().item() == 1 << 20


def a_lack_of_memory_names_the_lines_that_have_it():
    binpool.torch.use()
    pool = binpool.torch.pool()
    pool.watch()
    layer = torch.nn.Linear(1024, 1024, device="cuda")
    kept = layer(torch.ones(1 << 16, 1024, device="cuda"))
    kept.sum().backward()
    try:
        torch.empty(1 << 44, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        print(error)
        assert "torch_checks.py" in str(error) and "a_lack_of_memory_names_the_lines_that_have_it" in str(error)
    lines = [group.call_site for group in pool.live_blocks()]
    print(lines)
    assert any("torch_checks.py" in line for line in lines)


CHECKS = [
    a_lack_of_memory_is_an_exception,
    a_recorded_use_is_respected,
    an_emptied_cache_gives_memory_back,
    a_graph_is_captured_in_a_memory_pool,
    a_graph_without_a_memory_pool_is_refused,
    a_lack_of_memory_names_the_lines_that_have_it,
]

if __name__ == "__main__":
    chosen = sys.argv[1:]
    if chosen:
        [check() for check in CHECKS if check.__name__ in chosen]
    else:
        failed = [check.__name__ for check in CHECKS if subprocess.run([sys.executable, __file__, check.__name__]).returncode]
        print("failed:", failed)
        sys.exit(bool(failed))

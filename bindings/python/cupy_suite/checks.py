#!/usr/bin/env python3
"""Checks on a GPU that CuPy's own calls answer over binpool: figures, limits, frees, hooks, errors, graphs, IPC, DLPack.

Prints a line for each check, and ends with 1 where one has failed. ``checks.py NAME...`` runs those.
"""

import gc
import io
import multiprocessing
import pickle
import sys
import threading
import traceback

import cupy
import numpy as np
from cupy.cuda import memory, memory_hooks

import binpool
import binpool.cupy

MIB = 1 << 20
CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def default():
    return cupy.get_default_memory_pool()


@check
def figures():
    default().free_all_blocks()
    used, total = default().used_bytes(), default().total_bytes()
    array = cupy.empty(64 * MIB, "u1")
    assert default().used_bytes() - used == 64 * MIB, default().used_bytes()
    assert default().total_bytes() >= total + 64 * MIB
    del array
    assert default().used_bytes() == used
    assert default().free_bytes() >= 64 * MIB and default().n_free_blocks() >= 1
    assert default().free_bytes() == default().total_bytes() - default().used_bytes()
    default().free_all_blocks()
    assert default().free_bytes() < 64 * MIB
    assert isinstance(default(), cupy.cuda.MemoryPool)
    return f"{default()!r}"


@check
def limits():
    gc.collect()
    default().free_all_blocks()
    assert default().get_limit() == 0
    default().set_limit(size=512 * MIB)
    try:
        assert default().get_limit() == 512 * MIB
        kept = cupy.empty(256 * MIB, "u1")
        try:
            cupy.empty(1024 * MIB, "u1")
        except cupy.cuda.memory.OutOfMemoryError as error:
            text = str(error)
            assert text.startswith("Out of memory allocating 1,073,741,824 bytes (allocated so far: "), text
            assert "limit set to: 536,870,912 bytes" in text and len(text.splitlines()) > 3, text
            assert isinstance(error, binpool.OutOfMemoryError) and isinstance(error, MemoryError)
            assert str(pickle.loads(pickle.dumps(error))) == text
        else:
            raise AssertionError("twice the limit was allocated")
        del kept
        # Memory in a circle goes back before a request fails.
        circle = [cupy.empty(400 * MIB, "u1")]
        circle.append(circle)
        del circle
        cupy.empty(400 * MIB, "u1")
        default().set_limit(fraction=0.25)
        assert default().get_limit() == int(0.25 * cupy.cuda.runtime.memGetInfo()[1])
        for wrong in [{"size": -1}, {"fraction": 2}, {"size": 1, "fraction": 0.5}]:
            try:
                default().set_limit(**wrong)
            except ValueError:
                continue
            raise AssertionError(wrong)
    finally:
        default().set_limit(size=0)
    assert default().get_limit() == 0
    return text.splitlines()[0]


@check
def allocators():
    assert memory.get_allocator() == default().malloc == default().malloc
    other = cupy.cuda.MemoryPool()
    before = default().used_bytes()
    with cupy.cuda.using_allocator(other.malloc):
        array = cupy.empty(MIB, "u1")
        assert other.used_bytes() == MIB and default().used_bytes() == before
    cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
    asynchronous = cupy.ones(MIB, "u1")
    assert int(asynchronous.sum()) == MIB
    cupy.cuda.set_allocator(default().malloc)
    empty = cupy.empty(0)
    assert empty.data.ptr == 0 and empty.sum() == 0
    pointer = default().malloc(100)
    assert pointer.mem.size == 100 and pointer.device_id == 0
    del array, asynchronous
    cupy.fft.config.get_plan_cache().clear()
    assert cupy.fft.fft(cupy.ones(1024)).shape == (1024,)


class Hook(cupy.cuda.MemoryHook):
    name = "checks"

    def __init__(self):
        self.calls = []

    def __getattribute__(self, name):
        if name.endswith(("preprocess", "postprocess")):
            return lambda **words: self.calls.append((name, words))
        return super().__getattribute__(name)


@check
def hooks():
    default().free_all_blocks()
    before = cupy.empty(1000, "u1")
    hook = Hook()
    with hook:
        array = cupy.empty(300 * MIB + 1, "u1")
        number, address = id(array.data.mem), array.data.ptr
        del array, before
    size = 300 * MIB + 512
    called = [name for name, _ in hook.calls]
    assert called.count("malloc_preprocess") == called.count("malloc_postprocess") == 1, called
    assert called.count("free_preprocess") == called.count("free_postprocess") == 2, called
    assert called.count("alloc_preprocess") == called.count("alloc_postprocess") == 1, called
    words = [words for name, words in hook.calls if name == "malloc_postprocess"][0]
    assert words == {"device_id": 0, "size": 300 * MIB + 1, "mem_size": size, "mem_ptr": address, "pmem_id": number}, words
    words = [words for name, words in hook.calls if name == "free_preprocess"][0]
    assert words == {"device_id": 0, "mem_size": size, "mem_ptr": address, "pmem_id": number}, words
    profile = memory_hooks.LineProfileHook()
    with profile:
        array = cupy.empty(3 * MIB, "u1")
    out = io.StringIO()
    profile.print_report(file=out)
    assert "hooks (3.00MB" in out.getvalue(), out.getvalue()
    with memory_hooks.DebugPrintHook(file=out):
        del array
    assert "free_postprocess" in out.getvalue() or '"hook":"free"' in out.getvalue(), out.getvalue()
    try:
        with hook:
            raise KeyError("a block is dropped while this is on its way")
    except KeyError:
        pass


scale = cupy.ElementwiseKernel("T x, T factor", "T y", "y = x * factor", "scale")


def graph_replays(temporaries, dropped_before):
    """A graph whose temporaries were dropped while it was captured is right after any other allocations."""
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        given = cupy.arange(MIB, dtype="f4")
        earlier = cupy.full(MIB, 2, "f4")
        scale(given, 1.0)
        stream.synchronize()
        stream.begin_capture()
        value = given
        for _ in range(temporaries):
            value = scale(value, 2.0)
        if dropped_before:
            value = value * earlier
            del earlier
        graph = stream.end_capture()
        result = value
        factor = 2.0**temporaries * (2 if dropped_before else 1)
        for replay in range(100):
            others = [cupy.full(MIB, 1e30, "f4") for _ in range(8)]
            given[...] = cupy.arange(MIB, dtype="f4") + replay
            graph.launch()
            stream.synchronize()
            expected = (np.arange(MIB, dtype="f4") + np.float32(replay)) * np.float32(factor)
            assert np.array_equal(result.get(), expected), replay
            assert all(float(other.min()) > 1e29 and float(other.max()) < 1e31 for other in others), replay
    return graph, result


@check
def graphs():
    default().free_all_blocks()
    used = default().used_bytes()
    graph, result = graph_replays(5, True)
    kept = default().used_bytes() - used
    # Two or three of 4 MiB by turns, not five, and the array from before.
    assert kept <= 32 * MIB, kept
    stream = cupy.cuda.Stream(non_blocking=True)
    del result
    with stream:
        others = [cupy.full(MIB, 7, "f4") for _ in range(16)]
        graph.launch()
        stream.synchronize()
        assert all(int(other.min()) == int(other.max()) == 7 for other in others)
    del others
    before = default().used_bytes()
    del graph
    cupy.cuda.Device().synchronize()
    default().free_all_blocks()
    after = default().used_bytes()
    assert after < before and after - used <= 8 * MIB, (used, before, after)
    return f"kept {kept >> 20} MiB for the graph, {(after - used) >> 20} MiB after it"


@check
def graphs_of_several_streams():
    one, two = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    with one:
        given = cupy.arange(MIB, dtype="f4")
        one.synchronize()
        one.begin_capture()
        first = scale(given, 2.0)
        fork = one.record()
        two.wait_event(fork)
        with two:
            left = scale(scale(first, 3.0), 1.0)
        right = scale(scale(first, 5.0), 1.0)
        one.wait_event(two.record())
        result = left + right
        del first, left, right
        graph = one.end_capture()
        for replay in range(100):
            others = [cupy.full(MIB, 1e30, "f4") for _ in range(4)]
            graph.launch()
            one.synchronize()
            assert np.array_equal(result.get(), np.arange(MIB, dtype="f4") * 16), replay
            assert all(float(other.min()) > 1e29 for other in others)


@check
def a_graph_destroyed_while_it_runs():
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        given = cupy.ones(64 * MIB, "f4")
        scale(given, 1.0)
        stream.synchronize()
        stream.begin_capture()
        value = given
        for _ in range(200):
            value = scale(value, 1.0)
        graph = stream.end_capture()
        graph.launch()
        del graph
        others = [cupy.empty(64 * MIB, "f4") for _ in range(8)]
        default().free_all_blocks()
        stream.synchronize()
        assert float(value.min()) == float(value.max()) == 1
        del others
    cupy.cuda.Device().synchronize()
    default().free_all_blocks()


def _child(handle, bytes, results):
    base = cupy.cuda.runtime.ipcOpenMemHandle(handle)
    array = cupy.ndarray(bytes, "u1", cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(base, bytes, None, 0), 0))
    results.put((int(array.min()), int(array.max())))
    array[...] = 9
    cupy.cuda.Device().synchronize()
    cupy.cuda.runtime.ipcCloseMemHandle(base)


def shared(array):
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    handle = cupy.cuda.runtime.ipcGetMemHandle(array.data.ptr)
    cupy.cuda.Device().synchronize()
    child = context.Process(target=_child, args=(handle, array.nbytes, results))
    child.start()
    found = results.get(timeout=60)
    child.join()
    return found, int(array.min()), int(array.max())


@check
def ipc():
    default().free_all_blocks()
    try:
        cupy.cuda.runtime.ipcGetMemHandle(cupy.empty(MIB, "u1").data.ptr)
        refused = "taken"
    except cupy.cuda.runtime.CUDARuntimeError as error:
        refused = str(error)
    with cupy.cuda.using_allocator(None):
        assert shared(cupy.full(MIB, 3, "u1")) == ((3, 3), 9, 9)
    binpool.cupy.use(ipc=True)
    try:
        arrays = [cupy.full(MIB, value, "u1") for value in range(3, 6)]
        for value, array in enumerate(arrays, 3):
            assert shared(array) == ((value, value), 9, 9)
        assert default().used_bytes() >= 3 * MIB
        del array, arrays
        default().free_all_blocks()
        assert default().total_bytes() == 0, default().total_bytes()
    finally:
        binpool.cupy.use()
    return f"of a block: {refused}"


@check
def threads_and_streams():
    failures = []

    def work(number):
        try:
            stream = [cupy.cuda.Stream.ptds, cupy.cuda.Stream(non_blocking=True)][number % 2]
            with stream:
                for step in range(100):
                    a = cupy.full(1 << 16, number, "i4")
                    b = a + step
                    stream.synchronize() if step % 10 == 0 else None
                    assert int(b.sum()) == (number + step) << 16
        except Exception:
            failures.append(traceback.format_exc())

    all = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    [thread.start() for thread in all]
    [thread.join() for thread in all]
    assert not failures, failures[0]
    # A function on the host that needs Python, while a request waits for the stream.
    stream, ran = cupy.cuda.Stream(non_blocking=True), []
    default().free_all_blocks()
    with stream:
        for _ in range(20):
            stream.launch_host_func(ran.append, 1)
            array = cupy.empty(32 * MIB, "u1")
            array[...] = 1
            del array
            default().free_all_blocks()
    stream.synchronize()
    assert len(ran) == 20


@check
def dlpack():
    array = cupy.arange(MIB, dtype="f4")
    again = cupy.from_dlpack(array)
    assert again.data.ptr == array.data.ptr
    out = ["cupy"]
    try:
        import torch

        tensor = torch.from_dlpack(array)
        del array, again
        assert float(tensor[-1]) == MIB - 1
        assert float(cupy.from_dlpack(tensor * 2)[-1]) == 2 * (MIB - 1)
        out.append("torch")
    except ImportError:
        pass
    try:
        import jax

        assert float(jax.dlpack.from_dlpack(cupy.arange(8, dtype="f4"))[-1]) == 7
        out.append("jax")
    except ImportError:
        pass
    return ", ".join(out)


@check
def watching():
    pool = binpool.cupy.pool()
    pool.watch()
    array = cupy.empty(5 * MIB, "u1")
    sites = [group.call_site for group in pool.live_blocks() if group.bytes >= 5 * MIB]
    pool.stop_watching()
    assert any("checks.py" in (site or "") and "watching" in site for site in sites), sites
    del array


def main():
    binpool.cupy.use()
    chosen = sys.argv[1:]
    failed = 0
    for function in CHECKS:
        if chosen and function.__name__ not in chosen:
            continue
        try:
            print(f"ok    {function.__name__}: {function() or ''}", flush=True)
        except Exception:
            failed += 1
            print(f"FAILS {function.__name__}: {traceback.format_exc(limit=-3)[-1500:]}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())

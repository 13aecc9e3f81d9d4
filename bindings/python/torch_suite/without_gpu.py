"""binpool under PyTorch without a GPU, over the stand-in for CUDA (`scripts/torch`): where memory lies and who has it, but no kernels."""

import gc
import os
import pathlib
import resource
import struct
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from checks import Checks, use

import binpool.torch
from binpool import _torch_build

MIB = 1 << 20
cuda = torch.cuda


def tensor(mib: float) -> torch.Tensor:
    return torch.empty(int(mib * MIB), dtype=torch.uint8, device="cuda")


def active() -> int:
    return binpool.torch.pool().statistics.active_bytes


def overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.data_ptr() < other.data_ptr() + other.nbytes and other.data_ptr() < one.data_ptr() + one.nbytes


@contextmanager
def everything_goes_back() -> Iterator[None]:
    gc.collect()
    cuda.empty_cache()
    before = active()
    yield
    gc.collect()
    cuda.empty_cache()
    assert active() == before, (active(), before)


def a_graph_keeps_its_memory_until_it_is_reset() -> None:
    first = cuda.CUDAGraph()
    with cuda.graph(first):  # What the random generators need, PyTorch keeps forever.
        pass
    first.reset()
    with everything_goes_back():
        graph = cuda.CUDAGraph()
        with cuda.graph(graph):
            result = tensor(4)
            gone = tensor(7)
        place = gone.data_ptr()
        del gone
        for number in range(100):
            other = tensor(1 + number % 12)
            assert not overlap(other, result) and other.data_ptr() != place, number
            graph.replay()
        later = cuda.CUDAGraph()
        with cuda.graph(later, pool=graph.pool()):
            shared = tensor(7)
        assert shared.data_ptr() == place  # Graphs of one pool share what is free.
        del other, result, shared
        later.reset()
        graph.reset()


def segments_of_private_pools_count_once() -> None:
    with everything_goes_back():
        before = cuda.memory_reserved()
        pool = cuda.MemPool()
        with cuda.use_mem_pool(pool):
            inside = tensor(30)
        assert cuda.memory_reserved() - before <= 34 * MIB
        segments = [segment for segment in cuda.memory_snapshot() if segment["device"] == 0]
        places = sorted((segment["address"], segment["address"] + segment["total_size"]) for segment in segments)
        assert all(one[1] <= other[0] for one, other in zip(places, places[1:], strict=False)), places
        assert sum(end - begin for begin, end in places) == cuda.memory_reserved()
        del inside, pool


def mapped() -> tuple[int, int, int]:
    now = cuda.memory_stats()
    return now["reserved_bytes.all.current"], now["reserved_bytes.all.allocated"], now["reserved_bytes.all.freed"]


def what_was_reserved_and_freed_adds_up() -> None:
    with everything_goes_back():
        kept = tensor(30)
        cuda.reset_accumulated_memory_stats()
        before = mapped()
        assert before[1:] == (0, 0), before
        pool = cuda.MemPool()
        with cuda.use_mem_pool(pool):
            inside = tensor(300)
        del inside, pool
        gc.collect()
        cuda.empty_cache()
        now = mapped()
        assert now[0] == before[0] and now[1] == now[2] > 0, (before, now)
        del kept


def a_pool_of_last_resort_may_be_in_use() -> None:
    """By another thread: then the request runs out of memory, and nothing else."""
    pool = cuda.MemPool(use_on_oom=True)
    is_in_use, is_done = threading.Event(), threading.Event()
    seen: list[object] = []
    torch._C._cuda_attach_out_of_memory_observer(lambda *arguments: seen.append(arguments))

    def use_pool() -> None:
        with cuda.use_mem_pool(pool):
            kept = tensor(1)
            is_in_use.set()
            is_done.wait()
            del kept

    def run_out() -> None:
        ooms = cuda.memory_stats()["num_ooms"]
        seen.clear()
        try:
            tensor(1 << 30)
        except torch.OutOfMemoryError:
            assert len(seen) == 1 and cuda.memory_stats()["num_ooms"] == ooms + 1, (seen, ooms, cuda.memory_stats()["num_ooms"])
            return
        raise AssertionError("a PiB")

    run_out()
    worker = threading.Thread(target=use_pool)
    worker.start()
    is_in_use.wait()
    try:
        run_out()
    finally:
        is_done.set()
        worker.join()


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def a_block_that_could_not_be_shared_leaves_no_file_open() -> None:
    with everything_goes_back():
        before = open_files()
        large = tensor(800)
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        failures = []
        # It is of 400 pages, each of which takes two.
        for more in range(0, 2000, 7):
            resource.setrlimit(resource.RLIMIT_NOFILE, (before + more, limits[1]))
            try:
                large.untyped_storage()._share_cuda_()
                raise AssertionError("shared before it ran out of files in the middle")
            except RuntimeError as error:
                failures.append(str(error))
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            if sum("no file descriptor is left" in failure for failure in failures) == 3:
                break
        assert "ulimit" in failures[-1], failures[-1]
        del large
        gc.collect()
        cuda.empty_cache()
        assert open_files() == before, (open_files(), before)


def a_pool_in_use_and_a_spoiled_capture_keep_no_segments_of_others() -> None:
    def graph() -> None:
        graph = cuda.CUDAGraph()
        with cuda.graph(graph):
            kept = tensor(3)
        del kept
        graph.reset()
        del graph
        gc.collect()
        cuda.empty_cache()

    graph()
    before = active()
    pool = cuda.MemPool()
    with cuda.use_mem_pool(pool):
        inside = tensor(1)
        graph()  # It has a small block in `pool`, whose segment stays.
        held = active()
        graph()
        assert active() == held > before, (active(), held)
        del inside
    del pool
    gc.collect()
    try:
        with cuda.graph(cuda.CUDAGraph()):
            inside = tensor(3)
            cuda.current_stream().synchronize()  # Spoils it.
    except RuntimeError:
        pass
    else:
        raise AssertionError("not spoiled")
    del inside
    gc.collect()
    cuda.empty_cache()
    held = active()  # PyTorch does not give the segment of that capture back.
    graph()
    assert active() == held, (active(), held)


def damaged_handles_are_errors() -> None:
    device, _, *rest, _ = tensor(1).untyped_storage()._share_cuda_()
    for pages in [b"", struct.pack("=iQ", os.getpid(), 0), struct.pack("=iQ", os.getpid(), 3), struct.pack("=iQi", os.getpid(), 1, 0)]:
        try:
            torch.UntypedStorage._new_shared_cuda(device, b"\xb1binpool" + pages, *rest, False)
        except RuntimeError as error:
            assert "not as binpool writes it" in str(error), error
        else:
            raise AssertionError(pages)


@contextmanager
def environment(**variables: str | None) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update({name: value for name, value in variables.items() if value is not None})
    for name in variables:
        if variables[name] is None:
            os.environ.pop(name, None)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def a_library_that_was_built_is_used_from_a_folder_that_cannot_be_written() -> None:
    built = _torch_build.library("torch_allocator")
    access = os.access
    os.access = lambda *_, **__: False  # As for a user who is not root.
    try:
        with environment(CXX="false"):
            assert _torch_build.library("torch_allocator") == built
    finally:
        os.access = access


def without_a_folder_the_error_says_what_to_set() -> None:
    home = pathlib.Path.home
    pathlib.Path.home = classmethod(lambda _: no_home())  # type: ignore[assignment,method-assign]
    try:
        assert _torch_build.library("torch_allocator").exists()  # In the folder of BINPOOL_CACHE_DIR.
        with environment(BINPOOL_CACHE_DIR=None, XDG_CACHE_HOME=None):
            assert "set BINPOOL_CACHE_DIR" in why_not_built()
    finally:
        pathlib.Path.home = home  # type: ignore[method-assign]
    with tempfile.NamedTemporaryFile() as file, environment(BINPOOL_CACHE_DIR=file.name + "/folder"):
        assert "set BINPOOL_CACHE_DIR" in why_not_built()


def no_home() -> pathlib.Path:
    raise RuntimeError("Could not determine home directory.")


def why_not_built() -> str:
    try:
        _torch_build.library("torch_allocator")
    except _torch_build.BuildError as error:
        return str(error)
    raise AssertionError("built")


def tensors_from_before_stay() -> None:
    assert binpool.torch.pool(1).statistics.active_bytes == 0 and cuda.memory_allocated(1) == BEFORE.nbytes
    with cuda.device(1):
        other = tensor(1)
        assert binpool.torch.pool(1).statistics.active_bytes == MIB and cuda.memory_allocated(1) == BEFORE.nbytes + MIB
        del other


def handles_of_shared_tensors() -> str:
    small, large = tensor(0.01), tensor(300)
    handles = [shared.untyped_storage()._share_cuda_()[1] for shared in (small, large)]
    assert handles[0][:2] == b"\2e" and len(handles[0]) == 2 + 24 + 4, handles[0]  # As PyTorch's expandable segments have it.
    return f"{[len(handle) for handle in handles]} bytes"


def threads() -> None:
    def work() -> None:
        for number in range(2000):
            kept = torch.empty(1000 + number, device="cuda"), tensor(1)
            del kept

    with everything_goes_back():
        workers = [threading.Thread(target=work) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()


if __name__ == "__main__":
    cuda.set_device(1)
    BEFORE = tensor(4)
    cuda.set_device(0)
    use(sys.argv[1:])
    checks = Checks("without_gpu")
    for check in [
        a_graph_keeps_its_memory_until_it_is_reset,
        segments_of_private_pools_count_once,
        what_was_reserved_and_freed_adds_up,
        a_pool_of_last_resort_may_be_in_use,
        a_library_that_was_built_is_used_from_a_folder_that_cannot_be_written,
        without_a_folder_the_error_says_what_to_set,
        tensors_from_before_stay,
        threads,
        a_block_that_could_not_be_shared_leaves_no_file_open,
        handles_of_shared_tensors,
        damaged_handles_are_errors,
        a_pool_in_use_and_a_spoiled_capture_keep_no_segments_of_others,
    ]:
        checks.run(check.__name__, check)
    checks.end()

"""``binpool.cupy`` over stand-ins for CuPy and for CUDA's driver, in processes of their own."""

import os
import subprocess
import sys

import pytest
from conftest import HERE

BEGINNING = """
import ctypes, gc, pickle
import cupy, binpool, binpool.cupy

MIB = 1 << 20
binpool.cupy.use()
pool = cupy.get_default_memory_pool()
"""


@pytest.fixture
def run(driver):
    def run(program, **variables):
        paths = [str(HERE / "cupy_stand_in"), os.environ.get("PYTHONPATH", "")]
        environment = dict(driver, PYTHONPATH=os.pathsep.join(filter(None, paths)), **variables)
        subprocess.run([sys.executable, "-c", BEGINNING + program], env=environment, check=True)

    return run


def test_the_default_pool_has_the_figures_of_binpools(run):
    run("""
assert isinstance(pool, cupy.cuda.MemoryPool) and pool.malloc == pool.malloc
assert pool.used_bytes() == pool.total_bytes() == 0
block = pool.malloc(3 * MIB)
assert pool.used_bytes() == 3 * MIB == block.mem.size
assert pool.total_bytes() >= 3 * MIB and pool.free_bytes() == pool.total_bytes() - 3 * MIB
del block
assert pool.used_bytes() == 0 and pool.n_free_blocks() == 1
pool.free_all_blocks()
assert pool.total_bytes() == pool.n_free_blocks() == 0
assert pool.malloc(0).ptr == 0 and binpool.cupy.pool().statistics.hits >= 0
""")


def test_a_limit_is_kept_and_its_lack_of_memory_is_cupys_error(run):
    run("""
assert pool.get_limit() == 0
pool.set_limit(size=8 * MIB)
assert pool.get_limit() == 8 * MIB
try:
    pool.malloc(100 * MIB)
except cupy.cuda.memory.OutOfMemoryError as error:
    text = str(error)
    assert text.startswith("Out of memory allocating 104,857,600 bytes\\n") and "limit" in text
    assert isinstance(error, binpool.OutOfMemoryError) and str(pickle.loads(pickle.dumps(error))) == text
else:
    raise AssertionError
circle = [pool.malloc(6 * MIB)]
circle.append(circle)
gc.disable()
del circle
pool.malloc(6 * MIB)
pool.set_limit(fraction=0.5)
assert pool.get_limit() == 1 << 29
for wrong in [dict(size=-1), dict(fraction=2), dict(size=1, fraction=0.5)]:
    try:
        pool.set_limit(**wrong)
    except ValueError:
        continue
    raise AssertionError(wrong)
pool.set_limit()
assert pool.get_limit() == 0
""")


def test_the_limit_of_the_environment_holds(run):
    run("pool.malloc(1)\nassert pool.get_limit() == 4 * MIB", CUPY_GPU_MEMORY_LIMIT=str(4 << 20))
    run("assert pool.get_limit() == 1 << 28", CUPY_GPU_MEMORY_LIMIT="25%")


def test_hooks_are_called_as_by_cupys_pool(run):
    run("""
class Hook(cupy.cuda.MemoryHook):
    name = "hook"

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        return lambda **words: self.calls.append((name, words))


hook, before = Hook(), pool.malloc(5)
with hook:
    block = pool.malloc(100 * MIB + 1)
    address, number = block.ptr, id(block.mem)
    del block
    again = pool.malloc(1)
    try:
        raise KeyError
    except KeyError:
        del before
del again
sizes = {"device_id": 0, "mem_size": 100 * MIB + 512}
of_block = {**sizes, "mem_ptr": address, "pmem_id": number}
names = [name for name, _ in hook.calls]
assert names[:4] == ["malloc_preprocess", "alloc_preprocess", "alloc_postprocess", "malloc_postprocess"], names
assert names[4:6] == ["free_preprocess", "free_postprocess"], names
assert hook.calls[0][1] == {**sizes, "size": 100 * MIB + 1}
assert hook.calls[3][1] == {**of_block, "size": 100 * MIB + 1}
assert hook.calls[4][1] == hook.calls[5][1] == of_block
assert names[6:] == ["malloc_preprocess", "malloc_postprocess", "free_preprocess", "free_postprocess"], names
""")


def test_a_graph_keeps_what_was_made_or_dropped_while_it_was_captured(run):
    run("""
cuda = ctypes.CDLL("libcuda.so.1")
context, stream, graph = [ctypes.c_void_p() for _ in range(3)]
pool.malloc(1)
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuStreamCreate(ctypes.byref(stream), 1) == 0
before, used = pool.malloc(3 * MIB), pool.used_bytes()
with cupy.cuda.Stream(stream.value):
    assert cuda.cuStreamBeginCapture_v2(stream, 0) == 0
    temporary = pool.malloc(4 * MIB)
    address = temporary.ptr
    del temporary, before
    result = pool.malloc(4 * MIB)
    assert result.ptr == address
    assert cuda.cuStreamEndCapture(stream, ctypes.byref(graph)) == 0
    del result
    others = [pool.malloc(4 * MIB) for _ in range(8)]
assert all(other.ptr != address for other in others)
del others
assert pool.used_bytes() >= used + 4 * MIB
assert cuda.cuGraphDestroy(graph) == 0
assert pool.used_bytes() == used - 3 * MIB == 0
pool.free_all_blocks()
assert pool.total_bytes() == 0
""")


def test_arrays_for_other_processes_are_allocations_of_their_own(run):
    run("""
binpool.cupy.use(ipc=True)
pool = cupy.get_default_memory_pool()
blocks = [pool.malloc(1000) for _ in range(3)]
assert pool.total_bytes() < MIB and pool.used_bytes() == 3000
address = blocks[0].ptr
del blocks
assert pool.n_free_blocks() == 3
pool.free_all_blocks()
assert pool.total_bytes() == 0
binpool.cupy.use()
""")


def test_a_line_of_the_program_has_its_blocks(run):
    run("""
binpool.cupy.pool().watch()
block = pool.malloc(77)
[group] = binpool.cupy.pool().live_blocks()
assert group.bytes == 77 and "<module>" in group.call_site
""")

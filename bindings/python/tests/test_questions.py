"""What can be asked of a pool: figures, limits, lines, recordings, pages."""

import functools
import json
import os
import subprocess
import sys

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import binpool


@pytest.fixture
def pool(queue):
    return binpool.MemoryPool(queue)


def test_figures_are_those_of_the_requests(pool):
    blocks = [pool(1 << 20) for _ in range(3)]
    figures = pool.statistics
    assert (figures.active_blocks, figures.active_bytes) == (3, 3 << 20)
    assert figures.managed_bytes >= figures.active_bytes
    del blocks
    figures = pool.statistics
    assert (figures.active_bytes, figures.peak_active_bytes) == (0, 3 << 20)
    assert "in use" in str(figures)


def test_trim_gives_memory_back(pool):
    del (block := [pool(1 << 20)])[:]
    managed = pool.statistics.managed_bytes
    assert managed >= 1 << 20
    assert pool.trim() == managed
    assert pool.statistics.managed_bytes == 0 and block == []


def test_a_limit_holds_and_its_error_is_a_report(pool):
    assert pool.limit is None
    pool.limit = 8 << 20
    assert pool.limit == 8 << 20
    pool.watch()
    kept = pool(4 << 20)
    with pytest.raises(binpool.OutOfMemoryError) as caught:
        pool(64 << 20)
    # Programs catch any of these.
    assert isinstance(caught.value, cl.MemoryError) and isinstance(caught.value, MemoryError)
    for part in ("64.0 MiB", "limit", "test_questions.py", "advice"):
        assert part in str(caught.value)
    pool.limit = None
    assert pool(64 << 20).size >= 64 << 20
    del kept


def test_an_argument_that_is_no_number_is_named(queue, pool):
    def set_limit(limit):
        pool.limit = limit

    makers = [functools.partial(maker, queue) for maker in (binpool.MemoryPool, binpool.SVMPool)]
    for call in (set_limit, *(lambda limit, maker=maker: maker(limit=limit) for maker in makers)):
        with pytest.raises(TypeError, match="limit: a whole number is needed, not '1GB'"):
            call("1GB")
        with pytest.raises(ValueError, match="limit: -1 is negative or too large"):
            call(-1)
        with pytest.raises(ValueError, match="a limit of 0 bytes"):
            call(0)
    with pytest.raises(TypeError, match="bytes: a whole number is needed, not 1.5"):
        pool.trim(1.5)
    assert pool.limit is None and pool.trim(bytes=np.int64(5)) == 0


def test_a_limit_can_be_set_from_the_first(queue):
    pool = binpool.MemoryPool(queue, limit=1 << 20)
    with pytest.raises(binpool.OutOfMemoryError):
        pool(2 << 20)
    with pytest.raises(ValueError, match="0 bytes"):
        binpool.MemoryPool(queue, limit=0)


def test_a_policy_has_a_name(queue):
    assert binpool.MemoryPool(queue, reuse="wait_on_host")(10).size >= 10
    with pytest.raises(ValueError, match="'opportunistic'"):
        binpool.MemoryPool(queue, reuse="always")


def make_the_first(pool):
    return pool(1000)


def test_live_blocks_are_by_lines_of_the_program(pool, queue):
    pool.watch()
    first = [make_the_first(pool) for _ in range(3)]
    second = cl_array.zeros(queue, 100_000, np.float32, allocator=pool)  # Allocates within PyOpenCL.
    groups = pool.live_blocks()
    assert [(group.blocks, group.bytes) for group in groups] == [(1, 400_000), (3, 3000)]
    assert "test_live_blocks_are_by_lines" in groups[0].call_site
    assert groups[1].call_site.endswith("in make_the_first")
    assert groups[1].call_site.startswith("test_questions.py:")
    assert [repr(group).split(", ")[0] for group in groups] == ["<binpool.LiveGroup: 1 block", "<binpool.LiveGroup: 3 blocks"]
    assert "make_the_first" in pool.report()
    del first, second
    assert pool.live_blocks() == []


def test_live_blocks_are_asked_of_a_pool_that_is_watched(pool, tmp_path):
    block = pool(1000)
    with pytest.raises(ValueError, match=r"watch\(\)"):
        pool.live_blocks()
    pool.watch()
    second = pool(10)
    assert [(group.call_site is None, group.bytes, group.oldest_seconds is None) for group in pool.live_blocks()] == [
        (True, 1000, True),
        (False, 10, False),
    ]
    pool.stop_watching()
    with pytest.raises(ValueError, match=r"watch\(\)"):
        pool.live_blocks()
    with pool.record(tmp_path / "program.trace"):
        assert sum(group.blocks for group in pool.live_blocks()) == 2
    del block, second


def test_a_report_of_a_shortage_that_knows_no_lines_says_how_it_would(pool):
    pool.limit = 1 << 20
    for watched in (False, True):
        block = pool(4096)
        with pytest.raises(binpool.OutOfMemoryError) as caught:
            pool(64 << 20)
        assert ("call watch()" in str(caught.value)) == (not watched)
        pool.watch()
    del block


def test_what_is_done_is_returned(pool, tmp_path):
    del (block := [pool(1 << 20)])[:]
    managed = pool.statistics.managed_bytes
    assert pool.free_held() == managed > 0 and block == []
    pool(1 << 20)
    assert pool.stop_holding() == managed
    with pool.record(tmp_path / "x.trace") as recording:
        assert repr(recording) == f"<binpool.Recording to {tmp_path}/x.trace: goes on>"
        pool(1000)
    assert repr(recording).endswith("x.trace: finished>")
    assert recording.finish() == tmp_path / "x.trace"
    assert recording.view(tmp_path / "x.html") == tmp_path / "x.html"
    assert binpool.view(recording.path, str(tmp_path / "y.html")) == tmp_path / "y.html"
    assert pool.view(tmp_path / "z") == tmp_path / "z"


def test_the_package_has_a_version():
    assert binpool.__version__.split(".")[0].isdigit()


ODD = {
    "no name": ({"__name__": None}, "x.py"),
    "no string": ({"__name__": 5}, "x.py"),
    "not there": ({}, "x.py"),
    "a string of its own": ({"__name__": type("Name", (str,), {"partition": None, "split": None})("m")}, "x.py"),
    "no character": ({"__name__": "m\udcff"}, "\udcff.py"),
    "two lines": ({"__name__": "m"}, "x\ny.py"),
    "empty": ({"__name__": ""}, ""),
    "only a folder": ({"__name__": "m"}, "x/"),
}


@pytest.mark.parametrize("odd", ODD)
def test_a_request_does_not_fail_for_the_name_of_its_code(pool, tmp_path, odd):
    names, file = ODD[odd]
    with pool.record(tmp_path / "program.trace"):
        pool.watch()
        names |= {"pool": pool}
        exec(compile("def ask(): return pool(4096)\nblock = ask()", file, "exec"), names)
    (group,) = pool.live_blocks()
    assert group.call_site.endswith(":1 in ask")
    assert ":1 in ask" in (tmp_path / "program.trace").read_text()


def test_a_request_does_not_fail_where_no_line_can_be_found():
    program = """
import sys, pyopencl as cl, binpool
get, sys._getframe = sys._getframe, lambda *_: 1 / 0
pool = binpool.MemoryPool(cl.CommandQueue(cl.Context([cl.get_platforms()[0].get_devices()[0]])))
pool.watch()
block = pool(4096)
print(pool.live_blocks()[0].call_site)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "an unknown line"


def test_a_pool_that_is_no_longer_watched_looks_for_no_lines(tmp_path):
    """Python tells of each look at a frame by an event, to a hook that stays as long as the process."""
    program = f"""
import sys, pyopencl as cl, binpool
looks = 0
def count(event, _):
    global looks
    looks += event == "sys._getframe"
pool = binpool.MemoryPool(cl.CommandQueue(cl.Context([cl.get_platforms()[0].get_devices()[0]])))
sys.addaudithook(count)
def of_ten():
    global looks
    looks = 0
    for _ in range(10): pool(4096)
    return looks
found = [of_ten()]
pool.watch(); pool.watch(); found.append(of_ten())
pool.stop_watching(); found.append(of_ten())
recording = pool.record({str(tmp_path / "x.trace")!r}); found.append(of_ten())
pool.watch(); pool.stop_watching(); found.append(of_ten())
recording.finish(); found.append(of_ten())
print(*found)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "10", "0", "10", "10", "0"]


def test_an_empty_name_of_the_opencl_library_is_none():
    program = """
import pyopencl as cl, binpool
print(binpool.MemoryPool(cl.CommandQueue(cl.Context([cl.get_platforms()[0].get_devices()[0]])))(4096).size)
"""
    environment = os.environ | {"OPENCL_DYLIB_PATH": ""}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert int(done.stdout) >= 4096


@pytest.mark.parametrize("kind", ["MemoryPool", "SVMPool"])
def test_a_program_ends_while_its_daemon_threads_use_a_pool(kind):
    """The interpreter ends such threads where they ask for its lock, which has to be a place that they can be ended at."""
    program = f"""
import sys, threading, pyopencl as cl, binpool
queue = cl.CommandQueue(cl.Context([cl.get_platforms()[0].get_devices()[0]]))
pool, asks = binpool.{kind}(queue), threading.Semaphore(0)
pool.watch()
sys.setswitchinterval(1e-6)
def work():
    while True:
        pool(1234)
        asks.release()
for _ in range(6): threading.Thread(target=work, daemon=True).start()
for _ in range(200): asks.acquire()
"""
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_a_recording_has_requests_by_lines_and_is_drawn(pool, tmp_path):
    recording = pool.record(tmp_path / "program.trace")
    with recording:
        blocks = [make_the_first(pool) for _ in range(3)]
        del blocks
        with pytest.raises(ValueError, match=r"finish\(\)"):
            recording.view(tmp_path / "early.html")
        with pytest.raises(binpool.Error, match="already"):
            pool.record(tmp_path / "second.trace")
    lines = (tmp_path / "program.trace").read_text().splitlines()
    assert lines[0] == "h version 2"
    assert sum(line.startswith("a ") for line in lines) == 3
    assert any(line.endswith("in make_the_first") for line in lines if line.startswith("g "))
    recording.view(tmp_path / "program.html")
    binpool.view(recording.path, tmp_path / "again.html")
    page = (tmp_path / "program.html").read_text()
    assert page == (tmp_path / "again.html").read_text()
    assert page.startswith("<!DOCTYPE html>") or page.startswith("<!doctype html>")


def test_a_file_that_is_no_recording_is_an_error(tmp_path):
    (tmp_path / "no.trace").write_text("something else\n")
    with pytest.raises(binpool.Error, match=r"no\.trace"):
        binpool.view(tmp_path / "no.trace", tmp_path / "no.html")
    with pytest.raises(FileNotFoundError):
        binpool.view(tmp_path / "missing.trace", tmp_path / "no.html")


def test_a_snapshot_is_json_and_is_drawn(pool, tmp_path):
    block = pool(4096)
    snapshot = json.loads(pool.snapshot())
    assert snapshot["statistics"]["active_bytes"] == pool.statistics.active_bytes
    pool.view(tmp_path / "now.html")
    assert "<html" in (tmp_path / "now.html").read_text()
    del block


def test_a_pool_has_the_methods_and_figures_of_pyopencls(queue):
    pool = binpool.MemoryPool(queue, segments=False)
    kept, dropped = pool(1 << 20), pool(2 << 20)
    assert (pool.active_blocks, pool.active_bytes, pool.held_blocks) == (2, 3 << 20, 0)
    del dropped
    assert (pool.active_blocks, pool.active_bytes, pool.held_blocks) == (1, 1 << 20, 1)
    assert pool.managed_bytes == 3 << 20
    pool.free_held()
    assert (pool.held_blocks, pool.managed_bytes) == (0, 1 << 20)
    pool.stop_holding()
    del kept
    assert pool.managed_bytes == 0


def test_a_device_that_cannot_be_opened_says_why():
    program = "import binpool, binpool._binpool as b\ntry: b.cuda_pool(-1)\nexcept binpool.Error as error: print(error)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "device -1: devices are numbered from 0"


def test_a_machine_without_cuda_says_so():
    program = "import binpool, binpool._binpool as b\ntry: print(b.cuda_pool(0))\nexcept binpool.Error as error: print(error)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "libcuda" in done.stdout or "no device" in done.stdout or "binpool pool" in done.stdout


def test_the_package_does_not_need_pyopencl_to_be_imported():
    program = "import sys, binpool; print('pyopencl' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"

"""Functions of the package on a stack that is unwound from outside: by an exception of C++, by the end of a thread."""

import subprocess
import sys

import pytest
from conftest import HERE, ROOT

CATCHES = """
import ctypes, sys
from binpool import _binpool

main = ctypes.CDLL(sys.argv[1]).main
sys.exit(main(2, (ctypes.c_char_p * 3)(b"catches", _binpool.__file__.encode())))
"""


def compiled(compiler, source, result, *arguments):
    subprocess.run([compiler, "-Wall", "-Werror", "-o", result, source, *arguments], check=True)
    return result


def test_an_exception_for_pytorch_leaves_the_library(tmp_path, driver):
    """PyTorch calls the library's functions from C++, and catches what they throw."""
    source = ROOT / "bindings/capi/tests" / "torch" / "catches.cpp"
    library = compiled("c++", source, tmp_path / "catches.so", "-std=c++17", "-shared", "-fPIC", "-ldl")
    command = [sys.executable, "-c", CATCHES, library]
    ran = subprocess.run(command, env=driver, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "advice: " in ran.stdout


# Up to Python 3.13, the end of Python ends each thread where it asks for Python's lock again.
EXITS = """
import sys, threading, time
import numpy as np, pyopencl as cl
import binpool

how = sys.argv[1]
context = cl.Context([cl.get_platforms()[0].get_devices()[0]])
queue = cl.CommandQueue(context)
pool = (binpool.SVMPool if how == "unbind" else binpool.MemoryPool)(queue)
if how == "watch":
    pool.watch()
if how == "record":
    recording = pool.record(sys.argv[2])
if how == "hook":
    pool.limit = 16 << 20
    large = pool(10 << 20)
    pool.add_reclaim_hook(lambda _: sum(range(1000)) < 0)
if how == "unbind":
    block, gate = pool(4096), cl.UserEvent(context)
    cl.enqueue_svm_memfill(queue, block, np.array([1], np.uint8), wait_for=[gate])
    queue.flush()
started = threading.Semaphore(0)


def work():
    started.release()
    while True:
        if how == "trim":
            pool.trim()
        elif how == "statistics":
            pool.statistics
        elif how == "unbind":
            block.unbind_from_queue()
        elif how == "hook":
            try:
                pool(10 << 20)
            except binpool.Error:
                pass
        else:
            pool(1234)


threads = 1 if how == "unbind" else 3
for _ in range(threads):
    threading.Thread(target=work, daemon=True).start()
for _ in range(threads):
    started.acquire()
time.sleep(0.1)
if how == "unbind":
    gate.set_status(0)
"""


@pytest.mark.parametrize("how", ["trim", "statistics", "watch", "record", "unbind", "hook"])
def test_python_ends_while_threads_are_in_a_call_of_the_package(tmp_path, how):
    for _ in range(2):
        command = [sys.executable, "-c", EXITS, how, tmp_path / f"{how}.trace"]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize("options", [[], ["--pool"], ["--record"]])
def test_a_thread_that_waits_for_the_device_can_be_cancelled(tmp_path, options):
    program = compiled("cc", HERE / "cancelled.c", tmp_path / "cancelled", "-lOpenCL", "-pthread")
    if "--record" in options:
        options = [*options, tmp_path / "cancelled.trace"]
    command = [sys.executable, "-m", "binpool", "run", *options, "--"] if options else []
    ran = subprocess.run([*command, program], capture_output=True, text=True, check=False, timeout=60)
    assert (ran.returncode, ran.stdout) == (0, "cancelled: 1\n"), ran.stderr

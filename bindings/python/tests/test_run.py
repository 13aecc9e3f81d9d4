"""``python -m binpool``: the command that comes with the package."""

import subprocess
import sys

PROGRAM = """
import sys
import numpy
import pyopencl as cl
import pyopencl.array

queue = cl.CommandQueue(cl.create_some_context(interactive=False))


def doubled():
    return pyopencl.array.arange(queue, 1000, dtype=numpy.int32) * 2


print(doubled().get().sum())
sys.exit(3)
"""

# Of the functions here, ctypes calls the driver without the interpreter's lock.
TWO_INTERPRETERS = """
import ctypes
import threading

try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters

interpreters.create()
cl = ctypes.CDLL("libOpenCL.so.1")
cl.clCreateContextFromType.restype = ctypes.c_void_p
cl.clCreateBuffer.restype = ctypes.c_void_p
platform = ctypes.c_void_p()
cl.clGetPlatformIDs(1, ctypes.byref(platform), None)
CL_CONTEXT_PLATFORM = 0x1084
properties = (ctypes.c_void_p * 3)(CL_CONTEXT_PLATFORM, platform.value, None)
CL_DEVICE_TYPE_ALL = ctypes.c_ulong(0xFFFFFFFF)
context = ctypes.c_void_p(cl.clCreateContextFromType(properties, CL_DEVICE_TYPE_ALL, None, None, None))


def allocate():
    buffer = cl.clCreateBuffer(context, ctypes.c_ulong(0), ctypes.c_size_t(1024), None, None)
    print(cl.clReleaseMemObject(ctypes.c_void_p(buffer)))


thread = threading.Thread(target=allocate)
thread.start()
thread.join()
allocate()
"""


def run(*options, program=PROGRAM):
    command = [sys.executable, "-m", "binpool", "run", *options, "--", sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_program_is_recorded_and_pooled_and_does_not_notice(tmp_path):
    recording = tmp_path / "out.trace"
    for options in [["--report"], ["--record", recording], ["--pool", "--limit", "1GiB", "--report"]]:
        ran = run(*options)
        assert (ran.stdout, ran.returncode) == ("999000\n", 3), ran.stderr
        if "--report" in options:
            assert "in doubled" in ran.stderr
            assert "never released: nothing" in ran.stderr
    lines = recording.read_text().splitlines()
    assert lines[0] == "h version 3"
    allocated = [line for line in lines if line.startswith("a ")]
    assert len(allocated) == len([line for line in lines if line.startswith("f ")]) >= 2


def test_a_program_with_two_interpreters_is_recorded_on_each_thread(tmp_path):
    recording = tmp_path / "out.trace"
    ran = run("--record", recording, program=TWO_INTERPRETERS)
    assert (ran.stdout, ran.returncode) == ("0\n0\n", 0), ran.stderr
    lines = recording.read_text().splitlines()
    assert [line.split()[2] for line in lines if line.startswith("a ")] == ["1024", "1024"]


def test_a_package_without_the_command_says_so():
    source = "import binpool.__main__ as main; main._FOLDERS = ['nowhere']; main.main()"
    ran = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "pip install binpool-command" in ran.stderr


UNLOCKED = """
import ctypes

loader = ctypes.CDLL("libOpenCL.so.1")  # Its calls release the interpreter's lock.
platform, device, status = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()
loader.clGetPlatformIDs(1, ctypes.byref(platform), None)
loader.clGetDeviceIDs(platform, ctypes.c_ulong(0xFFFFFFFF), 1, ctypes.byref(device), None)
loader.clCreateContext.restype = loader.clCreateBuffer.restype = ctypes.c_void_p
context = ctypes.c_void_p(loader.clCreateContext(None, 1, ctypes.byref(device), None, None, ctypes.byref(status)))


def forgotten(bytes):
    return loader.clCreateBuffer(context, ctypes.c_ulong(0), ctypes.c_size_t(bytes), None, ctypes.byref(status))


forgotten(7)
"""


def test_lines_of_python_are_known_where_a_call_lets_go_of_its_lock(tmp_path):
    recording, program = tmp_path / "out.trace", tmp_path / "program.py"
    program.write_text(UNLOCKED)
    command = [sys.executable, "-m", "binpool", "run", "--record", recording, "--", sys.executable, program]
    subprocess.run(command, check=True)
    frames = [line.split(" ", 2)[2] for line in recording.read_text().splitlines() if line.startswith("k ")]
    assert frames == [f"{program}:13 in forgotten", f"{program}:16 in <module>"]


# Each is gone when the next one comes, which most often has its place.
GONE = (
    UNLOCKED
    + """
import gc


def make(bytes):
    loader.clReleaseMemObject(ctypes.c_void_p(forgotten(bytes)))


def run(source, file, function):
    names = {"make": make}
    exec(compile(source, file, "exec"), names)
    names[function]()
    del names
    gc.collect()


for number in range(50):
    run(f"def job_{number}(): make(4096)", f"job_{number}.py", f"job_{number}")
for lines in range(1, 51):  # All that differs is a line.
    run("def job():" + lines * "\\n" + " make(4096)", "jobs.py", "job")
"""
)


def test_lines_of_code_that_is_gone_are_not_those_of_other_code(tmp_path):
    recording = tmp_path / "out.trace"
    ran = run("--record", recording, program=GONE)
    assert ran.returncode == 0, ran.stderr
    frames = [line.split(" ", 2)[2] for line in recording.read_text().splitlines() if line.startswith("k ")]
    assert {f"job_{number}.py:1 in job_{number}" for number in range(50)} <= set(frames)
    assert {f"jobs.py:{lines + 1} in job" for lines in range(1, 51)} <= set(frames)

"""What the tests share: a context on the first OpenCL device, and a stand-in for CUDA's driver."""

import json
import os
import pathlib
import subprocess

import pyopencl as cl
import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]


@pytest.fixture(scope="session")
def context():
    return cl.Context([cl.get_platforms()[0].get_devices()[0]])


@pytest.fixture
def queue(context):
    return cl.CommandQueue(context)


@pytest.fixture
def out_of_order(context):
    return cl.CommandQueue(context, properties=cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE)


@pytest.fixture(scope="session")
def driver(tmp_path_factory):
    """The environment of a process that finds the stand-in where it looks for ``libcuda.so.1``."""
    command = ["cargo", "build", "--locked", "--quiet", "--package", "binpool-cuda-stand-in", "--message-format", "json"]
    command += ["--target-dir", ROOT / "target" / "tmp" / "stand-in"]
    built = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    messages = [json.loads(line) for line in built.stdout.splitlines()]
    files = [name for message in messages for name in message.get("filenames", [])]
    folder = tmp_path_factory.mktemp("driver")
    library = next(name for name in files if "cuda_stand_in" in name and name.endswith(".so"))
    (folder / "libcuda.so.1").symlink_to(library)
    return dict(os.environ, LD_LIBRARY_PATH=str(folder))

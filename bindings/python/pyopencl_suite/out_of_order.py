"""Runs PyOpenCL's tests of out-of-order queues many times, and counts wrong numbers.

    python out_of_order.py FOLDER_OF_TESTS TIMES

Each of the tests ``test_outoforderqueue_*`` runs this many times without a pool, with PyOpenCL's own as the default allocator, and with
binpool's, each in a process of its own. Fails where a run with binpool's has wrong numbers.
"""

import json
import os
import subprocess
import sys
from importlib import import_module


def count_wrong(folder, times):
    """Run the tests in this process, and return how often each gave wrong numbers."""
    sys.path.insert(0, folder)
    import binpool_by_default
    import pyopencl as cl

    tests = import_module("test_array")
    names = [name for name in dir(tests) if name.startswith("test_outoforderqueue_")]
    device = cl.get_platforms()[0].get_devices()[0]
    # One for all, so that kernels are built once, and the pool has free blocks as in a program that runs for long.
    context = cl.Context([device])
    wrong = dict.fromkeys(names, 0)
    for _ in range(times):
        for name in names:
            try:
                getattr(tests, name)(lambda: context)
            except AssertionError:
                wrong[name] += 1
    if os.environ["BINPOOL_SUITE"] != "stock":
        assert binpool_by_default.requests() > 0
    return wrong


def in_a_process(pool, folder, times):
    """Run the tests this many times with a pool, and return how often each gave wrong numbers; None where the process has died."""
    command = [sys.executable, __file__, folder, str(times), "count"]
    done = subprocess.run(command, env=os.environ | {"BINPOOL_SUITE": pool}, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        print(f"{pool}: the process ended with {done.returncode}")
        return None
    return json.loads(done.stdout.splitlines()[-1])


def main():
    folder, times = sys.argv[1], int(sys.argv[2])
    if len(sys.argv) > 3:
        print(json.dumps(count_wrong(folder, times)))
        return
    all_wrong = {}
    for pool in ("stock", "pyopencl", "binpool"):
        wrong = all_wrong[pool] = in_a_process(pool, folder, times)
        if wrong is not None:
            print(f"{pool}: {sum(wrong.values())} of {times * len(wrong)} runs with wrong numbers: {wrong}", flush=True)
    ours = all_wrong["binpool"]
    sys.exit(ours is None or sum(ours.values()) != 0)


main()

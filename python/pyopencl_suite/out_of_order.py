"""Runs PyOpenCL's tests of out-of-order queues many times, and counts wrong numbers.

    python out_of_order.py FOLDER_OF_TESTS TIMES

Each of the tests ``test_outoforderqueue_*`` runs so many times with PyOpenCL's own pool as the default allocator, and so many times with
binpool's, in processes of their own. Fails where a run with binpool's has wrong numbers.
"""

import json
import os
import subprocess
import sys
from importlib import import_module


ROUNDS_OF_A_PROCESS = 25


def count_wrong(folder, times):
    """Run the tests in this process, and return how often each gave wrong numbers."""
    sys.path.insert(0, folder)
    import binpool_by_default
    import pyopencl as cl

    tests = import_module("test_array")
    names = [name for name in dir(tests) if name.startswith("test_outoforderqueue_")]
    device = cl.get_platforms()[0].get_devices()[0]
    wrong = dict.fromkeys(names, 0)
    for _ in range(times):
        for name in names:
            context = cl.Context([device])
            try:
                getattr(tests, name)(lambda context=context: context)
            except AssertionError:
                wrong[name] += 1
            binpool_by_default._pools.clear()
    return wrong


def in_processes(pool, folder, times):
    """Run the tests so many times with a pool, and return how often each gave wrong numbers; None where a process has died."""
    wrong = {}
    while times > 0:
        # PyOpenCL keeps what it has built for each context.
        now = min(times, ROUNDS_OF_A_PROCESS)
        times -= now
        command = [sys.executable, __file__, folder, str(now), "count"]
        done = subprocess.run(command, env=os.environ | {"BINPOOL_SUITE": pool}, stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            print(f"{pool}: the process ended with {done.returncode}")
            return None
        for name, count in json.loads(done.stdout.splitlines()[-1]).items():
            wrong[name] = wrong.get(name, 0) + count
    return wrong


def main():
    folder, times = sys.argv[1], int(sys.argv[2])
    if len(sys.argv) > 3:
        print(json.dumps(count_wrong(folder, times)))
        return
    all_wrong = {}
    for pool in ("pyopencl", "binpool"):
        wrong = all_wrong[pool] = in_processes(pool, folder, times)
        if wrong is not None:
            print(f"{pool}: {sum(wrong.values())} of {times * len(wrong)} runs with wrong numbers: {wrong}", flush=True)
    ours = all_wrong["binpool"]
    sys.exit(ours is None or sum(ours.values()) != 0)


main()

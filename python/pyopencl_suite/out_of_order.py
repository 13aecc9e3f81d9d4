"""Runs PyOpenCL's tests of out-of-order queues many times, and counts wrong numbers.

    python out_of_order.py FOLDER_OF_TESTS TIMES

Each of the tests ``test_outoforderqueue_*`` runs so many times with PyOpenCL's own pool as the default allocator, and so many times with
binpool's, each in a process of its own. Fails where a run with binpool's has wrong numbers.
"""

import json
import os
import subprocess
import sys
from importlib import import_module


def count(folder, times):
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


def main():
    folder, times = sys.argv[1], int(sys.argv[2])
    if len(sys.argv) > 3:
        print(json.dumps(count(folder, times)))
        return
    all_wrong = {}
    for pool in ("pyopencl", "binpool"):
        environment = os.environ | {"BINPOOL_SUITE": pool}
        command = [sys.executable, __file__, folder, str(times), "count"]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            print(f"{pool}: the process ended with {done.returncode}")
            all_wrong[pool] = None
            continue
        wrong = json.loads(done.stdout.splitlines()[-1])
        print(f"{pool}: {sum(wrong.values())} of {times * len(wrong)} runs with wrong numbers: {wrong}", flush=True)
        all_wrong[pool] = sum(wrong.values())
    sys.exit(all_wrong["binpool"] != 0)


main()

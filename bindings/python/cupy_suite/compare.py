#!/usr/bin/env python3
"""Runs tests of CuPy's own with its pool and with binpool, both at the same time, and says where the results differ:

    compare.py TESTS [--only FILES] [--most 10] [-n 8] [--seconds 100] [-o FOLDER]

TESTS is the folder ``tests`` of CuPy's sources, of the installed version. FILES has a test file a line (by default ``files.txt``, beside
this). Of each file, at most ``--most`` tests run, the same ones in both runs; 0 is all of them.
"""

import argparse
import collections
import json
import os
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent


def started(choice, arguments, files):
    """Starts `arguments.n` processes, each with a part of the files, and returns them."""
    results = arguments.output / f"{choice}.txt"
    results.unlink(missing_ok=True)
    environment = dict(os.environ, BINPOOL_SUITE=choice, BINPOOL_RESULTS=str(results), BINPOOL_MOST=str(arguments.most))
    paths = [str(HERE), str(arguments.tests), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "binpool_by_default", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command += ["-m", "not slow and not multi_gpu", "--timeout", "60", "--tb", "short"]
    with open(arguments.output / f"{choice}.log", "w") as log:
        parts = [files[number :: arguments.n] for number in range(arguments.n)]
        return [
            subprocess.Popen([*command, *part], cwd=arguments.tests, env=environment, stdout=log, stderr=subprocess.STDOUT)
            for part in parts
            if part
        ]


def results(folder, choice):
    found = {}
    path = folder / f"{choice}.txt"
    if path.exists():
        for line in path.read_text().splitlines():
            test, *result = json.loads(line)
            found[test] = result
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tests", type=pathlib.Path)
    parser.add_argument("--only", type=pathlib.Path, default=HERE / "files.txt")
    parser.add_argument("-n", type=int, default=8)
    parser.add_argument("--most", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=100)
    parser.add_argument("-o", "--output", type=pathlib.Path, default=pathlib.Path.cwd())
    arguments = parser.parse_args()
    arguments.tests, arguments.output = arguments.tests.resolve(), arguments.output.resolve()
    files = [line for line in arguments.only.read_text().split() if (arguments.tests / line).exists()]
    choices = ["stock", "binpool"]
    end = time.monotonic() + arguments.seconds
    runs = {choice: started(choice, arguments, files) for choice in choices}
    for choice, processes in runs.items():
        for process in processes:
            try:
                process.wait(max(0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                print(f"{choice}: a process was stopped after {arguments.seconds:.0f} s")
    found = {choice: results(arguments.output, choice) for choice in choices}
    for choice, tests in found.items():
        requests = [seconds for outcome, seconds, _ in tests.values() if outcome == "requests"]
        if requests:
            print(f"requests to binpool's pools: {sum(requests)}")
        found[choice] = tests = {test: (outcome, reason) for test, (outcome, _, reason) in tests.items() if outcome != "requests"}
        counts = collections.Counter(outcome for outcome, _ in tests.values())
        in_files = len({test.split("::")[0] for test in tests})
        print(f"{choice:8} {len(tests)} tests of {in_files} files: {dict(sorted(counts.items()))}")
    both = sorted(found["stock"].keys() & found["binpool"].keys())
    differing = [test for test in both if found["stock"][test][0] != found["binpool"][test][0]]
    print(f"in both runs: {len(both)}; other results: {len(differing)}")
    failing = [test for test in both if found["stock"][test][0] == found["binpool"][test][0] in ("failed", "error")]
    print(f"failing with both: {len(failing)}")
    for test in differing:
        (stock, why), (pooled, reason) = found["stock"][test], found["binpool"][test]
        print(f"  {test}: {stock} with CuPy's pool, {pooled} with binpool: {(reason or why)[:200]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

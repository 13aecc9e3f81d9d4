#!/usr/bin/env python3
"""Compares unchanged programs of PyTorch under `binpool run` with the same programs without it, on a GPU:

    under_run.py [--steps N] [PROGRAM...]

The programs are those of `torch_training.py`, each time in a process of its own. A line of JSON each: whether the losses are those of
PyTorch, the median step beside that of PyTorch, what was reserved, and whether a recording has each allocation, and the peak to the byte.
The variable BINPOOL names the command.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

GIB = 1 << 30
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "bindings/python/torch_suite"))

from recorded import recorded  # noqa: E402 (where it is comes first)

COMMAND = os.environ.get("BINPOOL", "binpool")

# How a program is run: the options of `binpool run`, and the allocator that the program itself takes.
WAYS = {
    "PyTorch": (None, "native"),
    "the line": (None, "binpool"),
    "run --pool": (["--pool"], "native"),
    "run --record": (["--record", "TRACE"], "native"),
    "run --record --no-stacks": (["--record", "TRACE", "--no-stacks"], "native"),
    "run --record --modules": (["--record", "TRACE", "--modules"], "native"),
    "run --pool --record": (["--pool", "--record", "TRACE"], "native"),
}


def run(program, options, allocator, steps, trace):
    """Run a program, and return what it says."""
    command = [sys.executable, str(HERE / "torch_training.py"), program, allocator, "--steps", str(steps)]
    if options is not None:
        command = [COMMAND, "run", *(word.replace("TRACE", str(trace)) for word in options), "--", *command]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(ran.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("programs", nargs="*", default=["resnet", "gpt"])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--ways", default=",".join(WAYS))
    options = parser.parse_args()
    for program in options.programs:
        base = None
        for way in options.ways.split(","):
            with tempfile.TemporaryDirectory() as folder:
                trace = pathlib.Path(folder) / "out.trace"
                said = run(program, *WAYS[way], options.steps, trace)
                base = base or said
                row = {
                    "program": program,
                    "way": way,
                    "median_ms": round(said["median_ms"], 2),
                    "of_pytorch": round(said["median_ms"] / base["median_ms"], 3),
                    "same_losses": said["losses"] == base["losses"],
                    "reserved_gib": round(said["reserved_gib"], 4),
                    "allocated_gib": round(said["allocated_gib"], 4),
                }
                if trace.exists():
                    allocations, peak = recorded(COMMAND, trace)
                    row["missing_allocations"] = said["requests"] - allocations
                    row["peak_is_that_of_pytorch"] = peak == round(said["allocated_gib"] * GIB)
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()

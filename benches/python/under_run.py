#!/usr/bin/env python3
"""Compares unchanged programs of PyTorch under `binpool run` with the same programs without it, on a GPU:

    under_run.py [--steps 60] [--ways 'PyTorch,run --pool,...'] [PROGRAM...]

The programs are those of `torch_training.py`. All ways of a program run at the same time, each in a process of its own, and take turns
for each step, in another order each time: a machine that is faster in one minute than in the next is so for all of them. A line of JSON
each: whether the losses are those of PyTorch, the median step, and the median of its ratio to the same step of PyTorch; what was
reserved; and whether a recording has each allocation, and the peak to the byte. The variable BINPOOL names the command.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

GIB = 1 << 30
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "bindings/python/torch_suite"))

from recorded import recorded  # noqa: E402 (where it is comes first)

COMMAND = os.environ.get("BINPOOL", "binpool")

# How a program is run: the options of `binpool run`, and the allocator that the program itself takes. PyTorch is there twice to show how
# far the same differs.
WAYS = {
    "PyTorch": (None, "native"),
    "PyTorch again": (None, "native"),
    "the line": (None, "binpool"),
    "run --pool": (["--pool"], "native"),
    "run --record": (["--record", "TRACE"], "native"),
    "run --record --no-stacks": (["--record", "TRACE", "--no-stacks"], "native"),
    "run --record --modules": (["--record", "TRACE", "--modules"], "native"),
    "run --pool --record": (["--pool", "--record", "TRACE"], "native"),
}


class Process:
    """A program that runs one way, a step at a time."""

    def __init__(self, program, way, steps, folder):
        options, allocator = WAYS[way]
        self.trace = pathlib.Path(folder) / f"{way}.trace"
        command = [sys.executable, str(HERE / "torch_training.py"), program, allocator, "--steps", str(steps), "--turns"]
        if options is not None:
            command = [COMMAND, "run", *(word.replace("TRACE", str(self.trace)) for word in options), "--", *command]
        self.ran = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.seconds = []

    def step(self):
        self.ran.stdin.write("\n")
        self.seconds.append(float(self.ran.stdout.readline()))

    def end(self):
        """What the program says at its end."""
        said = json.loads(self.ran.stdout.read().splitlines()[-1])
        assert self.ran.wait() == 0, self.ran.args
        return said


def rows(program, ways, steps):
    """Yields the line of each way."""
    with tempfile.TemporaryDirectory() as folder:
        processes = [Process(program, way, steps, folder) for way in ways]
        for number in range(steps):
            start = number % len(ways)
            for process in processes[start:] + processes[:start]:
                process.step()
        base = None
        for way, process in zip(ways, processes, strict=True):
            said = process.end()
            base = base or said
            # Without the first: libraries are loaded there.
            warm = [*zip(process.seconds, processes[0].seconds, strict=True)][steps // 4 :]
            row = {
                "program": program,
                "way": way,
                "of_pytorch": round(statistics.median(own / other for own, other in warm), 3),
                "median_ms": round(1e3 * statistics.median(own for own, _ in warm), 2),
                "same_losses": said["losses"] == base["losses"],
                "reserved_gib": round(said["reserved_gib"], 4),
                "allocated_gib": round(said["allocated_gib"], 4),
            }
            if process.trace.exists():
                allocations, peak = recorded(COMMAND, process.trace)
                row["missing_allocations"] = said["requests"] - allocations
                row["peak_is_that_of_pytorch"] = peak == round(said["allocated_gib"] * GIB)
            yield row


def ways_of(text):
    """The ways of an argument."""
    ways = text.split(",")
    if unknown := [way for way in ways if way not in WAYS]:
        raise argparse.ArgumentTypeError(f"no way is called {', '.join(unknown)}: the ways are {', '.join(WAYS)}")
    return ways


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", default=["convolution", "gpt"])
    parser.add_argument("--steps", type=int, default=60)
    help = f"with commas between them, of {', '.join(WAYS)}; the others are compared with the first"
    parser.add_argument("--ways", type=ways_of, default=list(WAYS), help=help)
    options = parser.parse_args()
    for program in options.programs:
        for row in rows(program, options.ways, options.steps):
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()

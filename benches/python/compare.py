#!/usr/bin/env python3
"""Runs the programs of this folder over each allocator, each in a process of its own, and prints a table in Markdown:

    compare.py [-o FOLDER] [--rounds 2] [--steps 40] [--only PROGRAM]... [--seconds 500]

The package `binpool` has to be installed, as `scripts/wheel` builds it. Checks that the losses of a program are the same over every
allocator. Writes `python.json`, with all figures of all rounds, after each process. No process is begun after this many seconds.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
TORCH = (
    "torch_training.py",
    ["transformer", "convolution", "generation", "serving", "graph", "streams", "vision", "resnet", "gpt", "denoiser", "pairs"],
    ["native", "expandable", "binpool"],
)
CUPY = ("cupy_program.py", ["wave", "gradients", "pairs"], ["cupy", "binpool"])


def ran(words):
    """Runs a program that prints JSON. Returns it, or None where it fails, which is said."""
    began = time.monotonic()
    try:
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=200)
        print(f"{time.monotonic() - began:6.1f} s  {' '.join(map(str, words[1:3]))}", file=sys.stderr, flush=True)
        if done.returncode != 0:
            print(f"status {done.returncode}: {done.stderr.strip()[-3000:]}", file=sys.stderr, flush=True)
        return json.loads(done.stdout.strip().rsplit("\n", 1)[-1])
    except (subprocess.TimeoutExpired, ValueError) as error:
        print(f"failed: {words[1:3]}: {error}", file=sys.stderr, flush=True)
        return None


def table(found):
    yield "| program | allocator | step, ms | reserved, GiB | allocated, GiB | used of the device, GiB | same results |"
    yield "|---|---|---:|---:|---:|---:|---|"
    reference = {}
    for (script, program, allocator), runs in found.items():
        if program == "pairs":
            continue
        results = runs[0].get("losses", runs[0].get("results"))
        reference.setdefault((script, program), results)
        same = all(run.get("losses", run.get("results")) == reference[script, program] for run in runs)
        spread = [run["median_ms"] for run in runs]
        times = f"{statistics.median(spread):.1f} ({min(spread):.1f} to {max(spread):.1f})"
        sizes = " | ".join(f"{max(run.get(size, 0) for run in runs):.2f}" for size in ["reserved_gib", "allocated_gib", "used_gib"])
        yield f"| {program} | {allocator} | {times} | {sizes} | {'yes' if same else 'NO'} |"
    yield ""
    yield "| pairs, ns | whole | memory alone | nothing |"
    yield "|---|---:|---:|---:|"
    for (script, program, allocator), runs in found.items():
        if program == "pairs":
            whole = "tensor_ns" if script == TORCH[0] else "array_ns"
            figures = [f"{statistics.median(run[name] for run in runs):.0f}" for name in [whole, "memory_ns", "nothing_ns"]]
            yield f"| {script}, {allocator} | {' | '.join(figures)} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-o", "--output", type=pathlib.Path, default=pathlib.Path("."))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--only", action="append", help="a program; all where there is none")
    parser.add_argument("--seconds", type=float, default=500)
    options = parser.parse_args()
    began, found = time.monotonic(), {}
    for _ in range(options.rounds):
        for script, programs, allocators in [TORCH, CUPY]:
            for program in programs:
                for allocator in allocators:
                    left_out = options.only and program not in options.only
                    if left_out or time.monotonic() - began > options.seconds:
                        continue
                    words = [HERE / script, program, allocator, "--steps", str(options.steps)]
                    figures = ran(words)
                    if figures:
                        found.setdefault((script, program, allocator), []).append(figures)
                        named = [dict(figures, script=key[0]) for key, runs in found.items() for figures in runs]
                        (options.output / "python.json").write_text(json.dumps(named, indent=1))
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()

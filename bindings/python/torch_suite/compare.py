"""Compares what PyTorch's tests say over two allocators.

`compare.py NATIVE BINPOOL` takes files of `pytest -v`, and with `--api` before them results of calls, a line of JSON after `RESULT `.
"""

import json
import os
import re
import sys
from collections import Counter

OUTCOME = "(PASSED|FAILED|SKIPPED|ERROR|XFAIL|XPASS)"
# With xdist, and without.
LINE = re.compile(rf"(?:\[gw\d+\] \[ *\d+%\] {OUTCOME} (\S+))|(?:^(\S+::\S+) {OUTCOME})")


def outcomes(path: str) -> dict[str, str]:
    if not os.path.exists(path):
        return {}
    with open(path, errors="replace") as file:
        lines = [match for line in file if (match := LINE.search(line))]
    return {(line[2] or line[3]).split("/")[-1]: line[1] or line[4] for line in lines}


def reasons(path: str) -> dict[str, str]:
    """The error of each failed test, by its method."""
    found: dict[str, str] = {}
    name = ""
    with open(path, errors="replace") as file:
        for line in file:
            if header := re.match(r"_+ (\S+) _+$", line):
                name = header[1].split(".")[-1]
            elif line.startswith("E  ") and name:
                found.setdefault(name, line[1:].strip()[:160])
    return found


def main() -> None:
    if sys.argv[1] == "--api":
        both = []
        for path in sys.argv[2:]:
            with open(path, errors="replace") as file:
                results = [json.loads(line[7:]) for line in file if line.startswith("RESULT ")]
            both.append(results[0]["result"] if results else {})
        native, binpool = both
        good = [sum(value.startswith("ok") for value in results.values()) for results in both]
        print(f"calls that went well: {good[0]} native, {good[1]} binpool")
        for call in native | binpool:
            one, other = native.get(call, "none"), binpool.get(call, "none")
            if not other.startswith("ok") or not one.startswith("ok"):
                print(f"  {call}: native {one}; binpool {other}")
        return
    native, binpool = outcomes(sys.argv[1]), outcomes(sys.argv[2])
    print("native ", dict(Counter(native.values())))
    print("binpool", dict(Counter(binpool.values())))
    why = reasons(sys.argv[2])
    for test, outcome in sorted(binpool.items()):
        if outcome in ("FAILED", "ERROR") and native.get(test) not in ("FAILED", "ERROR"):
            method = test.split("::")[-1]
            print(f"  binpool alone ({native.get(test, 'not run')} natively): {test.split('::', 1)[-1]}: {why.get(method, '')}")
    worse = [test for test, outcome in native.items() if outcome == "FAILED" and binpool.get(test) == "FAILED"]
    print("  fail over both:", " ".join(test.split("::")[-1] for test in worse)[:600])
    print("  not run over binpool:", len(native.keys() - binpool.keys()))


if __name__ == "__main__":
    main()

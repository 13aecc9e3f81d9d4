"""What a recording of `binpool run` has, counted by its lines."""

import pathlib
import subprocess


def recorded(command: str, trace: pathlib.Path) -> tuple[int, int]:
    """Return how many allocations a recording has, and the most bytes that blocks took at once, until the program freed them.

    A block takes what was requested where the recording does not say more.
    """
    written = trace.with_suffix(".written")
    subprocess.run([command, "import", str(trace), "-o", str(written)], check=True, capture_output=True)
    takes: dict[int, int] = {}
    live: dict[int, int] = {}
    allocations = now = most = 0
    with written.open() as lines:
        for letter, *rest in (line.split() for line in lines if line[0] in "abfw"):
            number = int(rest[0])
            if letter == "b":
                takes[number] = int(rest[3])
            elif letter == "a":
                allocations += 1
                live[number >> 8] = takes.get(number >> 8, int(rest[1]))
                now += live[number >> 8]
                most = max(most, now)
            else:
                now -= live.pop(number if letter == "w" else number >> 8, 0)
    return allocations, most

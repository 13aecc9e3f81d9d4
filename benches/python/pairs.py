"""What a pair of an allocation and its free costs in Python."""

import statistics
import time


def median_ns(*pairs, count=20_000, rounds=15):
    """Return the nanoseconds of each pair, the median of some rounds.

    All are timed in turn, so that what else the machine does meets each.
    """
    times = [[] for _ in pairs]
    for _ in range(rounds):
        for pair, found in zip(pairs, times, strict=True):
            began = time.perf_counter_ns()
            for _ in range(count):
                pair()
            found.append((time.perf_counter_ns() - began) / count)
    return [statistics.median(found) for found in times]

"""A plugin of pytest that makes binpool the allocator of CuPy, whose own tests run with it as they are.

``BINPOOL_SUITE=stock`` leaves CuPy's own pool. ``BINPOOL_MOST`` is the most tests of a file that run, the same ones each time; the tests of
memory, streams and graphs run all. ``BINPOOL_RESULTS`` names a file to which each test is written when it has ended, so that a run that is
stopped has results, too.
"""

import collections
import json
import os
import random
import re

import pytest

_CHOICE = os.environ.get("BINPOOL_SUITE", "binpool")
_MOST = int(os.environ.get("BINPOOL_MOST", "0"))
_RESULTS = os.environ.get("BINPOOL_RESULTS")

# Addresses and times, which differ from run to run.
_VARIES = re.compile(r"0x[0-9a-f]+|\d+\.\d+s")


def pytest_configure():
    if _CHOICE != "stock":
        import binpool.cupy

        binpool.cupy.use()


def pytest_collection_modifyitems(items):
    if not _MOST:
        return
    of_file = collections.defaultdict(list)
    for item in items:
        of_file[item.nodeid.split("::")[0]].append(item)
    kept = set()
    for file, tests in of_file.items():
        few = tests if "/cuda_tests/" in file else random.Random(0).sample(tests, min(_MOST, len(tests)))
        kept.update(map(id, few))
    items[:] = [item for item in items if id(item) in kept]


def _outcome(report):
    """Return the outcome of a test, or None for a part of it that says nothing."""
    if report.when == "call" or report.outcome != "passed":
        if hasattr(report, "wasxfail"):
            return "xfailed" if report.skipped else "xpassed"
        return report.outcome if report.when == "call" or report.skipped else "error"
    return None


def _write(*line):
    if _RESULTS:
        with open(_RESULTS, "a") as results:
            results.write(json.dumps(line) + "\n")


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report):
    outcome = _outcome(report)
    if outcome is None:
        return
    reason = ""
    if outcome in ("failed", "error"):
        crash = getattr(report.longrepr, "reprcrash", None)
        text = crash.message if crash else str(report.longrepr)
        reason = _VARIES.sub("_", " ".join(text.split()))[:300]
    _write(report.nodeid, outcome, round(report.duration, 3), reason)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item, nextitem):
    # So that a run that is stopped has told how many requests the pool has served, file by file.
    if _CHOICE != "stock" and (nextitem is None or nextitem.fspath != item.fspath):
        import binpool.cupy

        figures = binpool.cupy.pool(0).statistics
        _write(f"requests of {os.getpid()}", "requests", figures.hits + figures.misses, "")

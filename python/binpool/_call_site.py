"""The line of the program that makes a request."""

import os
import sys

_LIBRARIES = ("pyopencl", "binpool", "pytools")


def _is_library(frame):
    name = frame.f_globals.get("__name__", "")
    return name.partition(".")[0] in _LIBRARIES


def call_site():
    """Return the innermost line that is in none of the array libraries, as ``file.py:12 in function``."""
    frame = innermost = sys._getframe(1)
    while frame is not None and _is_library(frame):
        frame = frame.f_back
    frame = frame or innermost
    code = frame.f_code
    return f"{os.path.basename(code.co_filename)}:{frame.f_lineno} in {code.co_qualname}"

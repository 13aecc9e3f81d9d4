"""The line of the program that makes a request."""

import os
import sys
from types import FrameType

_LIBRARIES = ("pyopencl", "pytools", "torch", "cupy", "cupyx", "binpool")


def _is_library(frame: FrameType) -> bool:
    name: str = frame.f_globals.get("__name__", "")
    return name.partition(".")[0] in _LIBRARIES


def call_site() -> str:
    """Return the innermost line that is in none of the array libraries, as ``file.py:12 in function``."""
    try:
        innermost = sys._getframe(1)
    except ValueError:
        return "a thread without Python"  # PyTorch's backward pass has such.
    frame: FrameType | None = innermost
    while frame is not None and _is_library(frame):
        frame = frame.f_back
    frame = frame or innermost
    code = frame.f_code
    return f"{os.path.basename(code.co_filename)}:{frame.f_lineno} in {code.co_qualname}"

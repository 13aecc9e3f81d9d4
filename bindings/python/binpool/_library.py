"""Which OpenCL library is used."""

import os

_VARIABLE = "OPENCL_DYLIB_PATH"


def _loaded() -> str | None:
    """Return the path of the OpenCL library of this process, or None."""
    try:
        with open("/proc/self/maps") as maps:
            for line in maps:
                path = line.split(maxsplit=5)[-1].strip()
                if os.path.basename(path).startswith("libOpenCL"):
                    return path
    except OSError:
        pass
    return None


def use_that_of_pyopencl() -> None:
    """Name the library that PyOpenCL has loaded, which may be one of its own, as the one to load, unless the program names one."""
    if os.environ.get(_VARIABLE):
        return
    path = _loaded()
    if path is not None:
        os.environ[_VARIABLE] = path
    else:
        os.environ.pop(_VARIABLE, None)  # An empty name is none.

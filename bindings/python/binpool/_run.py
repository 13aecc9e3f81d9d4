"""What ``binpool run`` has done in a program of Python: PyTorch and CuPy pooled, and their tensors and arrays recorded.

Its settings are variables of the environment, as ``pool/guide/any_program.md`` has them.
"""

import atexit
import ctypes
import functools
import os
import pathlib
import sys
import threading
from collections.abc import Callable
from typing import Any

_Say = Callable[[str], None]


_known: set[str] = set()


def imported(name: str, say: _Say) -> None:
    """Pool and record a framework that was imported just now, and say what does not work. Later calls for it do nothing."""
    if name not in _known:
        _known.add(name)
        {"torch": _torch, "cupy": _cupy}[name](say)


def _is_set(name: str) -> bool:
    return os.environ.get(name, "0") not in ("", "0")


def _pools() -> bool:
    return _is_set("BINPOOL_POOL")


def _records() -> bool:
    return bool(os.environ.get("BINPOOL_RECORD")) and _layer() is not None


def _note_pool(served: int = 0, refused: int = 0, reserved: int = 0, live: int = 0) -> None:
    """Let ``binpool run`` know that there is a pool, and what it has done."""
    if layer := _layer():
        layer.binpool_run_pool(*map(ctypes.c_uint64, (served, refused, reserved, max(reserved - live, 0))))


# PyTorch, which calls some of these in the middle of its own beginning, which an exception would end.


def _torch(say: _Say) -> None:
    import torch

    if not hasattr(torch, "version"):
        return None  # A module of the program's own, which has this name.
    if torch.version.cuda is None:
        return say("PyTorch is left alone: this one is built without CUDA")
    # Once CUDA is used: before that, PyTorch's allocator knows no device, and many processes that import PyTorch never use one.
    if _pools():
        torch.cuda._lazy_call(lambda: _pool_torch(say))
    if _records():
        torch.cuda._lazy_call(lambda: _record_torch(say))


def _pool_torch(say: _Say) -> None:
    try:
        library = _library("torch_allocator")
        from binpool import torch as own  # It names what only known versions of PyTorch have.

        own._install(library)
    except Exception as error:
        return say(f"PyTorch has its own allocator, not binpool's: {error}")
    _note_pool()
    atexit.register(_tell_of_torch, str(library))


def _record_torch(say: _Say) -> None:
    """Attach the tracker."""
    if os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING") == "1":
        return  # Each tensor is the driver's, and recorded as such.
    try:
        _attach_tracker()
    except Exception as error:
        # What the driver gives is recorded.
        _layer().binpool_run_divided(b"PyTorch")
        return say(f"PyTorch's segments are recorded, not its tensors: {error}")
    if _is_set("BINPOOL_MODULES"):
        try:
            from binpool import _modules

            _modules.Places(_layer()).begin()
        except Exception as error:
            say(f"tensors are recorded without the modules that they are of: {error}")


def _attach_tracker() -> None:
    import torch

    backend = torch.cuda.get_allocator_backend()
    names = {"native": b"PyTorch's caching allocator", "binpool": b"binpool in PyTorch"}
    if backend not in names:
        raise RuntimeError(f"the program has chosen the allocator {backend!r}")
    tracker = ctypes.CDLL(str(_library("torch_tracker")))
    granted = None
    if backend == "binpool":
        granted = ctypes.cast(ctypes.CDLL(str(_library("torch_allocator"))).binpool_torch_granted, ctypes.c_void_p)
    layer = _layer()
    for number in range(torch.cuda.device_count()):
        device = torch.cuda.get_device_properties(number)
        layer.binpool_run_device(number, device.name.encode(), ctypes.c_uint64(device.total_memory))
    tracker.binpool_tracker_attach.restype = ctypes.c_char_p
    event = ctypes.cast(layer.binpool_run_event, ctypes.c_void_p)
    if failure := tracker.binpool_tracker_attach(event, granted):
        raise RuntimeError(failure.decode(errors="replace"))
    layer.binpool_run_attach(True, names[backend])


def _library(name: str) -> pathlib.Path:
    """Return a library that is built against PyTorch. Where the first process of a run cannot build it, the others do not try."""
    from binpool import _torch_build

    run = os.environ.get("BINPOOL_RUN")
    failed = pathlib.Path(run, f"{name}.failed") if run else None
    if failed and failed.exists():
        raise _torch_build.BuildError(failed.read_text())
    try:
        return _torch_build.library(name)
    except _torch_build.BuildError as error:
        if failed and failed.parent.is_dir():
            failed.write_text(str(error))
        raise


def _tell_of_torch(library: str) -> None:
    import torch

    if not torch.cuda.is_initialized() or torch.cuda.get_allocator_backend() != "binpool":
        return
    totals = (ctypes.c_uint64 * 4)()
    for number in range(torch.cuda.device_count()):
        ctypes.CDLL(library).binpool_torch_totals(number, totals)
        _note_pool(*totals)


# CuPy.


def _cupy(say: _Say) -> None:
    if _pools():
        import binpool.cupy

        binpool.cupy.use()
        _note_pool()
    if _records():
        _record_cupy()


def _record_cupy() -> None:
    """Enter a memory hook in this thread, and in each that begins later: CuPy has hooks for each thread."""
    hook = _hook()
    hook.__enter__()
    begin = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    @functools.wraps(begin)
    def begin_hooked(thread: threading.Thread) -> None:
        hook.__enter__()
        begin(thread)

    threading.Thread._bootstrap_inner = begin_hooked  # type: ignore[attr-defined]


def _hook() -> Any:
    import cupy

    layer = _layer()

    class Hook(cupy.cuda.memory_hook.MemoryHook):  # type: ignore[misc]
        """Tells the recording of each array."""

        name = "binpool run"
        devices: set[int] = set()

        def __enter__(self) -> "Hook":
            if self.name not in cupy.cuda.memory_hook.get_memory_hooks():
                super().__enter__()
            return self

        def malloc_preprocess(self, *, device_id: int, **_: Any) -> None:
            if device_id in self.devices:
                return
            self.devices.add(device_id)
            properties = cupy.cuda.runtime.getDeviceProperties(device_id)
            layer.binpool_run_device(device_id, properties["name"], ctypes.c_uint64(properties["totalGlobalMem"]))
            layer.binpool_run_attach(False, b"binpool in CuPy" if _pools() else b"CuPy's memory pool")

        def malloc_postprocess(self, *, device_id: int, size: int, mem_size: int, mem_ptr: int, **_: Any) -> None:
            if size == 0:
                return  # An empty array has no memory, and no address.
            # Of a request that failed, what the device has free.
            what, address = (_ALLOCATED, mem_ptr) if mem_ptr else (_REFUSED, cupy.cuda.runtime.memGetInfo()[0])
            stream = cupy.cuda.get_current_stream().ptr
            layer.binpool_run_event(ctypes.byref(_Event(what, device_id, address, size, mem_size, stream, None, _own_frames())))

        # Afterwards, another thread may have the memory.
        def free_preprocess(self, *, device_id: int, mem_ptr: int, **_: Any) -> None:
            layer.binpool_run_event(ctypes.byref(_Event(_FREED, device_id, mem_ptr, 0, 0, 0, None, 0)))

    return Hook()


_PACKAGE = str(pathlib.Path(__file__).parent) + os.sep


def _own_frames() -> int:
    """Return how many of the innermost frames are of this package, without that of this function."""
    frame, count = sys._getframe(1), 0
    while frame and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, count = frame.f_back, count + 1  # type: ignore[assignment]
    return count


# The layer, which writes the recording: tools/layer/src/framework.rs.

_ARRAY = 1 << 16
_ALLOCATED, _FREED, _REFUSED = 0 | _ARRAY, 2 | _ARRAY, 7 | _ARRAY


class _Event(ctypes.Structure):
    _fields_ = [
        ("what", ctypes.c_uint32),
        ("device", ctypes.c_int32),
        ("address", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("granted", ctypes.c_uint64),
        ("stream", ctypes.c_uint64),
        ("note", ctypes.c_char_p),
        ("own_frames", ctypes.c_uint32),
    ]


@functools.cache
def _layer() -> Any:
    """Return the library that ``binpool run`` loads into programs, or None where there is none."""
    path = os.environ.get("BINPOOL_LAYER")
    return ctypes.CDLL(path) if path else None

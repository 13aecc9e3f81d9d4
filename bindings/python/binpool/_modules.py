"""Tells the recording of ``binpool run --modules`` which module of a model allocates, in which part of a step.

Forward: PyTorch's hooks of all modules. Backward: the thread of the backward pass is in the module whose output's gradient it has reached
last, which a hook of that output's node says; hooks of modules would change what the graph is made of. Optimizer: its hooks.
"""

import contextlib
import ctypes
import sys
import threading
import weakref
from types import FrameType
from typing import Any

import torch
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers


class _Thread(threading.local):
    """The modules and optimizers that a thread is in, and the frames that run them, by identity; and where the thread was before each."""

    def __init__(self) -> None:
        self.within: list[tuple[int, int, int]] = []


class Places:
    """Where the threads of the program are. No hook here raises, whatever a module is or returns."""

    def __init__(self, layer: ctypes.CDLL) -> None:
        self._layer = layer
        layer.binpool_run_enter.restype = ctypes.c_uint64
        layer.binpool_run_enter.argtypes = [ctypes.c_uint64]
        self._thread = _Thread()
        # The class of the outermost module of each, and the path below that. By its identity: a module need not be hashable.
        self._paths: dict[int, tuple[weakref.ref[torch.nn.Module], str, str]] = {}
        self._numbers: dict[tuple[str, str, str], int] = {}
        # The places of the backward pass.
        self._later: set[int] = set()
        self._backward = self._number("backward")
        self._task = -1

    def begin(self) -> None:
        """Register the hooks."""
        modules.register_module_forward_pre_hook(self._before_forward)
        modules.register_module_forward_hook(self._after_forward, always_call=True)
        optimizers.register_optimizer_step_pre_hook(self._before_step)
        optimizers.register_optimizer_step_post_hook(self._after_step)

    def _number(self, phase: str, root: str = "", path: str = "") -> int:
        known = self._numbers.get((phase, root, path))
        if known is not None:
            return known
        parts = path.split(".") if path else []
        frames = ["module " + ".".join(parts[:length]) for length in range(len(parts), 0, -1)]
        frames += ["module " + root] * bool(root) + ["phase " + phase]
        number: int = self._layer.binpool_run_place("\n".join(frames).encode(errors="replace"))
        self._numbers[phase, root, path] = number
        if phase in ("backward", "recomputed"):
            self._later.add(number)
        return number

    def _path(self, module: torch.nn.Module) -> tuple[str, str]:
        """Return the class of the outermost module, and the path below it. A module that is called first is an outermost one."""
        found = self._known(id(module))
        if found is None and self._thread.within:
            # It was added to the model since.
            outermost = self._known(self._thread.within[0][0])
            if outermost:
                self._add(outermost[0], outermost[1], outermost[2], set())
            found = self._known(id(module))
        if found is None:
            found = module, type(module).__name__, ""
            self._add(*found, set())
        return found[1], found[2]

    def _known(self, number: int) -> tuple[torch.nn.Module, str, str] | None:
        """Return a module that is alive and known, the class of its outermost one, and the path below that."""
        known = self._paths.get(number)
        module = known[0]() if known else None
        return None if known is None or module is None else (module, known[1], known[2])

    def _add(self, module: torch.nn.Module, root: str, path: str, seen: set[int]) -> None:
        number = id(module)
        if number in seen:
            return
        seen.add(number)

        def forget(_: object) -> None:
            self._paths.pop(number, None)

        self._paths[number] = weakref.ref(module, forget), root, path
        for name, part in module._modules.items():
            if part is not None:
                self._add(part, root, f"{path}.{name}" if path else name, seen)

    def _enter(self, what: object, caller: FrameType) -> int:
        """Leave all places until the end of a module or an optimizer, and return where the thread was."""
        within = self._thread.within
        # Those that an exception has left which no hook is told of.
        while within and not _is_running(within[-1][1], caller.f_back):
            self._layer.binpool_run_enter(within.pop()[2])
        outer: int = self._layer.binpool_run_enter(0)
        within.append((id(what), id(caller), outer))
        return outer

    def _leave(self, what: object) -> None:
        """Go back to where the thread was before a module or an optimizer, which may not be known."""
        within = self._thread.within
        for index in range(len(within) - 1, -1, -1):
            number, _, outer = within[index]
            if number == id(what):
                del within[index:]
                self._layer.binpool_run_enter(outer)
                return

    def _before_forward(self, module: torch.nn.Module, _: Any) -> None:
        # The compiler would trace what follows.
        if torch.compiler.is_compiling():
            return
        with contextlib.suppress(Exception):
            outer = self._enter(module, sys._getframe(1))
            if outer == 0:
                self.end_backward()
            # Checkpoints compute once more what they have not kept.
            phase = "recomputed" if outer & 0xFFFFFFFF in self._later else "forward"
            self._layer.binpool_run_enter(self._number(phase, *self._path(module)))

    def _after_forward(self, module: torch.nn.Module, _: Any, output: Any) -> None:
        if torch.compiler.is_compiling():
            return
        with contextlib.suppress(Exception):
            self._leave(module)
            number = self._number("backward", *self._path(module))
            with torch._C.DisableTorchFunctionSubclass():
                for node in _nodes(output, _DEEPEST):
                    # That of a module within this one was first.
                    if "binpool" not in node.metadata:
                        node.metadata["binpool"] = number
                        node.register_prehook(_Within(self, number))

    def _before_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        with contextlib.suppress(Exception):
            self._enter(optimizer, sys._getframe(1))
            self._layer.binpool_run_enter(self._number("optimizer"))

    def _after_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        with contextlib.suppress(Exception):
            self._leave(optimizer)

    def enter_backward(self, number: int) -> None:
        """Have the thread of a backward pass be in a module until the pass ends."""
        self._layer.binpool_run_enter_backward(number)
        task = torch._C._current_graph_task_id()
        if task != self._task:
            self._task = task
            torch.autograd.Variable._execution_engine.queue_callback(self.end_backward)

    def end_backward(self) -> None:
        """Have the threads of backward passes be in no module."""
        self._layer.binpool_run_end_backward(self._backward)


def _is_running(number: int, frame: FrameType | None) -> bool:
    """Return whether a frame of PyTorch is this one, or has called it, by its identity. An ended frame may have had that of another one."""
    while frame is not None and not (id(frame) == number and frame.f_globals.get("__name__", "").startswith("torch.")):
        frame = frame.f_back
    return frame is not None


class _Within:
    """Has the thread of the backward pass be in a module, before a node of it is computed."""

    __slots__ = ("_number", "_places")

    def __init__(self, places: Places, number: int) -> None:
        self._places, self._number = places, number

    def __call__(self, _: Any) -> None:
        # A thread with Python below it is the program's own.
        if not torch.compiler.is_compiling() and sys._getframe().f_back is None:
            with contextlib.suppress(Exception):
                self._places.enter_backward(self._number)


# How deep tensors may lie in what a module returns.
_DEEPEST = 8


def _nodes(output: Any, depth: int) -> list[Any]:
    """Return the nodes of the graph that computed what a module returns: tensors, in dictionaries, lists and tuples."""
    if isinstance(output, torch.Tensor):
        try:
            return [output.grad_fn] if output.grad_fn is not None else []
        except RuntimeError:
            return []  # A view of what was modified in place: only its use is an error.
    if isinstance(output, dict):
        output = tuple(dict.values(output))
    # Not anything that can be iterated: that may be done once only.
    if isinstance(output, list | tuple) and depth > 0:
        return [node for part in output for node in _nodes(part, depth - 1)]
    return []

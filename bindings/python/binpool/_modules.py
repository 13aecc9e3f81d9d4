"""Tells the recording of ``binpool run --modules`` which module of a model allocates, in which part of a step.

Forward: PyTorch's hooks of all modules. Backward: the thread of the backward pass is in the module whose output's gradient it has reached
last, which a hook of that output's node says; hooks of modules would change what the graph is made of. Optimizer: its hooks.
"""

import ctypes
import sys
import threading
import weakref
from typing import Any

import torch
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers


class _Thread(threading.local):
    """The modules that a thread is in: where it was before each."""

    def __init__(self) -> None:
        self.outer: list[int] = []


class Places:
    """Where the threads of the program are."""

    def __init__(self, layer: ctypes.CDLL) -> None:
        self._layer = layer
        self._thread = _Thread()
        # The class of the outermost module of each, and the path below that. By its identity: a module need not be hashable.
        self._paths: dict[int, tuple[weakref.ref[torch.nn.Module], str, str]] = {}
        self._numbers: dict[tuple[str, str, str], int] = {}
        # The places of the backward pass.
        self._later: set[int] = set()

    def begin(self) -> None:
        """Register the hooks."""
        modules.register_module_forward_pre_hook(self._enter)
        modules.register_module_forward_hook(self._leave, always_call=True)
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
        found = self._paths.get(id(module))
        if found is None or found[0]() is not module:
            self._add(module, type(module).__name__, "", set())
            found = self._paths[id(module)]
        return found[1], found[2]

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

    def _enter(self, module: torch.nn.Module, _: Any) -> None:
        # The compiler would trace what follows.
        if torch.compiler.is_compiling():
            return
        outer: int = self._layer.binpool_run_enter(0)
        self._thread.outer.append(outer)
        # Checkpoints compute once more what they have not kept.
        phase = "recomputed" if outer in self._later else "forward"
        self._layer.binpool_run_enter(self._number(phase, *self._path(module)))

    def _leave(self, module: torch.nn.Module, _: Any, output: Any) -> None:
        if torch.compiler.is_compiling():
            return
        if self._thread.outer:
            self._layer.binpool_run_enter(self._thread.outer.pop())
        number = self._number("backward", *self._path(module))
        for node in _nodes(output):
            # That of a module within this one was first.
            if "binpool" not in node.metadata:
                node.metadata["binpool"] = number
                node.register_prehook(_Within(self._layer, number))

    def _before_step(self, *_: Any) -> None:
        self._thread.outer.append(self._layer.binpool_run_enter(self._number("optimizer")))

    def _after_step(self, *_: Any) -> None:
        if self._thread.outer:
            self._layer.binpool_run_enter(self._thread.outer.pop())


class _Within:
    """Has the thread of the backward pass be in a module, before a node of it is computed."""

    __slots__ = ("_layer", "_number")

    def __init__(self, layer: ctypes.CDLL, number: int) -> None:
        self._layer, self._number = layer, number

    def __call__(self, _: Any) -> None:
        # A thread with Python below it is the program's own, which would be there forever.
        if sys._getframe().f_back is None:
            self._layer.binpool_run_enter(self._number)


def _nodes(output: Any) -> list[Any]:
    """Return the nodes of the graph that computed what a module returns: tensors, in whatever they are."""
    if isinstance(output, torch.Tensor):
        return [output.grad_fn] if output.grad_fn is not None else []
    if isinstance(output, dict):
        output = tuple(output.values())
    # Not anything that can be iterated: that may be done once only.
    return [node for part in output for node in _nodes(part)] if isinstance(output, list | tuple) else []

"""Tags: names for parts of the program."""

import functools
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from typing import ParamSpec, TypeVar

# The tags that hold at this point of the program, the innermost one last. The library reads it for each request of a pool that notes its
# requests.
TAGS: ContextVar[tuple[str, ...]] = ContextVar("binpool.TAGS", default=())

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


class tag:
    """A name for what a part of the program allocates, as a context manager and as a decorator::

        with binpool.tag("forward"):
            ...

    Requests of this thread carry it, from PyOpenCL, PyTorch and CuPy, and in pools that are watched or recorded: in reports, live
    blocks, snapshots and recordings it stands before the line of the program. Of several tags within each other the innermost counts.

    A thread begins without a tag, and each task of asyncio has its own. A generator shares those of its caller: a tag that it has entered
    holds for the caller, too, until the generator leaves it.

    Names are kept as long as the program runs: a program has some, and not one for each block.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f"the name of a tag is a string, not {type(name).__name__}")
        self.name = name.strip() or "(no name)"

    def __enter__(self) -> "tag":
        TAGS.set((*TAGS.get(), self.name))
        return self

    def __exit__(self, *error: object) -> None:
        tags = list(TAGS.get())
        # Not always the last one: a generator may leave its tag within one that its caller has entered meanwhile.
        if self.name in tags:
            del tags[len(tags) - 1 - tags[::-1].index(self.name)]
        TAGS.set(tuple(tags))

    def __call__(self, function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
        """Apply the tag while the function runs, which may be ``async``."""
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"{function.__qualname__} is a generator, which runs within its caller: write `with binpool.tag(...)` in it")
        if inspect.isclass(function) or not callable(function):
            raise TypeError("a tag decorates a function: tag the methods of a class")
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def run_async(*arguments: _Parameters.args, **named: _Parameters.kwargs) -> object:
                with tag(self.name):
                    return await function(*arguments, **named)

            return run_async  # type: ignore[return-value] # A function with the same result, which is awaited.

        @functools.wraps(function)
        def run(*arguments: _Parameters.args, **named: _Parameters.kwargs) -> _Result:
            with tag(self.name):
                return function(*arguments, **named)

        return run

    def __repr__(self) -> str:
        return f"binpool.tag({self.name!r})"

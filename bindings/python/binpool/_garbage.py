"""The collector of Python's garbage, which the library calls before a request fails for lack of memory."""

import gc


def collect(_bytes: int) -> None:
    """Collect all of it: a block does not say how old the objects are that keep it."""
    gc.collect()

"""What the programs of this folder have in common."""

import sys
import time
import traceback
from collections.abc import Callable, Sequence


def use(arguments: Sequence[str]) -> None:
    """Take the allocator that the command line names: `binpool` (where it names none), `late`, or PyTorch's own, `native`."""
    import torch

    which = arguments[0] if arguments else "binpool"
    if which == "native":
        return
    if which == "late":
        torch.cuda.set_device(0)
        late = torch.ones(1 << 20, device="cuda")
    import binpool.torch

    binpool.torch.use()
    if which == "late":
        assert late.sum().item() == 1 << 20
    assert torch.cuda.get_allocator_backend() == "binpool"


class Checks:
    """Checks of a program, each with a line."""

    def __init__(self, name: str) -> None:
        self.name, self.good, self.bad = name, 0, 0

    def run(self, name: str, check: Callable[[], object]) -> None:
        start = time.perf_counter()
        try:
            said = check()
        except BaseException:
            self.bad += 1
            print(f"FAILED {name}: {' | '.join(traceback.format_exc().strip().splitlines()[-4:])[:600]}", flush=True)
        else:
            self.good += 1
            print(f"ok {name} {time.perf_counter() - start:.1f} s {'' if said is None else said}", flush=True)

    def end(self) -> None:
        print(f"{self.name}: {self.good} good, {self.bad} failed", flush=True)
        sys.exit(1 if self.bad else 0)

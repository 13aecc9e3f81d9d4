"""PyTorch under `binpool run`: pooled without a line, and recorded tensor by tensor. The variable BINPOOL names the command."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap

from checks import Checks
from recorded import recorded

COMMAND = os.environ.get("BINPOOL", "binpool")

WORK = """
import threading
import torch

def tensor(size, device=0):
    return torch.empty(size, dtype=torch.uint8, device=f"cuda:{device}")

def work(device):
    kept = []
    stream = torch.cuda.Stream(device)
    for step in range(40):
        large = tensor(3_000_000 + 70_000 * (step % 7), device)
        small = [tensor(100 + 999 * number, device) for number in range(20)]
        kept.append(tensor(5_000 * (1 + step % 3), device))
        other = tensor(25_000_001 + 1_000_000 * (step % 5), device)
        with torch.cuda.stream(stream):
            there = tensor(2_000_000, device)
        large.record_stream(stream)
        del large, small, other, there
    return kept

kept = work(0)
"""

FIGURES = """
import json
stats = torch.cuda.memory_stats()
print("RESULT", json.dumps([torch.cuda.get_allocator_backend(), stats["allocation.all.allocated"], torch.cuda.max_memory_allocated(),
                            stats["reserved_bytes.all.peak"]]))
"""


class Ran:
    """A program that has run."""

    def __init__(
        self, *options: str, source: str = WORK + FIGURES, python: tuple[str, ...] = (), status: int = 0, **variables: str
    ) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.trace = pathlib.Path(self.folder.name) / "out.trace"
        script = pathlib.Path(self.folder.name) / "program.py"
        script.write_text(textwrap.dedent(source))
        words = [word.replace("TRACE", str(self.trace)) for word in options]
        command = [COMMAND, "run", *words, "--", *(python or (sys.executable,)), str(script)]
        ran = subprocess.run(command, env=dict(os.environ, **variables), capture_output=True, text=True, check=False)
        self.out, self.said = ran.stdout, ran.stderr
        assert ran.returncode == status, (ran.returncode, ran.stderr[-3000:])

    def result(self) -> tuple[str, int, int, int]:
        (line,) = [line for line in self.out.splitlines() if line.startswith("RESULT ")]
        backend, allocations, live, reserved = json.loads(line[7:])
        return backend, allocations, live, reserved

    def report(self) -> str:
        return subprocess.run([COMMAND, "view", "--report", str(self.trace)], capture_output=True, text=True, check=True).stdout


def words(size: int) -> str:
    """Write a size as reports do."""
    number = float(size)
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.1f} {unit}" if unit != "B" else f"{size} B"
        number /= 1024
    return f"{number:.1f} GiB"


def recorded_allocations(ran: Ran) -> int:
    return recorded(COMMAND, ran.trace)[0]


def check_recorded(ran: Ran, backend: str, is_peak_known: bool = True) -> str:
    name, allocations, live, reserved = ran.result()
    assert name == backend, name
    found, peak = recorded(COMMAND, ran.trace)
    assert found == allocations, (found, allocations)
    assert not is_peak_known or peak == live, (peak, live)
    report = ran.report()
    assert not is_peak_known or f"peak of live memory: {words(live)} " in report, (words(live), report)
    assert f"allocations: {allocations}," in report
    if backend == "native":
        assert f"reserved by PyTorch's caching allocator: {words(reserved)}," in report, (words(reserved), report)
    assert "program.py" in report and "where its blocks were is unknown" not in report, report
    return f"{allocations} allocations, {words(live)} of {words(reserved)}"


def a_program_is_pooled_without_a_line() -> str:
    ran = Ran("--pool")
    backend, allocations, _, reserved = ran.result()
    assert backend == "binpool"
    assert f"the pool served {allocations} of {allocations} requests and reserved {words(reserved)} at most" in ran.said, ran.said
    return words(reserved)


def tensors_are_recorded() -> str:
    return check_recorded(Ran("--record", "TRACE"), "native")


def tensors_are_recorded_in_expandable_segments() -> str:
    return check_recorded(Ran("--record", "TRACE", PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"), "native")


def tensors_are_recorded_over_the_pool() -> str:
    return check_recorded(Ran("--pool", "--record", "TRACE"), "binpool")


def threads_and_devices_are_recorded() -> None:
    source = WORK + "threads = [threading.Thread(target=work, args=(number % 2,)) for number in range(4)]\n"
    source += "for thread in threads: thread.start()\nfor thread in threads: thread.join()\n"
    source += 'print("RESULT", sum(torch.cuda.memory_stats(number)["allocation.all.allocated"] for number in range(2)))'
    for options in [("--record", "TRACE"), ("--pool", "--record", "TRACE")]:
        ran = Ran(*options, source=source)
        assert f"RESULT {recorded_allocations(ran)}\n" in ran.out, (recorded_allocations(ran), ran.out)
        assert "allocations: " in ran.report()


def private_pools_are_recorded() -> None:
    source = WORK + "pool = torch.cuda.MemPool()\nwith torch.cuda.use_mem_pool(pool): inside = [tensor(3_000_000) for _ in range(5)]\n"
    source += "del inside[::2]\nwith torch.cuda.use_mem_pool(pool): again = tensor(2_900_000)\n" + FIGURES
    check_recorded(Ran("--record", "TRACE", source=source), "native")
    # Of PyTorch's figures with binpool, the peak is the sum of two, which may have been at other times.
    check_recorded(Ran("--pool", "--record", "TRACE", source=source), "binpool", is_peak_known=False)


def a_killed_program_leaves_its_recording() -> None:
    source = WORK + 'print("RESULT", torch.cuda.memory_stats()["allocation.all.allocated"], flush=True)\n'
    source += "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    ran = Ran("--record", "TRACE", source=source, status=-signal.SIGKILL)
    assert f"RESULT {recorded_allocations(ran)}\n" in ran.out, (recorded_allocations(ran), ran.out)
    assert "never released: 4" in ran.report(), ran.report()


def children_have_recordings_of_their_own() -> None:
    source = """
    import multiprocessing
    import torch

    def child(_):
        kept = torch.empty(1000, device="cuda")
        print(torch.cuda.get_allocator_backend(), flush=True)

    if __name__ == "__main__":
        for method in ["spawn", "forkserver", "fork"]:
            with multiprocessing.get_context(method).Pool(1) as pool:
                pool.map(child, [0])
    """
    ran = Ran("--pool", "--record", "TRACE", source=source)
    assert ran.out == "binpool\n" * 3, ran.out
    assert ran.said.count("1 allocation of ") == 3, ran.said


def processes_of_torchrun_are_pooled() -> None:
    source = "import torch\nkept = torch.empty(1000, device='cuda')\nprint(torch.cuda.get_allocator_backend())"
    ran = Ran("--pool", source=source, python=(sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2"))
    assert ran.out.count("binpool") == 2, ran.out
    assert ran.said.count("served 1 of 1 requests") == 2, ran.said


def an_allocator_of_the_program_stays() -> None:
    ran = Ran("--pool", source=WORK.replace("kept = work(0)", "torch.cuda.init()"), PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync")
    why = "binpool cannot be PyTorch's allocator: the allocator in use is `cudaMallocAsync`"
    assert f"PyTorch has its own allocator, not binpool's: {why}" in ran.said, ran.said


def a_limit_is_that_of_the_pool() -> None:
    source = WORK.replace("kept = work(0)", "try: tensor(50_000_000)\nexcept torch.OutOfMemoryError as error: print('limit' in str(error))")
    ran = Ran("--pool", "--limit", "20MiB", source=source)
    assert ran.out == "True\n", ran.out
    assert "served 0 of 1 requests" in ran.said and "the limit of 20.0 MiB refused 1" in ran.said, ran.said


def what_a_pool_did_is_known_whatever_was_reset() -> None:
    source = WORK.replace("kept = work(0)", "kept = tensor(500_000_000)\ndel kept\ntorch.cuda.empty_cache()\n")
    source += "torch.cuda.reset_peak_memory_stats(); torch.cuda.reset_accumulated_memory_stats()\nkept = tensor(1000)"
    ran = Ran("--pool", source=source)
    assert "served 2 of 2 requests and reserved 478.0 MiB at most" in ran.said, ran.said


def without_caching_each_tensor_is_the_drivers() -> None:
    source = WORK.replace("kept = work(0)", "kept = [tensor(50_000_000) for _ in range(3)]")
    ran = Ran("--record", "TRACE", source=source, PYTORCH_NO_CUDA_MEMORY_CACHING="1")
    assert recorded_allocations(ran) == 3 and "program.py" in ran.report(), ran.report()


def a_private_pool_lies_where_binpool_had_a_block() -> None:
    source = WORK.replace("kept = work(0)", "kept = tensor(5_000_000)\ndel kept\ntorch.cuda.empty_cache()\n")
    source += "pool = torch.cuda.MemPool()\nwith torch.cuda.use_mem_pool(pool): inside = [tensor(3_000_000) for _ in range(2)]"
    report = Ran("--pool", "--record", "TRACE", source=source).report()
    assert "is unknown" not in report and "in 2 blocks" in report, report


def without_stacks_blocks_have_their_kinds() -> None:
    ran = Ran("--record", "TRACE", "--no-stacks")
    assert not any(line.startswith("k ") for line in ran.trace.read_text().splitlines())
    assert "| tensor " in ran.report() and recorded_allocations(ran) == ran.result()[1]


# Nothing is computed, for which the stand-in would need kernels.
MODEL = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

MIB = 1 << 20

class Make(torch.autograd.Function):
    @staticmethod
    def forward(context, given, size):
        context.save_for_backward(given)
        return torch.empty(size, device="cuda")
    @staticmethod
    def backward(context, gradient):
        return torch.empty(context.saved_tensors[0].numel(), device="cuda"), None

class Makes(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size = size
    def forward(self, given):
        return Make.apply(given, self.size)

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = nn.Sequential(Makes(MIB), Makes(2 * MIB))
        self.last = Makes(3 * MIB)
    def forward(self, given):
        return self.last(self.mlp(given))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Block(), Block()])
        self.head = Makes(7 * MIB)
    def forward(self, given):
        given = self.layers[0](given)
        return self.head(checkpoint(self.layers[1], given, use_reentrant=False))

class Optimizer(torch.optim.Optimizer):
    def step(self):
        return torch.empty(11 * MIB, device="cuda")

net = Net()
given = torch.empty(5 * MIB, device="cuda", requires_grad=True)
optimizer = Optimizer([given], {})
for _ in range(2):
    made = net(given)
    made.backward(torch.empty(7 * MIB, device="cuda"))
    optimizer.step()
"""


def modules_are_named() -> None:
    ran = Ran("--record", "TRACE", "--modules", source=MODEL)
    groups = dict(line.split(" ", 2)[1:] for line in ran.trace.read_text().splitlines() if line.startswith("g "))
    found: dict[str, set[int]] = {}
    for line in ran.trace.read_text().splitlines():
        if line.startswith("a "):
            words = line.split(" ")
            found.setdefault(groups[words[5]].split(" (tensor")[0], set()).add(int(words[2]) >> 22)
    expected = {
        "layers.0.mlp.0, forward": {1},
        "layers.0.mlp.1, forward": {2},
        "layers.0.last, forward": {3},
        "layers.1.mlp.1, forward": {2},
        "layers.1.mlp.0, recomputed": {1},
        "layers.1.last, recomputed": {3},
        "head, forward": {7},
        # What the gradient of its input takes.
        "head, backward": {3},
        "layers.1.last, backward": {2},
        "layers.0.mlp.0, backward": {5},
        "optimizer": {11},
    }
    assert {name: found.get(name) for name in expected} == expected, found
    assert "layers.0.last, forward" in ran.report()


def places_end_with_what_they_are_of() -> None:
    source = MODEL[: MODEL.index("class Block")] + """
class Fails(Makes):
    def forward(self, given):
        raise KeyboardInterrupt

class Optimizer(torch.optim.Optimizer):
    fails = True
    def step(self):
        kept = torch.empty(11 * MIB, device="cuda")
        if self.fails:
            raise MemoryError

given = torch.empty(5 * MIB, device="cuda", requires_grad=True)
net, optimizer = Makes(MIB), Optimizer([given], {})
for _ in range(3):
    # What the loss is made of is of no module, though the thread of the backward pass was in one before.
    loss = Make.apply(net(given), 17 * MIB)
    loss.backward(torch.empty(17 * MIB, device="cuda"))
try:
    optimizer.step()
except MemoryError:
    pass
optimizer.fails = False
optimizer.step()
try:
    Fails(1)(given)
except KeyboardInterrupt:
    pass
net(given)
after = torch.empty(23 * MIB, device="cuda")
"""
    ran = Ran("--record", "TRACE", "--modules", source=source)
    lines = ran.trace.read_text().splitlines()
    groups = dict(line.split(" ", 2)[1:] for line in lines if line.startswith("g "))
    found: dict[int, set[str]] = {}
    for line in lines:
        if line.startswith("a "):
            words = line.split(" ")
            found.setdefault(int(words[2]) >> 22, set()).add(groups[words[5]].split(" (tensor")[0])
    # The gradients of the module's output, in the first pass and in later ones, and of its input.
    assert "Makes, backward" not in found[1] and "backward" in found[1], found
    assert "Makes, backward" in found[5], found
    assert found[11] == {"optimizer"}, found
    assert all("program.py" in name for name in found[17] | found[23]), found


def modules_of_any_kind_run_as_without_hooks() -> None:
    source = MODEL[: MODEL.index("class Block")] + """
import copy
from collections import namedtuple

Pair = namedtuple("Pair", "one other")

class Equal(nn.Module):
    def __eq__(self, other):
        return isinstance(other, Equal)
    def forward(self, given):
        made = Make.apply(given, 100)
        return {"made": Pair(made, [None, iter("abc"), made]), "more": ()}

class Fails(nn.Module):
    def forward(self, given):
        raise KeyError(3)

class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.equal, self.fails, self.makes = Equal(), Fails(), Makes(10)
    def forward(self, given):
        try:
            self.fails(given)
        except KeyError:
            pass
        return self.makes(self.equal(given)["made"].one)

given = torch.empty(5, device="cuda", requires_grad=True)
outer = Outer()
for model in [outer, copy.deepcopy(outer), torch.compile(outer, backend="eager"), torch.compile(Makes(7), backend="eager", fullgraph=True)]:
    made = model(given)
    made.backward(torch.empty_like(made))
    with torch.no_grad():
        model(given)
    with torch.inference_mode():
        model(given)
del outer, model
after = torch.empty(3, device="cuda")
"""
    ran = Ran("--record", "TRACE", "--modules", source=source)
    assert "Traceback" not in ran.said, ran.said
    report = ran.report()
    assert "equal, forward" in report and "makes, backward" in report, report
    # No module was left behind after the one that failed.
    assert "program.py:" in report and "fails" not in report, report


if __name__ == "__main__":
    checks = Checks("under_run")
    for check in [
        a_program_is_pooled_without_a_line,
        tensors_are_recorded,
        tensors_are_recorded_over_the_pool,
        threads_and_devices_are_recorded,
        private_pools_are_recorded,
        a_killed_program_leaves_its_recording,
        children_have_recordings_of_their_own,
        processes_of_torchrun_are_pooled,
        an_allocator_of_the_program_stays,
        a_limit_is_that_of_the_pool,
        what_a_pool_did_is_known_whatever_was_reset,
        without_caching_each_tensor_is_the_drivers,
        a_private_pool_lies_where_binpool_had_a_block,
        without_stacks_blocks_have_their_kinds,
        places_end_with_what_they_are_of,
        modules_are_named,
        modules_of_any_kind_run_as_without_hooks,
        # The stand-in has no driver behind its runtime for it.
        *([tensors_are_recorded_in_expandable_segments] if "gpu" in sys.argv else []),
    ]:
        checks.run(check.__name__, check)
    checks.end()

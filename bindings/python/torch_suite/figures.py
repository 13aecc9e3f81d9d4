"""What programs ask PyTorch of its memory, over binpool: figures, snapshots, limits, errors."""

import pickle
import sys
import tempfile
from typing import Any

import torch
from checks import Checks, use

MIB = 1 << 20
cuda = torch.cuda


def tensor(mib: float) -> torch.Tensor:
    return torch.empty(int(mib * MIB), dtype=torch.uint8, device="cuda")


def allocated_and_peak() -> str:
    before = cuda.memory_allocated()
    cuda.reset_peak_memory_stats()
    one = tensor(10)
    other = tensor(30)
    assert cuda.memory_allocated() - before == 40 * MIB
    del other
    assert cuda.memory_allocated() - before == 10 * MIB
    assert cuda.max_memory_allocated() - before == 40 * MIB
    cuda.reset_peak_memory_stats()
    assert cuda.max_memory_allocated() - before == 10 * MIB
    assert cuda.memory_reserved() >= cuda.memory_allocated()
    del one
    cuda.empty_cache()
    cuda.reset_peak_memory_stats()
    assert cuda.max_memory_reserved() == cuda.memory_reserved()
    return f"{cuda.memory_reserved() // MIB} MiB reserved"


def all_figures_are_there() -> str:
    stats = cuda.memory_stats()
    kept = tensor(3)
    now = cuda.memory_stats()
    assert now["allocation.all.current"] == stats["allocation.all.current"] + 1
    assert now["requested_bytes.all.current"] == stats["requested_bytes.all.current"] + 3 * MIB
    below = {key: value for key, value in now.items() if value < 0 and key != "max_split_size"}
    assert not below, below
    del kept
    cuda.reset_accumulated_memory_stats()
    assert cuda.memory_stats()["allocation.all.allocated"] == 0
    return f"{len(now)} figures, {len(cuda.memory_summary())} letters"


def actions_of(snapshot: dict[str, Any]) -> list[str]:
    return [entry["action"] for entry in snapshot["device_traces"][0]]


def history() -> str:
    cuda.empty_cache()
    cuda.memory._record_memory_history(max_entries=10_000)
    kept = tensor(77)
    gone = tensor(5)
    del gone
    with tempfile.NamedTemporaryFile() as file:
        cuda.memory._dump_snapshot(file.name)
        with open(file.name, "rb") as dumped:
            snapshot = pickle.load(dumped)
    actions = actions_of(snapshot)
    for action in ["alloc", "free_requested", "free_completed", "segment_map"]:
        assert action in actions, (action, actions)
    own = [block for segment in snapshot["segments"] for block in segment["blocks"] if block["requested_size"] == 77 * MIB]
    assert own[0]["state"] == "active_allocated" and any("figures.py" in frame["filename"] for frame in own[0]["frames"]), own
    for segment in snapshot["segments"]:
        assert segment["total_size"] == sum(block["size"] for block in segment["blocks"])
    mapped = sum(segment["total_size"] for segment in snapshot["segments"])
    assert mapped == cuda.memory_reserved(), (mapped, cuda.memory_reserved())
    from torch.cuda import _memory_viz

    pages = len(_memory_viz.trace_plot(snapshot)) + len(_memory_viz.segment_plot(snapshot))
    del kept
    cuda.empty_cache()
    later = actions_of(cuda.memory._snapshot())
    assert "segment_unmap" in later and "snapshot" in later, later
    cuda.memory._record_memory_history(enabled=None)
    return f"{len(actions)} entries, {pages} letters of pages"


def running_out() -> str:
    seen: list[Any] = []
    torch._C._cuda_attach_out_of_memory_observer(lambda *arguments: seen.append(arguments))
    ooms = cuda.memory_stats()["num_ooms"]
    try:
        torch.empty(800 << 30, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        text = str(error)
    assert text.startswith("CUDA out of memory. Tried to allocate 800.00 GiB. GPU 0 has a total capacity of"), text
    assert "binpool" in text and len(seen) == 1, (text, seen)
    assert cuda.memory_stats()["num_ooms"] == ooms + 1
    return text.replace("\n", " / ")[-300:]


def a_fraction_is_a_limit() -> str:
    cuda.empty_cache()
    total = cuda.get_device_properties(0).total_memory
    cuda.set_per_process_memory_fraction(0.1)
    assert abs(cuda.get_per_process_memory_fraction() - 0.1) < 1e-6
    fits = tensor(0.09 * total / MIB - cuda.memory_reserved() / MIB)
    try:
        tensor(0.05 * total / MIB)
        raise AssertionError("more than the limit")
    except torch.OutOfMemoryError as error:
        text = str(error)
    del fits
    cuda.set_per_process_memory_fraction(1.0)
    cuda.empty_cache()
    return text.split("binpool: ")[-1].replace("\n", " / ")[:300]


def profiler() -> None:
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        tensor(16)
    events = profiled.key_averages()
    assert max(event.self_device_memory_usage for event in events) >= 16 * MIB, events


def the_report_names_the_lines_that_have_the_memory() -> None:
    import binpool.torch

    pool = binpool.torch.pool()
    pool.watch()
    with binpool.tag("weights"):
        kept = tensor(300)
    try:
        torch.empty(800 << 30, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        text = str(error)
    finally:
        pool.stop_watching()
    assert "weights, at figures.py" in text, text
    del kept


def streams() -> str | None:
    if cuda.get_device_name() == "stand-in":
        return "needs kernels"
    side = cuda.Stream()
    for number in range(50):
        x = torch.full((MIB,), float(number), device="cuda")
        side.wait_stream(cuda.current_stream())
        with cuda.stream(side):
            y = x * 2
            x.record_stream(side)
        del x
        torch.full((MIB,), -1.0, device="cuda")
        side.synchronize()
        assert y.eq(2 * number).all()
    return None


def lightning_device_stats() -> str:
    from pytorch_lightning.accelerators import CUDAAccelerator

    return f"{len(CUDAAccelerator().get_device_stats(torch.device('cuda:0')))} figures"


if __name__ == "__main__":
    use(sys.argv[1:])
    checks = Checks("figures")
    for check in [
        allocated_and_peak,
        all_figures_are_there,
        history,
        running_out,
        the_report_names_the_lines_that_have_the_memory,
        a_fraction_is_a_limit,
        profiler,
        streams,
    ]:
        checks.run(check.__name__, check)
    checks.end()

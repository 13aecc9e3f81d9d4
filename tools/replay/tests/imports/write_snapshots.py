"""Writes the snapshots beside this file, as torch.cuda.memory._dump_snapshot writes them: Python's own pickle of what
torch/csrc/cuda/Module.cpp puts together, frames and texts shared as there.

    python3 tools/replay/tests/imports/write_snapshots.py

A small program on two devices. On device 1 it has one allocation. On device 0, the history (a ring) has lost its
beginning; what is in it:

    weights     live from before the history until its end
    old         from before the history, freed in it
    activation  allocated and freed, its address used again by `gradient`
    shared      freed while another stream still uses it: completed later
    a request of 64 GiB fails
"""

import json
import pickle
from pathlib import Path

SIDE_STREAM = 94_205_301_882_112
BASE = 0x7F3A_4000_0000
TORCH = "/env/lib/python3.12/site-packages/torch/nn/modules/linear.py"

malloc = {"filename": "/pytorch/c10/cuda/CUDACachingAllocator.cpp", "line": 1204, "name": "malloc"}
linear = {"filename": TORCH, "line": 125, "name": "forward"}
forward = {"filename": "/home/ada/model/layers.py", "line": 12, "name": "forward"}
backward = {"filename": "/home/ada/model/train.py", "line": 41, "name": "step"}
main = {"filename": "/home/ada/model/train.py", "line": 77, "name": "<module>"}

in_forward = [malloc, linear, forward, main]
in_backward = [malloc, backward, main]
in_main = [malloc, main]


def entry(action, time_us, size, stream=0, frames=None, **address):
    made = {"action": action}
    if frames is not None:
        made["frames"] = frames
    made.update(address)
    return {**made, "size": size, "stream": stream, "time_us": time_us, "compile_context": "N/A", "user_metadata": ""}


def block(address, size, requested_size, state, frames):
    return {"address": address, "size": size, "requested_size": requested_size, "state": state, "frames": frames}


T = 1_700_000_000_000_000
WEIGHTS, OLD, ACTIVATION, SHARED = (BASE + place * 0x20_0000 for place in range(4))
OTHER = 0x7F3B_0000_0000

history = [
    entry("free_requested", T, 300_000, addr=OLD),
    entry("free_completed", T, 300_000, addr=OLD),
    entry("segment_alloc", T + 5, 2 << 20, addr=ACTIVATION),
    entry("alloc", T + 10, 1_000_000, frames=in_forward, addr=ACTIVATION),
    entry("segment_alloc", T + 15, 2 << 20, SIDE_STREAM, addr=SHARED),
    entry("alloc", T + 20, 500_000, SIDE_STREAM, frames=in_forward, addr=SHARED),
    entry("free_requested", T + 30, 500_000, SIDE_STREAM, frames=in_forward, addr=SHARED),
    entry("free_requested", T + 40, 1_000_000, frames=in_backward, addr=ACTIVATION),
    entry("free_completed", T + 40, 1_000_000, frames=in_backward, addr=ACTIVATION),
    entry("alloc", T + 50, 700_001, frames=in_backward, addr=ACTIVATION),
    entry("free_completed", T + 60, 500_000, SIDE_STREAM, frames=in_forward, addr=SHARED),
    entry("segment_free", T + 65, 2 << 20, SIDE_STREAM, addr=SHARED),
    entry("oom", T + 70, 64 << 30, frames=in_backward, device_free=1 << 20),
    entry("snapshot", T + 80, 0, addr=0),
]
other_history = [entry("alloc", T + 15, 4096, frames=in_main, addr=OTHER)]


def segment(device, address, total_size, blocks):
    active = sum(b["size"] for b in blocks if b["state"] == "active_allocated")
    return {
        "device": device, "address": address, "total_size": total_size, "allocated_size": active, "active_size": active,
        "requested_size": active, "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0),
        "is_expandable": False, "frames": in_main, "blocks": blocks,
    }


snapshot = {
    "segments": [
        segment(0, WEIGHTS, 4 << 20, [
            block(WEIGHTS, 2 << 20, 2_000_000, "active_allocated", in_main),
            block(OLD, 2 << 20, 0, "inactive", []),
        ]),
        segment(0, ACTIVATION, 2 << 20, [
            block(ACTIVATION, 700_416, 700_001, "active_allocated", in_backward),
            block(ACTIVATION + 700_416, (2 << 20) - 700_416, 0, "inactive", []),
        ]),
        segment(1, OTHER, 2 << 20, [
            block(OTHER, 4096, 4096, "active_allocated", in_main),
            block(OTHER + 4096, (2 << 20) - 4096, 0, "inactive", []),
        ]),
    ],
    "device_traces": [history, other_history],
    "allocator_settings": {
        "PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "garbage_collection_threshold": 0.0,
        "expandable_segments": False, "roundup_power2_divisions": {"1": 0},
    },
    "external_annotations": [
        {"stage": "START", "name": "Optimizer.step#SGD.step", "device": 0, "time_us": T + 45},
        {"stage": "END", "name": "Optimizer.step#SGD.step", "device": 0, "time_us": T + 55},
        {"stage": "START", "name": "of the other device", "device": 1, "time_us": T + 46},
    ],
}

folder = Path(__file__).parent
for protocol in (2, 4, 5):
    with (folder / f"snapshot{protocol}.pickle").open("wb") as file:
        pickle.dump(snapshot, file, protocol=protocol)
with (folder / "snapshot.json").open("w") as file:
    json.dump(snapshot, file)

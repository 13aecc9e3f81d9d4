"""Tensors of one process in others, over binpool and over PyTorch's own allocator, in both directions."""

import sys
from typing import Any

import torch
import torch.multiprocessing as mp
from checks import Checks, use

# Those of more than a page may lie on pages of several sizes, which a process without binpool cannot map.
SMALL = [10, 1000]
LARGE = [1 << 20, 100 << 20]


def child(which: str, received: Any, sent: Any) -> None:
    """Adds 1 to what it gets, and sends back sums of it and a tensor of its own."""
    use([which])
    while (tensors := received.get()) is not None:
        sums = []
        for tensor in tensors:
            sums.append(tensor.double().sum().item())
            tensor.add_(1)
        torch.cuda.synchronize()
        own = torch.full((1000,), float(len(tensors)), device="cuda")
        sent.put((sums, own))
        del tensors, tensor
        received.get()  # Until the other has seen `own`.
        del own
    sent.put(None)


def exchange(which: str, sizes: list[int]) -> str:
    context = mp.get_context("spawn")
    to, back = context.Queue(), context.Queue()
    process = context.Process(target=child, args=(which, to, back))
    process.start()
    before = torch.cuda.memory_allocated()
    for number in range(3):
        tensors = [torch.full((size,), float(number + at), device="cuda") for at, size in enumerate(sizes)]
        torch.cuda.synchronize()
        to.put(tensors)
        sums, own = back.get(timeout=60)
        for at, (tensor, total) in enumerate(zip(tensors, sums, strict=True)):
            assert total == (number + at) * tensor.numel(), (number, at, total)
            assert tensor.eq(number + at + 1).all(), (number, at)
        assert own.eq(len(tensors)).all()
        del own, tensors, tensor
        to.put("seen")
    to.put(None)
    back.get(timeout=60)
    process.join(30)
    torch.cuda.ipc_collect()
    left = torch.cuda.memory_allocated() - before
    assert process.exitcode == 0 and left == 0, (process.exitcode, left)
    return f"handle of {len(torch.ones(10, device='cuda').untyped_storage()._share_cuda_()[1])} bytes"


class OnDevice(torch.utils.data.Dataset):  # type: ignore[type-arg]
    def __len__(self) -> int:
        return 64

    def __getitem__(self, number: int) -> torch.Tensor:
        return torch.full((1000,), float(number), device="cuda")


def data_loader() -> None:
    loader = torch.utils.data.DataLoader(OnDevice(), batch_size=8, num_workers=2, multiprocessing_context="spawn")
    seen = sorted(value for batch in loader for value in batch[:, 0].tolist())
    assert seen == [float(number) for number in range(64)], seen


def of_a_private_pool() -> str:
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        tensor = torch.ones(1000, device="cuda")
    return f"handle of {len(tensor.untyped_storage()._share_cuda_()[1])} bytes"


if __name__ == "__main__":
    which = sys.argv[1] if len(sys.argv) > 1 else "binpool"
    use([which])
    checks = Checks("sharing")
    checks.run("of_a_private_pool", of_a_private_pool)
    checks.run("data_loader", data_loader)
    checks.run(f"{which} to binpool", lambda: exchange("binpool", SMALL + LARGE))
    checks.run(f"{which} to native", lambda: exchange("native", SMALL if which == "binpool" else SMALL + LARGE))
    checks.end()

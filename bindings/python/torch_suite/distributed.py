"""DDP and FSDP2 on all GPUs, with the first lines that such programs have:

    distributed.py {native,binpool}
    torchrun --nproc_per_node gpu distributed.py {native,binpool}
"""

import argparse
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(2048, 2048), torch.nn.GELU()) for _ in range(8)]).cuda()


def train(network: torch.nn.Module, rank: int, steps: int = 30) -> list[float]:
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4)
    generator = torch.Generator(device="cuda").manual_seed(rank)
    losses = []
    for step in range(steps):
        batch = torch.randn(256 + 64 * (step % 5), 2048, device="cuda", generator=generator)
        loss = (network(batch) - batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
    return losses


def worker(rank: int, world: int, which: str) -> None:
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29511")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=world, device_id=torch.device("cuda", rank))
    if which == "binpool":
        import binpool.torch

        binpool.torch.use()
    from torch.distributed.fsdp import fully_shard

    for name in ["ddp", "fsdp2"]:
        network = model()
        if name == "ddp":
            network = torch.nn.parallel.DistributedDataParallel(network, device_ids=[rank])
        else:
            for layer in network:
                fully_shard(layer)
            fully_shard(network)
        torch.cuda.reset_peak_memory_stats()
        losses = train(network, rank)
        peer = torch.ones(1 << 20, device=f"cuda:{rank}").to(f"cuda:{(rank + 1) % world}")
        assert peer.eq(1).all()
        figures = [torch.cuda.max_memory_allocated() >> 20, torch.cuda.max_memory_reserved() >> 20]
        if rank == 0:
            first, last = losses[0], losses[-1]
            print(which, name, f"{first:.6f} {last:.6f}, at most {figures[0]} MiB allocated, {figures[1]} MiB reserved", flush=True)
        del network
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("allocator", choices=["native", "binpool"])
    allocator = parser.parse_args().allocator
    if "LOCAL_RANK" in os.environ:
        sys.exit(worker(int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"]), allocator))
    mp.spawn(worker, args=(torch.cuda.device_count(), allocator), nprocs=torch.cuda.device_count())

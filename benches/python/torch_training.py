#!/usr/bin/env python3
"""Runs a program of PyTorch over one allocator, and prints its losses, times and memory as JSON:

    torch_training.py {transformer,convolution,generation,graph,streams,pairs} {native,expandable,binpool} [--steps N] [--ahead]

`transformer` trains one on batches of as many tokens as fit, of varying lengths; `convolution` trains a residual network on images of
varying sizes; `generation` decodes with a cache of keys and values that is concatenated at each step; `graph` trains on graphs of
varying sizes; `streams` multiplies matrices of varying sizes on four streams; `pairs` times an allocation and its free. With `--ahead`
the host does not wait for the device between steps. Seeds are fixed and algorithms deterministic, so that the losses of a program are
the same over every allocator. A process runs one program over one allocator, so that nothing is shared.
"""

import argparse
import json
import math
import os
import random
import statistics
import time

SEED = 20261125
GIB = 1 << 30


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program", choices=["transformer", "convolution", "generation", "graph", "streams", "pairs"])
    parser.add_argument("allocator", choices=["native", "expandable", "binpool"])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--ahead", action="store_true")
    return parser.parse_args()


OPTIONS = arguments()
os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # Which makes cuBLAS deterministic.
if OPTIONS.allocator == "expandable":
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"

import torch  # noqa: E402 (the variables come first)
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from pairs import median_ns  # noqa: E402

if OPTIONS.allocator == "binpool":
    import binpool.torch

    binpool.torch.use()


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.enter, self.leave = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, cache=None):
        batch, length, width = x.shape
        parts = self.enter(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        query, key, value = parts
        if cache is not None:
            if cache:
                key, value = torch.cat([cache[0], key], 2), torch.cat([cache[1], value], 2)
            cache[:] = [key, value]
        scores = query @ key.transpose(-1, -2) / math.sqrt(width // self.heads)
        if length > 1:
            later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
            scores = scores.masked_fill(later, float("-inf"))
        mixed = scores.softmax(-1) @ value
        return self.leave(mixed.transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, cache=None):
        x = x + self.attention(self.before(x), cache)
        return x + self.feed(self.between(x))


class Transformer(nn.Module):
    def __init__(self, words, width, heads, layers):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Embedding(2048, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.last = nn.LayerNorm(width)
        self.head = nn.Linear(width, words)

    def forward(self, tokens, caches=None, start=0):
        places = torch.arange(start, start + tokens.shape[1], device=tokens.device)
        x = self.words(tokens) + self.places(places)
        for index, layer in enumerate(self.layers):
            x = layer(x, None if caches is None else caches[index])
        return self.head(self.last(x))


def transformer(choose):
    """Yields a training step of batches of at most 8192 tokens, in lengths of 64 to 1024."""
    model = Transformer(16000, 768, 12, 12).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step():
        length = choose.randint(64, 1024)
        tokens = torch.tensor([[choose.randrange(16000) for _ in range(length)]]).repeat(8192 // length, 1).cuda()
        with torch.autocast("cuda", torch.bfloat16):
            found = model(tokens[:, :-1])
            loss = functional.cross_entropy(found.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return step


class Bottleneck(nn.Module):
    def __init__(self, given, inner, stride):
        super().__init__()
        outer = 4 * inner
        self.path = nn.Sequential(
            nn.Conv2d(given, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(),
            nn.Conv2d(inner, inner, 3, stride, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(),
            nn.Conv2d(inner, outer, 1, bias=False), nn.BatchNorm2d(outer),
        )
        same = given == outer and stride == 1
        self.short = nn.Identity() if same else nn.Sequential(nn.Conv2d(given, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))

    def forward(self, x):
        return functional.relu(self.path(x) + self.short(x))


def residual_network():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    given = 64
    for inner, count, stride in [(64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)]:
        for index in range(count):
            layers.append(Bottleneck(given, inner, stride if index == 0 else 1))
            given = 4 * inner
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(given, 1000))


def convolution(choose):
    """Yields a training step of 16 to 64 images of 128 to 320 points a side."""
    model = residual_network().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step():
        count, side = choose.randint(16, 64), 16 * choose.randint(8, 20)
        images = torch.randn(count, 3, side, side, device="cuda").to(memory_format=torch.channels_last)
        labels = torch.tensor([choose.randrange(1000) for _ in range(count)]).cuda()
        with torch.autocast("cuda", torch.bfloat16):
            loss = functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return step


def generation(choose):
    """Yields a step that reads prompts of 64 to 512 tokens and generates 48 more."""
    model = Transformer(16000, 1024, 16, 12).cuda().to(torch.bfloat16).eval()

    @torch.no_grad()
    def step():
        batch, length = choose.randint(4, 24), choose.randint(64, 512)
        tokens = torch.randint(16000, (batch, length), device="cuda")
        caches = [[] for _ in model.layers]
        total = torch.zeros((), device="cuda")
        start = 0
        for _ in range(48):
            found = model(tokens, caches, start)[:, -1]
            start += tokens.shape[1]
            best, tokens = found.float().max(-1, keepdim=True)
            total += best.mean()
        return total / 48

    return step


class Neighbours(nn.Module):
    """Each node's features and the mean of its neighbours'."""

    def __init__(self, given, made):
        super().__init__()
        self.own, self.others = nn.Linear(given, made), nn.Linear(given, made)

    def forward(self, x, edges):
        start, end = edges
        sums = torch.zeros_like(x).index_add(0, end, x[start])
        counts = torch.zeros(len(x), device=x.device).index_add(0, end, torch.ones(len(end), device=x.device))
        return self.own(x) + self.others(sums / counts.clamp(min=1).unsqueeze(1))


def graph(choose):
    """Yields a training step on a graph of 20 000 to 300 000 nodes with 5 to 20 edges each."""
    layers = nn.ModuleList([Neighbours(128, 256), Neighbours(256, 256), Neighbours(256, 40)]).cuda()
    optimizer = torch.optim.Adam(layers.parameters())

    def step():
        nodes = choose.randint(20_000, 300_000)
        edges = torch.randint(0, nodes, (2, nodes * choose.randint(5, 20)), device="cuda")
        x = torch.randn(nodes, 128, device="cuda")
        for layer in layers:
            x = layer(x, edges).relu()
        loss = x.square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return step


def streams(choose):
    """Yields a step of a product of matrices of 256 to 3000 rows on each of four streams."""
    own = [torch.cuda.Stream() for _ in range(4)]
    main = torch.cuda.current_stream()

    def step():
        sums = []
        for stream in own:
            rows = choose.randint(256, 3000)
            with torch.cuda.stream(stream):
                x = torch.full((rows, rows), 1.0 / rows, device="cuda")
                product = x @ x
                sums.append((product + 1).sum())
        for stream, found in zip(own, sums, strict=True):
            found.record_stream(main)
            if not OPTIONS.ahead:
                main.wait_stream(stream)
        return torch.stack(sums).sum() if not OPTIONS.ahead else sums

    return step


def used_bytes():
    free, total = torch.cuda.mem_get_info()
    return total - free


def run(program, steps):
    torch.manual_seed(SEED)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # Which would be a kernel for each tensor.
    torch.backends.cudnn.benchmark = False
    torch.backends.cuda.matmul.allow_tf32 = True
    before = used_bytes()
    step = program(random.Random(SEED))
    wait = (lambda: None) if OPTIONS.ahead else torch.cuda.synchronize
    losses, times, used = [], [], 0
    start = time.perf_counter()
    for _ in range(steps):
        wait()
        began = time.perf_counter()
        loss = step()
        wait()
        times.append(time.perf_counter() - began)
        if not OPTIONS.ahead:
            loss = loss.item()
            used = max(used, used_bytes() - before)
        losses.append(loss)
    if OPTIONS.ahead:
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start - sum(times))  # What the device had not done yet.
        used = used_bytes() - before
        losses = [sum(it.item() for it in (loss if isinstance(loss, list) else [loss])) for loss in losses]
    return {
        "losses": losses,
        "median_ms": 1e3 * statistics.median(times[steps // 4:]),  # Without the first: libraries are loaded there.
        "total_s": sum(times),
        "used_gib": used / GIB,
    }


def memory():
    if OPTIONS.allocator == "binpool":
        figures = binpool.torch.pool().statistics
        return {
            "reserved_gib": figures.peak_managed_bytes / GIB,
            "allocated_gib": figures.peak_active_bytes / GIB,
            "misses": figures.misses,
            "maps": figures.maps,
            "unmaps": figures.unmaps,
        }
    figures = torch.cuda.memory_stats()
    return {
        "reserved_gib": torch.cuda.max_memory_reserved() / GIB,
        "allocated_gib": torch.cuda.max_memory_allocated() / GIB,
        "requests": figures["allocation.all.allocated"],
        "device_calls": figures["num_device_alloc"] + figures["num_device_free"],
    }


def pairs():
    """Nanoseconds of an allocation and its free from Python, of a tensor, of memory alone, and of a call of nothing."""
    torch.cuda.init()
    stream = torch.cuda.current_stream().cuda_stream
    allocate, free = torch._C._cuda_cudaCachingAllocator_raw_alloc, torch._C._cuda_cudaCachingAllocator_raw_delete
    tensor, memory, nothing = median_ns(
        lambda: torch.empty(1 << 20, dtype=torch.uint8, device="cuda"),
        lambda: free(allocate(1 << 20, stream)),
        lambda: None,
    )
    return {"tensor_ns": tensor, "memory_ns": memory, "nothing_ns": nothing}


if __name__ == "__main__":
    said = {"program": OPTIONS.program, "allocator": OPTIONS.allocator, "device": torch.cuda.get_device_name()}
    if OPTIONS.program == "pairs":
        said |= pairs()
    else:
        programs = {"transformer": transformer, "convolution": convolution, "generation": generation, "graph": graph, "streams": streams}
        said |= run(programs[OPTIONS.program], OPTIONS.steps) | memory()
    print(json.dumps(said))

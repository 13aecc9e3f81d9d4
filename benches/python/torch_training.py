#!/usr/bin/env python3
"""Runs a program of PyTorch over one allocator, and prints its losses, times and memory as JSON:

    torch_training.py PROGRAM {native,expandable,binpool} [--steps N] [--ahead] [--turns] [--frames N]

`transformer` trains one on batches of as many tokens as fit, of varying lengths; `convolution` trains a residual network on images of
varying sizes; `generation` decodes with a cache of keys and values that is concatenated at each step; `serving` does that for twelve
sequences, each of which begins anew once it is long enough; `graph` trains on graphs of varying sizes; `streams` multiplies matrices of
varying sizes on four streams. Of fixed shapes are `vision` (a vision transformer), `resnet` (ResNet-50 with automatic mixed precision and
autotuned convolutions), `gpt` (with dropout, checkpoints, and gradients of two steps added up) and `denoiser` (a U-Net).
`pairs` times an allocation and its free, within as many further frames of Python as `--frames` says.

With `--ahead` the host does not wait for the device between steps. With `--turns` a step waits for a line of standard input, and prints its
seconds, so that several processes can take turns. Seeds are fixed and algorithms deterministic, so that the losses of a program are the
same over every allocator. A process runs one program over one allocator, so that nothing is shared.
"""

import argparse
import json
import math
import os
import random
import statistics
import time

SEED = 20261125
PROGRAMS = ["transformer", "convolution", "generation", "serving", "graph", "streams", "vision", "resnet", "gpt", "denoiser", "pairs"]
GIB = 1 << 30


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("allocator", choices=["native", "expandable", "binpool"])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--ahead", action="store_true")
    parser.add_argument("--turns", action="store_true")
    parser.add_argument("--frames", type=int, default=0)
    return parser.parse_args()


OPTIONS = arguments()
os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # Which makes cuBLAS deterministic.
if OPTIONS.allocator == "expandable":
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"

import torch  # noqa: E402 (the variables come first)
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

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


def trained(model, optimizer, loss_of, scaler=None, parts=1):
    """A training step of a model. Its gradients are the mean of those of several parts; only float16 needs a scaler."""

    def step():
        for _ in range(parts):
            with torch.autocast("cuda", torch.bfloat16 if scaler is None else torch.float16):
                loss = loss_of(model) / parts
            (loss if scaler is None else scaler.scale(loss)).backward()
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return step


def next_word(model, tokens):
    """The loss of a model that tells the next word of each sequence."""
    return functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def transformer(choose):
    """Yields a training step of batches of at most 8192 tokens, in lengths of 64 to 1024."""
    model = Transformer(16000, 768, 12, 12).cuda()

    def loss_of(model):
        length = choose.randint(64, 1024)
        tokens = torch.tensor([[choose.randrange(16000) for _ in range(length)]]).repeat(8192 // length, 1).cuda()
        return next_word(model, tokens)

    return trained(model, torch.optim.AdamW(model.parameters(), lr=1e-4), loss_of)


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

    def loss_of(model):
        count, side = choose.randint(16, 64), 16 * choose.randint(8, 20)
        images = torch.randn(count, 3, side, side, device="cuda").to(memory_format=torch.channels_last)
        labels = torch.tensor([choose.randrange(1000) for _ in range(count)]).cuda()
        return functional.cross_entropy(model(images), labels)

    return trained(model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), loss_of)


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


def serving(choose):
    """Yields a step that makes 8 tokens for each of twelve sequences, which end at 600 to 2600 tokens."""
    layers = nn.ModuleList(Attention(2048, 16) for _ in range(8)).cuda().to(torch.bfloat16)
    sequences = []

    def begin():
        length = choose.randint(200, 1800)
        return [[] for _ in layers], torch.randn(1, length, 2048, device="cuda", dtype=torch.bfloat16), length + choose.randint(400, 800)

    def pass_on(x, caches):
        for layer, cache in zip(layers, caches, strict=True):
            x = x + layer(x, cache)
        return x[:, -1:] / x[:, -1:].std()

    @torch.no_grad()
    def step():
        sequences.extend(begin() for _ in range(12 - len(sequences)))
        total = torch.zeros((), device="cuda")
        for _ in range(8):
            for index, (caches, x, most) in enumerate(sequences):
                x = pass_on(x, caches)
                total += x.float().square().mean()
                sequences[index] = (caches, x, most) if caches[0][0].shape[2] < most else begin()
        return total

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


def labelled(count, side):
    """Images, and the loss of a model that tells a thousand kinds of them apart."""

    def loss_of(model):
        images = torch.randn(count, 3, side, side, device="cuda").to(memory_format=torch.channels_last)
        return functional.cross_entropy(model(images), torch.randint(1000, (count,), device="cuda"))

    return loss_of


class Vision(nn.Module):
    def __init__(self):
        super().__init__()
        self.cut = nn.Conv2d(3, 768, 16, 16)
        self.places = nn.Parameter(torch.zeros(196, 768))
        self.layers = nn.Sequential(*(Layer(768, 12) for _ in range(12)), nn.LayerNorm(768))
        self.head = nn.Linear(768, 1000)

    def forward(self, images):
        x = self.cut(images).flatten(2).transpose(1, 2) + self.places
        return self.head(self.layers(x).mean(1))


def vision(_):
    """Yields a training step of a vision transformer on 64 images."""
    model = Vision().cuda()
    return trained(model, torch.optim.AdamW(model.parameters(), lr=1e-4), labelled(64, 224))


def resnet(_):
    """Yields a training step of ResNet-50 on 64 images, with scaled gradients and autotuned convolutions."""
    torch.backends.cudnn.benchmark = True
    model = residual_network().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return trained(model, optimizer, labelled(64, 224), torch.amp.GradScaler())


class Checkpointed(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x, _):
        return functional.dropout(checkpoint(self.inner, x, use_reentrant=False), 0.1)


def gpt(_):
    """Yields a training step on two times 8 sequences of 1024 tokens, with dropout and checkpoints."""
    model = Transformer(32000, 768, 12, 12)
    model.layers = nn.ModuleList(Checkpointed(layer) for layer in model.layers)
    model.cuda()

    def loss_of(model):
        return next_word(model, torch.randint(32000, (8, 1025), device="cuda"))

    return trained(model, torch.optim.AdamW(model.parameters(), lr=1e-4), loss_of, parts=2)


class Smooth(nn.Module):
    def __init__(self, given, made):
        super().__init__()
        self.path = nn.Sequential(
            nn.GroupNorm(8, given), nn.SiLU(), nn.Conv2d(given, made, 3, 1, 1),
            nn.GroupNorm(8, made), nn.SiLU(), nn.Conv2d(made, made, 3, 1, 1),
        )
        self.short = nn.Identity() if given == made else nn.Conv2d(given, made, 1)

    def forward(self, x):
        return self.path(x) + self.short(x)


class Denoiser(nn.Module):
    def __init__(self, widths=(96, 192, 384)):
        super().__init__()
        self.enter, self.leave = nn.Conv2d(3, widths[0], 3, 1, 1), nn.Conv2d(widths[0], 3, 3, 1, 1)
        outer = [widths[0], *widths[:-1]]
        self.down = nn.ModuleList(Smooth(*pair) for pair in zip(outer, widths, strict=True))
        self.middle = Layer(widths[-1], 8)
        self.up = nn.ModuleList(Smooth(2 * wide, narrow) for narrow, wide in reversed([*zip(outer, widths, strict=True)]))

    def forward(self, x):
        x, kept = self.enter(x), []
        for block in self.down:
            kept.append(block(x))
            x = functional.avg_pool2d(kept[-1], 2)
        x = self.middle(x.flatten(2).transpose(1, 2)).transpose(1, 2).reshape(x.shape)
        for block in self.up:
            x = block(torch.cat([functional.interpolate(x, scale_factor=2.0), kept.pop()], 1))
        return self.leave(x)


def denoiser(_):
    """Yields a training step that removes noise from 64 images."""
    model = Denoiser().cuda()

    def loss_of(model):
        images, noise = torch.randn(2, 64, 3, 64, 64, device="cuda")
        return functional.mse_loss(model(images + noise), noise)

    return trained(model, torch.optim.AdamW(model.parameters(), lr=1e-4), loss_of)


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
        if OPTIONS.turns:
            input()
        wait()
        began = time.perf_counter()
        loss = step()
        wait()
        times.append(time.perf_counter() - began)
        if not OPTIONS.ahead:
            loss = loss.item()
            used = max(used, used_bytes() - before)
        losses.append(loss)
        if OPTIONS.turns:
            print(times[-1], flush=True)
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


def within(frames, call):
    return call() if frames == 0 else within(frames - 1, call)


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
        said |= within(OPTIONS.frames, pairs)
    else:
        said |= run(globals()[OPTIONS.program], OPTIONS.steps) | memory()
    print(json.dumps(said))

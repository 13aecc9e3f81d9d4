#!/usr/bin/env python3
"""Trains a transformer with JAX over each of its allocators on a GPU, alone and under `binpool run`, each in a process of its own:

    jax_training.py [--steps N] [--layers N] ['run --pool --switch'...]

Its batches have 8192 tokens in sequences of four lengths. A line of JSON each: whether the losses are those of the first way, the median
step, and the memory of the device that the process held at most, with CUDA's context. The variable BINPOOL names the command.
"""

import argparse
import json
import os
import subprocess
import sys
import time

COMMAND = os.environ.get("BINPOOL", "binpool")
GIB = 1 << 30
WORDS, WIDTH, HEADS = 16000, 768, 12
LENGTHS = [256, 512, 768, 1024]

# How the program is run: what it finds in its environment, and the options of `binpool run`.
WAYS = {
    "JAX": ({}, None),
    "not preallocated": ({"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}, None),
    "cuda_async": ({"XLA_PYTHON_CLIENT_ALLOCATOR": "cuda_async"}, None),
    "run --pool --switch": ({}, ["--pool", "--switch"]),
}


def train(layers, steps):
    """Print the losses and times of training, and the memory that the device had in use after each step at most."""
    import pynvml

    pynvml.nvmlInit()
    device = pynvml.nvmlDeviceGetHandleByIndex(0)
    before = pynvml.nvmlDeviceGetMemoryInfo(device).used

    import jax
    import jax.numpy as jnp
    import optax

    def weights(key):
        shapes = {"enter": (WIDTH, 3 * WIDTH), "leave": (WIDTH, WIDTH), "up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
        keys = iter(jax.random.split(key, 2 + layers * len(shapes)))
        made = [{name: jax.random.normal(next(keys), shape) * 0.02 for name, shape in shapes.items()} for _ in range(layers)]
        return {
            "words": jax.random.normal(next(keys), (WORDS, WIDTH)) * 0.02,
            "places": jax.random.normal(next(keys), (max(LENGTHS), WIDTH)) * 0.02,
            "layers": made,
        }

    def normalized(x):
        return jax.nn.standardize(x.astype(jnp.float32)).astype(jnp.bfloat16)

    def loss_of(model, tokens):
        model = jax.tree.map(lambda weight: weight.astype(jnp.bfloat16), model)
        x = model["words"][tokens[:, :-1]] + model["places"][: tokens.shape[1] - 1]
        for layer in model["layers"]:
            parts = (normalized(x) @ layer["enter"]).reshape(*x.shape[:2], 3, HEADS, WIDTH // HEADS)
            query, key, value = parts[:, :, 0], parts[:, :, 1], parts[:, :, 2]
            mixed = jax.nn.dot_product_attention(query, key, value, is_causal=True)
            x = x + mixed.reshape(x.shape) @ layer["leave"]
            x = x + jax.nn.gelu(normalized(x) @ layer["up"]) @ layer["down"]
        scores = (normalized(x) @ model["words"].T).astype(jnp.float32)
        return optax.softmax_cross_entropy_with_integer_labels(scores, tokens[:, 1:]).mean()

    optimizer = optax.adamw(1e-4)

    @jax.jit
    def step(model, state, tokens):
        loss, gradient = jax.value_and_grad(loss_of)(model, tokens)
        changes, state = optimizer.update(gradient, state, model)
        return optax.apply_updates(model, changes), state, loss

    model = weights(jax.random.key(0))
    state = optimizer.init(model)
    losses, times, peak = [], [], 0
    for number in range(steps):
        length = LENGTHS[number % len(LENGTHS)]
        tokens = jax.random.randint(jax.random.key(number), (8192 // length, length + 1), 0, WORDS)
        start = time.perf_counter()
        model, state, loss = step(model, state, tokens)
        losses.append(float(loss))
        times.append(time.perf_counter() - start)
        peak = max(peak, pynvml.nvmlDeviceGetMemoryInfo(device).used - before)
    # Without the first half, in which programs are compiled.
    warm = sorted(times[steps // 2 :])
    print(json.dumps({"losses": losses, "median_ms": 1e3 * warm[len(warm) // 2], "held_gib": peak / GIB}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ways", nargs="*", default=list(WAYS), help=f"of {', '.join(WAYS)}; the others are compared with the first")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--train", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        return train(options.layers, options.steps)
    if unknown := [way for way in options.ways if way not in WAYS]:
        parser.error(f"no way is called {', '.join(unknown)}: the ways are {', '.join(WAYS)}")
    base = None
    for way in options.ways:
        variables, run = WAYS[way]
        command = [sys.executable, __file__, "--train", "--steps", str(options.steps), "--layers", str(options.layers)]
        if run is not None:
            command = [COMMAND, "run", *run, "--", *command]
        environment = dict(os.environ, XLA_FLAGS="--xla_gpu_deterministic_ops=true", **variables)
        ran = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        said = json.loads(ran.stdout.splitlines()[-1])
        base = base or said
        row = {
            "way": way,
            "median_ms": round(said["median_ms"], 2),
            "of_the_first": round(said["median_ms"] / base["median_ms"], 3),
            "same_losses": said["losses"] == base["losses"],
            "held_gib": round(said["held_gib"], 2),
        }
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()

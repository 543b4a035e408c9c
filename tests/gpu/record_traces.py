#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records what PyTorch's caching allocator does under small programs with random weights, as memory
snapshots (<name>.pickle.xz) that `fallow replay` and `fallow report` read.

The recordings that are public have one stream, no deferred free, no private pool and no serving engine.
Each program here fills one of these gaps:

  train        a training step with AdamW, three steps, from a cold start
  generate     decoding with a key and value cache that grows by concatenation
  moe          a layer of experts with random routing: other sizes in every step
  graph        decoding captured into a CUDA graph, whose blocks lie in a private pool
  two_streams  a copy stream beside the compute stream, with record_stream: deferred frees

Needs torch and a GPU. STATE: it has never run on one; only its command line has been tested.

  tests/gpu/record_traces.py [--out FOLDER] [--only NAME[,NAME]] [--hidden N] [--layers N]

Exit: 0 recorded; 1 a program failed (the others are kept); 2 usage; 77 no torch or no GPU here.
"""
import argparse
import lzma
import os
import sys
import tempfile


def block(torch, hidden):
    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.LayerNorm(hidden)
            self.qkv = torch.nn.Linear(hidden, 3 * hidden)
            self.out = torch.nn.Linear(hidden, hidden)
            self.up = torch.nn.Linear(hidden, 4 * hidden)
            self.down = torch.nn.Linear(4 * hidden, hidden)

        def forward(self, x, cache=None):
            q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
            if cache is not None:
                k = k if cache[0] is None else torch.cat((cache[0], k), dim=1)
                v = v if cache[1] is None else torch.cat((cache[1], v), dim=1)
                cache[0], cache[1] = k, v
            scores = torch.softmax(q @ k.transpose(1, 2) / hidden**0.5, dim=-1)
            x = x + self.out(scores @ v)
            return x + self.down(torch.nn.functional.gelu(self.up(x)))

    return Block()


def model(torch, options):
    torch.manual_seed(1)
    return torch.nn.ModuleList([block(torch, options.hidden) for _ in range(options.layers)]).cuda()


def train(torch, options):
    layers = model(torch, options)
    optimizer = torch.optim.AdamW(layers.parameters())
    for _ in range(3):
        x = torch.randn(4, 512, options.hidden, device="cuda")
        for layer in layers:
            x = layer(x)
        x.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def generate(torch, options):
    layers = model(torch, options)
    caches = [[None, None] for _ in layers]
    with torch.no_grad():
        x = torch.randn(8, 256, options.hidden, device="cuda")
        for _ in range(128):
            for layer, cache in zip(layers, caches):
                x = layer(x, cache)
            x = x[:, -1:, :]


def moe(torch, options):
    torch.manual_seed(1)
    experts = [torch.nn.Linear(options.hidden, options.hidden).cuda() for _ in range(16)]
    router = torch.nn.Linear(options.hidden, len(experts)).cuda()
    with torch.no_grad():
        for _ in range(40):
            x = torch.randn(4096, options.hidden, device="cuda")
            weights, chosen = torch.topk(torch.softmax(router(x) * 4, dim=-1), 2)
            y = torch.zeros_like(x)
            for i, expert in enumerate(experts):
                rows, place = torch.where(chosen == i)
                y[rows] += weights[rows, place, None] * expert(x[rows])


def graph(torch, options):
    layers = model(torch, options)
    x = torch.randn(8, 1, options.hidden, device="cuda")
    stream = torch.cuda.Stream()
    with torch.no_grad():
        with torch.cuda.stream(stream):  # what libraries allocate once must not be captured
            for layer in layers:
                layer(x)
        torch.cuda.synchronize()
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            y = x
            for layer in layers:
                y = layer(y)
        for _ in range(32):
            torch.randn(256, options.hidden, device="cuda").square().sum()
            captured.replay()


def two_streams(torch, options):
    layers = model(torch, options)
    copies = torch.cuda.Stream()
    host = torch.randn(4, 512, options.hidden).pin_memory()
    with torch.no_grad():
        for _ in range(24):
            with torch.cuda.stream(copies):
                x = host.to("cuda", non_blocking=True)
            torch.cuda.current_stream().wait_stream(copies)
            x.record_stream(torch.cuda.current_stream())
            for layer in layers:
                x = layer(x)


PROGRAMS = {p.__name__: p for p in (train, generate, moe, graph, two_streams)}


def record(torch, name, options):
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.memory._record_memory_history(max_entries=1_000_000, stacks="python")
    try:
        PROGRAMS[name](torch, options)
        torch.cuda.synchronize()
        with tempfile.TemporaryDirectory() as folder:
            plain = os.path.join(folder, "snapshot.pickle")
            torch.cuda.memory._dump_snapshot(plain)
            with open(plain, "rb") as file:
                data = lzma.compress(file.read(), preset=6)
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
    path = os.path.join(options.out, f"{name}.pickle.xz")
    with open(path + ".part", "wb") as file:
        file.write(data)
    os.replace(path + ".part", path)
    print(f"{name}: {path}, {len(data)} bytes")


def main():
    parser = argparse.ArgumentParser(description="record PyTorch's allocator under small programs")
    parser.add_argument("--out", default="build/recordings")
    parser.add_argument("--only", default=",".join(PROGRAMS), help="comma-separated names")
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=8)
    options = parser.parse_args()
    names = options.only.split(",")
    for name in names:
        if name not in PROGRAMS:
            parser.error(f"no program '{name}': there are {', '.join(PROGRAMS)}")
    try:
        import torch
    except ImportError:
        print("record_traces: torch is not installed: nothing recorded", file=sys.stderr)
        return 77
    if not torch.cuda.is_available():
        print("record_traces: torch finds no GPU: nothing recorded", file=sys.stderr)
        return 77
    os.makedirs(options.out, exist_ok=True)
    failed = 0
    for name in names:
        try:
            record(torch, name, options)
        except Exception as error:  # the other programs still count
            print(f"record_traces: {name}: {error}", file=sys.stderr)
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())

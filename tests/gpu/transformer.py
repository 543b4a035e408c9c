#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small transformer, timed end to end under the allocator that PyTorch uses.

  serve   continuous batching: requests of drawn prompt and answer lengths join and leave a batch; each has a key
          and value cache in chunks that grow as it decodes, so that tensors of many sizes are allocated and freed
  train   steps of AdamW over batches of drawn lengths, with activations recomputed in every second layer

  tests/gpu/transformer.py serve|train [--fallow] [--steps N] [--warm N] [--hidden N] [--layers N] [--device cuda|cpu]

The allocator is PyTorch's choice (PYTORCH_ALLOC_CONF), Fallow's plug-in (--fallow) or, preloaded, the library behind
cudaMalloc; call_b.sh runs all of them. Prints one JSON object: milliseconds a step (median, 90 and 99 of a hundred,
all), tokens a second, bytes reserved if PyTorch reports them, a digest of the results, which is the same for every
allocator. --device cpu shows that the program works, and its times are no GPU's.

STATE: has never run on a GPU.

Exit: 0 measured; 1 a step failed; 2 usage; 77 no torch or no GPU here.
"""
import argparse
import hashlib
import json
import math
import os
import random
import sys
import time

CHUNK = 64  # tokens by which a cache grows


def make_layers(torch, options):
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.LayerNorm(options.hidden)
            self.second = torch.nn.LayerNorm(options.hidden)
            self.qkv = torch.nn.Linear(options.hidden, 3 * options.hidden)
            self.out = torch.nn.Linear(options.hidden, options.hidden)
            self.up = torch.nn.Linear(options.hidden, 4 * options.hidden)
            self.down = torch.nn.Linear(4 * options.hidden, options.hidden)

        def forward(self, x, attend):
            q, k, v = self.qkv(self.first(x)).chunk(3, dim=-1)
            x = x + self.out(attend(q, k, v))
            return x + self.down(torch.nn.functional.gelu(self.up(self.second(x))))

    dtype = torch.bfloat16 if options.device == "cuda" else torch.float32
    return torch.nn.ModuleList([Layer() for _ in range(options.layers)]).to(options.device, dtype)


def made_up(torch, options, like, *rows):
    """Inputs: the same in every run."""
    count = torch.arange(math.prod(rows) * options.hidden, device=like.device, dtype=torch.float32)
    return count.sin().view(*rows, options.hidden).to(like.dtype)


def heads_first(options, x):
    """[rows, hidden] or [batch, rows, hidden] with the heads before the rows"""
    return x.unflatten(-1, (options.heads, options.hidden // options.heads)).transpose(-3, -2)


class Cache:
    """Keys and values of one request and layer, in a buffer that grows by whole chunks."""

    def __init__(self, torch, options, like):
        self.torch, self.options, self.count = torch, options, 0
        self.rows = like.new_empty(2, 0, options.hidden)

    def append(self, k, v):
        count = self.count + k.shape[0]
        if count > self.rows.shape[1]:
            grown = k.new_empty(2, math.ceil(count / CHUNK) * CHUNK, self.options.hidden)
            grown[:, : self.count] = self.rows[:, : self.count]
            self.rows = grown
        self.rows[0, self.count : count] = k
        self.rows[1, self.count : count] = v
        self.count = count
        return self.rows[0, :count], self.rows[1, :count]


class Request:
    def __init__(self, torch, options, draw, like):
        self.prompt = draw.randint(16, 4 * CHUNK)
        self.left = draw.randint(8, 2 * CHUNK)
        self.caches = [Cache(torch, options, like) for _ in range(options.layers)]
        self.last = None


class Serving:
    """One step is one token for every request of the batch; some of them begin with a prompt."""

    def __init__(self, torch, options):
        self.torch, self.options = torch, options
        self.draw = random.Random(1)
        self.layers = make_layers(torch, options).eval()
        self.like = next(self.layers.parameters())
        self.batch, self.tokens = [], 0
        self.sum = torch.zeros((), device=options.device, dtype=torch.float64)

    def run(self, x, caches):
        torch, options = self.torch, self.options
        lengths = [rows.shape[0] for rows in x]
        flat = torch.cat(x)
        for number, layer in enumerate(self.layers):

            def attend(q, k, v, number=number):
                done = []
                pieces = zip(q.split(lengths), k.split(lengths), v.split(lengths), caches)
                for query, key, value, own in pieces:
                    before = own[number].count
                    keys, values = own[number].append(key, value)
                    mask = None
                    if query.shape[0] > 1:
                        mask = torch.ones(query.shape[0], keys.shape[0], dtype=torch.bool, device=query.device).tril(before)
                    one = [heads_first(options, rows)[None] for rows in (query, keys, values)]  # a batch: fused kernels need one
                    out = torch.nn.functional.scaled_dot_product_attention(*one, attn_mask=mask)
                    done.append(out[0].transpose(-3, -2).flatten(-2))
                return torch.cat(done)

            flat = layer(flat, attend)
        return flat.split(lengths)

    def step(self):
        torch, options = self.torch, self.options
        self.batch = [request for request in self.batch if request.left > 0]
        while len(self.batch) < options.batch and (len(self.batch) < options.batch // 2 or self.draw.random() < 0.5):
            self.batch.append(Request(torch, options, self.draw, self.like))
        x = [
            made_up(self.torch, options, self.like, request.prompt) if request.last is None else request.last
            for request in self.batch
        ]
        with torch.no_grad():
            results = self.run(x, [request.caches for request in self.batch])
            for request, rows in zip(self.batch, results):
                request.last = rows[-1:].clone()
                request.left -= 1
                self.sum += request.last.double().abs().mean()
        self.tokens += sum(rows.shape[0] for rows in x)

    def result(self):
        return self.sum.item()


class Training:
    def __init__(self, torch, options):
        from torch.utils.checkpoint import checkpoint

        self.torch, self.options, self.checkpoint = torch, options, checkpoint
        self.draw = random.Random(2)
        self.layers = make_layers(torch, options)
        self.optimizer = torch.optim.AdamW(self.layers.parameters(), lr=1e-4)
        self.tokens, self.losses = 0, []

    def attend(self, q, k, v):
        options = self.options
        out = self.torch.nn.functional.scaled_dot_product_attention(
            heads_first(options, q), heads_first(options, k), heads_first(options, v), is_causal=True)
        return out.transpose(-3, -2).flatten(-2)

    def step(self):
        torch, options = self.torch, self.options
        rows = 16 * self.draw.randint(options.length // 64, options.length // 16)
        like = next(self.layers.parameters())
        x = made_up(torch, options, like, options.batch, rows)
        for number, layer in enumerate(self.layers):
            x = self.checkpoint(layer, x, self.attend, use_reentrant=False) if number % 2 else layer(x, self.attend)
        loss = (x.float() - 1).square().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.losses.append(loss.detach())
        self.tokens += options.batch * rows

    def result(self):
        return self.torch.stack(self.losses).double().cpu().sum().item()


def measure(torch, program, options):
    def finish():
        if options.device == "cuda":
            torch.cuda.synchronize()

    times = []
    for number in range(options.warm + options.steps):
        if number == options.warm:
            program.tokens = 0
        begun = time.perf_counter()
        program.step()
        finish()
        if number >= options.warm:
            times.append((time.perf_counter() - begun) * 1e3)
    return times


def report(torch, program, options, times):
    ordered = sorted(times)

    def quantile(share):
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)]

    result = {
        "kind": options.kind, "torch": torch.__version__, "device": options.device, "steps": options.steps,
        "ms_median": quantile(0.5), "ms_90": quantile(0.9), "ms_99": quantile(0.99), "ms_all": sum(times),
        "tokens_per_second": program.tokens / sum(times) * 1e3,
        "digest": hashlib.sha256(repr(program.result()).encode()).hexdigest()[:16],
    }
    if options.device == "cuda":
        free, total = torch.cuda.mem_get_info()
        result.update(name=torch.cuda.get_device_name(), used_bytes=total - free,
                      reserved_bytes=torch.cuda.max_memory_reserved())
    if options.fallow:
        import fallow

        result["fallow"] = fallow.stats(0, "stream")
    print(json.dumps(result))


def parse():
    parser = argparse.ArgumentParser(description="time a small transformer under an allocator")
    parser.add_argument("kind", choices=("serve", "train"))
    parser.add_argument("--fallow", action="store_true", help="PyTorch allocates from Fallow's plug-in")
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--warm", type=int, default=20)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    return parser.parse_args()


def main():
    options = parse()
    try:
        import torch
    except ImportError as error:
        print(f"transformer: torch is not installed ({error})", file=sys.stderr)
        return 77
    if options.device == "cuda" and not torch.cuda.is_available():
        print("transformer: torch finds no CUDA device", file=sys.stderr)
        return 77
    if options.fallow:
        sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools/python"))
        import fallow

        fallow.enable_torch()
    torch.manual_seed(1)
    torch.backends.cuda.enable_cudnn_sdp(False)  # cuDNN builds a plan for each new shape, and may sum in any order
    torch.use_deterministic_algorithms(True, warn_only=True)  # results are compared between allocators
    if hasattr(torch.utils, "deterministic"):
        torch.utils.deterministic.fill_uninitialized_memory = False  # that would be timed
    program = {"serve": Serving, "train": Training}[options.kind](torch, options)
    report(torch, program, options, measure(torch, program, options))
    return 0


if __name__ == "__main__":
    sys.exit(main())

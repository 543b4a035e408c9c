#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One PyTorch program for every way into Fallow; prints a line of JSON as soon as each part is done.

  torch_tour.py plain     PyTorch's own allocator
                plugin    fallow.enable_torch()
                cached    under the preload library, with PyTorch's cache
                preload   under the preload library, without PyTorch's cache

Parts: training (losses and weights to the bit), tensors freed while another stream writes to them, CUDA graphs that
share a pool, the price of an allocation, the memory held, its peak after a reset, a failed allocation; with the plug-in
also a lease of an arena as a tensor, and sleep and wake under graphs. A part is left out where it cannot run: without
PyTorch's cache there are no graphs. Equal parts have equal digests in every mode.

STATE: has never run on a GPU.

Exit: 0 every part is right; 1 a part is wrong or failed; 2 usage; 77 no torch or no GPU here.
"""
import contextlib
import hashlib
import json
import os
import sys
import time
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools/python"))
MODE = sys.argv[1] if len(sys.argv) == 2 else ""
wrong = 0


def say(part, **more):
    print(json.dumps({"part": part, "mode": MODE, **more}), flush=True)


def expect(part, holds, **more):
    global wrong
    wrong += not holds
    say(part, right=bool(holds), **more)


def digest(*tensors):
    sums = hashlib.sha256()
    for tensor in tensors:
        sums.update(tensor.detach().float().cpu().numpy().tobytes())
    return sums.hexdigest()[:16]


def train(torch):
    """Steps over batches of drawn lengths; the first 20 are not timed."""
    layers = [layer for _ in range(4) for layer in (torch.nn.Linear(1024, 1024), torch.nn.GELU())]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(1024, 16)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    draw = torch.Generator().manual_seed(2)
    losses, times = [], []
    for _ in range(80):
        rows = int(torch.randint(64, 4096, (1,), generator=draw))
        inputs = torch.randn(rows, 1024, generator=draw).cuda()
        torch.cuda.synchronize()
        begun = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begun) * 1e3)
        losses.append(loss.detach())
    times = sorted(times[20:])
    say("train", digest=digest(torch.stack(losses), *model.parameters()), ms_median=times[len(times) // 2],
        ms_90=times[len(times) * 9 // 10])


def foreign(torch):
    """Free a tensor that another stream still has to write to, and count its values in the next tensor."""
    side, count = torch.cuda.Stream(), 0
    for number in range(30):
        torch.cuda.synchronize()
        victim = torch.empty(1 << 20, device="cuda", dtype=torch.int32)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(4_000_000)  # cycles
            victim.fill_(-1)
        if MODE != "preload":
            victim.record_stream(side)  # without its cache PyTorch relies on cudaFree to wait
        del victim
        fresh = torch.full((1 << 20,), number, device="cuda", dtype=torch.int32)
        torch.cuda.synchronize()
        count += int((fresh != number).sum())
    expect("foreign", count == 0, words=count)


def graphs(torch, between=None):
    """Replay three graphs of one pool among other tensors; call `between` after their capture."""
    weights = [torch.randn(512, 512, device="cuda") / 23 for _ in range(6)]

    def chain(rows):
        for weight in weights:
            rows = torch.tanh(rows @ weight)
        return rows

    sizes, made, pool, bad, outs = (256, 512, 384), [], None, 0, []
    warm = torch.cuda.Stream()
    warm.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(warm):
        for size in sizes:
            chain(torch.ones(size, 512, device="cuda"))
    torch.cuda.synchronize()
    for size in sizes:
        inputs, graph = torch.zeros(size, 512, device="cuda"), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            outputs = chain(inputs)
        pool = graph.pool()
        made.append((graph, inputs, outputs))
    if between is not None:
        between()
    for number in range(30):
        graph, inputs, outputs = made[number % 3]
        fresh = torch.randn_like(inputs)
        eager = chain(fresh)
        noise = [torch.full((number + 1, 1000 * k), float("nan"), device="cuda") for k in range(1, 9)]
        del noise
        inputs.copy_(fresh)
        graph.replay()
        bad += not torch.allclose(outputs, eager, rtol=1e-4, atol=1e-5)
        outs.append(outputs.clone())
    expect("graphs" if between is None else "graphs after sleep", bad == 0, bad=bad, digest=digest(*outs))


def pairs(torch):
    for size in (4096, 1 << 20, 64 << 20):
        for _ in range(200):
            torch.empty(size, device="cuda", dtype=torch.uint8)
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(5000):
            torch.empty(size, device="cuda", dtype=torch.uint8)
        say("pair", bytes=size, ns=round((time.perf_counter() - begun) / 5000 * 1e9))


def held(torch):
    free, total = torch.cuda.mem_get_info()
    more = {}
    if MODE != "preload":  # without its cache PyTorch counts nothing
        more = {"reserved_bytes": torch.cuda.max_memory_reserved()}
    if MODE == "plugin":
        import fallow

        more["fallow"] = fallow.stats(0)
    say("held", used_bytes=total - free, **more)


def peak(torch):
    """Reset PyTorch's peaks and read that of one tensor."""
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    torch.empty(64 << 20, device="cuda", dtype=torch.uint8)
    more = torch.cuda.max_memory_allocated() - before
    memory = torch.accelerator if hasattr(getattr(torch, "accelerator", None), "memory_reserved") else torch.cuda
    memory.empty_cache()
    idle = memory.memory_reserved() - memory.memory_allocated()
    expect("peak", more == 64 << 20 and torch.cuda.memory_allocated() == before, bytes=more, idle_bytes=idle)


def arena(torch):
    import fallow

    layout = fallow.Layout([{"name": "out", "bytes": 64 << 10, "init": "zero"}, {"name": "rest", "bytes": 1 << 20}])
    with contextlib.closing(fallow.Arena(name="tour")) as area:
        with area.lease(layout) as lease:
            out, rest = lease.torch("out", (64, 256), torch.float32), lease.torch("rest", (512, 512), torch.float32)
            zero = float(out.abs().sum())
            rest.fill_(2)
            is_same = out.data_ptr() == lease.address("out") and float((rest @ rest).sum()) == 4 * 512**3
    expect("arena", zero == 0 and is_same, sum=zero)


def sleep(torch):
    """Sleep and wake between the capture of graphs and their replay."""
    import fallow

    kept = torch.randn(8 << 20, device="cuda")
    torch.cuda.synchronize()
    before, address, free, times = digest(kept), kept.data_ptr(), [torch.cuda.mem_get_info()[0]], []

    def between():
        begun = time.perf_counter()
        fallow.sleep(save="all")
        slept = time.perf_counter()
        free.append(torch.cuda.mem_get_info()[0])
        woken = time.perf_counter()
        fallow.wake()
        times.extend([(slept - begun) * 1e3, (time.perf_counter() - woken) * 1e3])

    graphs(torch, between)
    expect("sleep", digest(kept) == before and kept.data_ptr() == address, given_back=free[1] - free[0],
           sleep_ms=times[0], wake_ms=times[1])


def failure(torch):
    """Ask for more than the device has: an exception, after which PyTorch still works."""
    try:
        tensor = torch.empty(1 << 43, device="cuda", dtype=torch.uint8)
        answer, address = "no exception", tensor.data_ptr()  # not touched: it may be NULL
    except Exception as error:  # which one is the question
        answer, address = f"{type(error).__name__}: {str(error).splitlines()[0][:160]}", None
    after = float(torch.ones(1000, device="cuda").sum())
    expect("failure", after == 1000 and address is None, answer=answer, address=address)


PARTS = {"plain": (train, foreign, graphs, pairs, held, peak, failure),
         "plugin": (train, foreign, graphs, pairs, held, peak, arena, sleep, failure),
         "cached": (train, foreign, graphs, held),
         "preload": (train, foreign, pairs, held, failure)}


def main():
    global wrong
    if MODE not in PARTS:
        print(f"usage: torch_tour.py {'|'.join(PARTS)}", file=sys.stderr)
        return 2
    try:
        import torch
    except ImportError as error:
        print(f"torch is not installed ({error})", file=sys.stderr)
        return 77
    if not torch.cuda.is_available():
        print("torch finds no CUDA device", file=sys.stderr)
        return 77
    if MODE == "plugin":
        import fallow

        fallow.enable_torch()
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.manual_seed(1)
    say("begin", torch=torch.__version__, cuda=torch.version.cuda, device=torch.cuda.get_device_name(0),
        backend=torch.cuda.get_allocator_backend())
    for part in PARTS[MODE]:
        try:
            part(torch)
        except Exception as error:  # the other parts still count
            wrong += 1
            say(part.__name__, right=False, error=f"{type(error).__name__}: {str(error)[:300]}")
            traceback.print_exc()
    if MODE == "plugin":
        print(fallow.report(), file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times the PyTorch sequence that each kernel module replaces, at the sizes of `fallow bench kernels`, and
puts both side by side.

  fallow bench kernels --device 0 --json >cases.json
  tests/gpu/kernels_torch.py --cases cases.json [--only MODULE] [--out FILE] [--device cuda|cpu]

Each sequence reads inputs and writes outputs of the module's shapes. It is captured in a CUDA graph of
many runs, as the modules are, and timed by events; one that cannot be captured is timed outside one
("graph": false). Modules that replace a kernel of others, or code on the host, have no sequence.
--device cpu runs each once at small sizes and takes no time: that shows only that the calls are legal.

STATE: it has run with torch 1.12 and --device cpu, but for the forms in fp8; never on a GPU.

Exit: 0 all ran; 1 a sequence failed (the others are kept); 2 usage; 77 no torch or no GPU here.
"""
import argparse
import json
import os
import sys

REPLAYS = 9
SMALL = {"tokens": 1024, "rows": 128, "batch": 8, "heads": 4, "context": 1024, "width": 256, "bytes": 4096,
         "prefix_pages": 64, "workspace": 4096}


class Inputs:
    """Tensors on the device, by name."""

    def __init__(self, torch, device):
        self.torch, self.device = torch, device

    def integers(self, high, *shape, dtype=None):
        return self.torch.randint(0, max(high, 1), shape, device=self.device, dtype=dtype or self.torch.int32)

    def floats(self, *shape, dtype=None):
        return self.torch.randn(*shape, device=self.device, dtype=dtype or self.torch.bfloat16)

    def empty(self, *shape, dtype=None):
        return self.torch.empty(*shape, device=self.device, dtype=dtype or self.torch.bfloat16)

    def count(self, *arguments, dtype=None):
        return self.torch.arange(*arguments, device=self.device, dtype=dtype or self.torch.int32)

    def choices(self, tokens, experts, top_k):
        first = self.integers(experts, tokens, 1, dtype=self.torch.int64)
        return (first + self.count(top_k, dtype=self.torch.int64)) % experts


# Each function takes torch, Inputs, the case's sizes and its name, and returns the functions to time.


def cu_seqlens(torch, inputs, sizes, _):
    lengths = inputs.integers(8192, sizes["rows"], sizes["batch"])

    def run():
        return torch.nn.functional.pad(torch.cumsum(lengths, dim=1, dtype=torch.int32), (1, 0))

    return run


def page_table(torch, inputs, sizes, _):
    batch, page, context = sizes["batch"], sizes["page_size"], sizes["context"]
    columns = context // page
    lengths = torch.full((batch,), context, device=inputs.device, dtype=torch.int32)
    requests = inputs.count(batch, dtype=torch.int64)
    slots = inputs.count(batch * context).view(batch, context)
    strided = inputs.count(0, context, page, dtype=torch.int64)
    seqlens = inputs.empty(batch, dtype=torch.int32)
    cu_k = torch.zeros(batch + 1, device=inputs.device, dtype=torch.int32)
    table = inputs.empty(batch, columns, dtype=torch.int32)

    def run():
        seqlens.copy_(lengths + 0)
        cu_k[1:].copy_(torch.cumsum(seqlens, dim=0, dtype=torch.int32))
        pages = slots[requests[:, None], strided[None, :]]
        table.copy_(pages // page)

    return run


def concat_pages(torch, inputs, sizes, _):
    batch, drafts, prefix = sizes["batch"], sizes["draft_tokens"], sizes["prefix_pages"]
    first = inputs.integers(1000, batch, prefix)
    second = inputs.integers(1000, batch * drafts, drafts)
    lengths = torch.full((batch * drafts,), prefix + drafts, device=inputs.device, dtype=torch.int32)

    def run():
        table = torch.cat((torch.repeat_interleave(first, drafts, dim=0), second), dim=1)
        return table, torch.nn.functional.pad(torch.cumsum(lengths, dim=0, dtype=torch.int32), (1, 0))

    return run


def verify_pages(torch, inputs, sizes, _):
    batch, drafts, context = sizes["batch"], sizes["draft_tokens"], sizes["context"]
    lengths = torch.full((batch,), context - drafts, device=inputs.device, dtype=torch.int64)
    requests = inputs.count(batch, dtype=torch.int64)
    slots = inputs.count(batch * context).view(batch, context)
    mask = inputs.integers(2, batch * drafts, drafts).bool()
    template = inputs.count(drafts, dtype=torch.int64).expand(batch * drafts, drafts)

    def run():
        columns = lengths[:, None] + template[:batch]
        seen = slots[requests].gather(1, columns).repeat_interleave(drafts, dim=0)
        order = torch.sort(torch.where(mask, template, template + drafts), dim=1).indices
        seqlens = mask.sum(dim=1, dtype=torch.int32)
        cu_k = torch.nn.functional.pad(torch.cumsum(seqlens, dim=0, dtype=torch.int32), (1, 0))
        return seen.gather(1, order), seqlens, cu_k

    return run


def kv_indices(torch, inputs, sizes, _):
    batch, context = sizes["batch"], sizes["context"]
    lengths = torch.full((batch,), context, device=inputs.device, dtype=torch.int64)
    requests = inputs.count(batch, dtype=torch.int64)
    slots = inputs.count(batch * context).view(batch, context)
    cu = inputs.count(0, (batch + 1) * context, context, dtype=torch.int64)
    total = batch * context

    def run():
        row = torch.repeat_interleave(inputs.count(batch, dtype=torch.int64), lengths, output_size=total)
        return slots[requests[row], inputs.count(total, dtype=torch.int64) - cu[row]]

    return run


def merge_states(torch, inputs, sizes, _):
    tokens, heads, width = sizes["tokens"], sizes["heads"], sizes["width"]
    a, b = inputs.floats(tokens, heads, width), inputs.floats(tokens, heads, width)
    a_lse = inputs.floats(heads, tokens, dtype=torch.float32)
    b_lse = inputs.floats(heads, tokens, dtype=torch.float32)

    def run():
        most = torch.maximum(a_lse, b_lse)
        a_weight, b_weight = torch.exp(a_lse - most), torch.exp(b_lse - most)
        total = a_weight + b_weight
        scale = (a_weight / total).t()[..., None]
        out = (a.float() * scale + b.float() * (b_weight / total).t()[..., None]).to(a.dtype)
        return out, most + torch.log(total)

    return run


def neutral_rows(torch, inputs, sizes, _):
    tokens, heads, width = sizes["tokens"], sizes["heads"], sizes["width"]
    rows, lse = inputs.floats(tokens, heads, width), inputs.floats(heads, tokens, dtype=torch.float32)
    empty = torch.ones(tokens, device=inputs.device, dtype=torch.bool)

    def run():
        rows.masked_fill_(empty[:, None, None], 0)
        lse.masked_fill_(empty[None, :], float("-inf"))

    return run


def padded_copy(torch, inputs, sizes, _):
    rows = sizes["rows"]
    source, target = inputs.count(rows // 2), inputs.empty(rows, dtype=torch.int32)

    def run():
        target.fill_(-1)
        target[: rows // 2].copy_(source)

    return run


def restore_counters(torch, inputs, sizes, _):
    counters = torch.ones(sizes["consumers"], sizes["count"], device=inputs.device, dtype=torch.int32)

    def run():
        restored = (counters != 0).sum(dim=1, dtype=torch.int32)
        counters.zero_()
        return restored

    return run


def scale_padding(torch, inputs, sizes, _):
    tiles = (sizes["rows"] + 127) // 128 * ((sizes["columns"] + 3) // 4)

    def run():
        return torch.zeros(tiles * 512, device=inputs.device, dtype=torch.uint8)

    return run


def chunk_plan(torch, inputs, sizes, _):
    batch, context, page = sizes["batch"], sizes["context"], sizes["page_size"]
    chunk = sizes["workspace"] // batch // page * page
    chunks = (context + chunk - 1) // chunk
    contexts = torch.full((batch,), context, device=inputs.device, dtype=torch.int32)
    totals = [batch * min(chunk, context - i * chunk) for i in range(chunks)]

    def run():
        starts = inputs.count(chunks)[:, None].expand(-1, batch) * chunk
        ends = torch.minimum(contexts[None, :], starts + chunk)
        lengths = (ends - starts).clamp(min=0)
        cu = torch.zeros(chunks, batch + 1, device=inputs.device, dtype=torch.int32)
        torch.cumsum(lengths, dim=1, out=cu[:, 1:], dtype=torch.int32)
        owner = inputs.count(batch)
        return cu, [torch.repeat_interleave(owner, lengths[i], output_size=totals[i]) for i in range(chunks)]

    return run


def gather_kv(torch, inputs, sizes, name):
    tokens, batch, page = sizes["tokens"], sizes["batch"], sizes["page_size"]
    blocks = tokens // page
    table = torch.randperm(blocks, device=inputs.device).view(batch, -1)
    each = tokens // batch
    owner = inputs.count(tokens, dtype=torch.int64) // each
    position = inputs.count(tokens, dtype=torch.int64) % each
    if name == "bf16":
        cache = inputs.floats(blocks * page, 576)
    else:
        cache = inputs.integers(100, blocks * page, 576 if name == "e4m3" else 656, dtype=torch.uint8)

    def rows():
        return cache[table[owner, position // page] * page + position % page]

    def run_e4m3():
        return rows().view(torch.float8_e4m3fn).to(torch.bfloat16)

    def run_flashmla():
        row = rows()
        scales = row[:, 512:528].contiguous().view(torch.float32)
        values = row[:, :512].contiguous().view(torch.float8_e4m3fn).float().view(tokens, 4, 128)
        nope = (values * scales[..., None]).view(tokens, 512).to(torch.bfloat16)
        return torch.cat((nope, row[:, 528:].contiguous().view(torch.bfloat16)), dim=1)

    return {"bf16": rows, "e4m3": run_e4m3, "flashmla": run_flashmla}[name]


def concat_kv(torch, inputs, sizes, _):
    tokens, heads = sizes["tokens"], sizes["heads"]
    kv, rope = inputs.floats(tokens, heads, 256), inputs.floats(tokens, 1, 64)

    def run():
        return torch.cat((kv[..., :128], rope.expand(-1, heads, -1)), dim=-1)

    return run


def route(torch, inputs, sizes, name):
    tokens, experts, top_k = sizes["tokens"], sizes["experts"], sizes["top_k"]
    logits = inputs.floats(tokens, experts)
    bias = torch.zeros(experts, device=inputs.device, dtype=torch.float32)

    def run_softmax():
        weights, ids = torch.topk(torch.softmax(logits, dim=-1, dtype=torch.float32), top_k, dim=-1)
        return weights / weights.sum(dim=-1, keepdim=True), ids.to(torch.int32)

    def run_grouped():
        scores = logits.float().sigmoid()
        candidates = scores + bias
        groups = candidates.view(tokens, 8, -1).topk(2, dim=-1).values.sum(dim=-1)
        kept = torch.zeros_like(groups).scatter_(1, groups.topk(4, dim=-1, sorted=False).indices, 1)
        kept = kept[..., None].expand(-1, -1, experts // 8).reshape(tokens, experts)
        ids = candidates.masked_fill(kept == 0, float("-inf")).topk(top_k, dim=-1).indices
        weights = scores.gather(1, ids)
        return weights / weights.sum(dim=-1, keepdim=True) * 2.5, ids.to(torch.int32)

    return run_grouped if name.startswith("deepseek") else run_softmax


def sort_by_expert(torch, inputs, flat, experts, align):
    """Counts, aligned offsets, and for the flat indices in the experts' order: index, expert, place."""
    ones = torch.ones_like(flat)
    counts = torch.zeros(experts, device=inputs.device, dtype=torch.int64).scatter_add_(0, flat, ones)
    ids, order = torch.sort(flat, stable=True)
    padded = (counts + align - 1) // align * align
    offsets = torch.nn.functional.pad(torch.cumsum(padded, dim=0), (1, 0))
    rank = inputs.count(flat.numel(), dtype=torch.int64) - (torch.cumsum(counts, dim=0) - counts)[ids]
    return counts, offsets, order, offsets[ids] + rank


def align_blocks(torch, inputs, sizes, _):
    tokens, experts, top_k, block = (sizes[k] for k in ("tokens", "experts", "top_k", "block"))
    flat = inputs.choices(tokens, experts, top_k).view(-1)
    count = tokens * top_k
    capacity = count + min(count, experts) * (block - 1)

    def run():
        _, offsets, order, place = sort_by_expert(torch, inputs, flat, experts, block)
        ids = torch.full((capacity,), count, device=inputs.device, dtype=torch.int64)
        ids[place] = order
        begins = inputs.count(0, capacity, block, dtype=torch.int64)
        owners = torch.searchsorted(offsets[1:], begins, right=True)
        owners = torch.where(begins < offsets[-1], owners, torch.zeros_like(owners))
        return ids.to(torch.int32), owners.to(torch.int32), offsets[-1].to(torch.int32)

    return run


def expert_counts(torch, inputs, sizes, _):
    tokens, experts, top_k, align = (sizes[k] for k in ("tokens", "experts", "top_k", "align"))
    flat = inputs.choices(tokens, experts, top_k).view(-1)
    count = tokens * top_k
    rows = count + min(count, experts) * (align - 1)
    shape_1 = torch.tensor((0, 4096, 7168), device=inputs.device)
    shape_2 = torch.tensor((0, 7168, 2048), device=inputs.device)

    def run():
        counts, offsets, order, place = sort_by_expert(torch, inputs, flat, experts, align)
        positions = torch.empty_like(flat)
        positions[order] = place
        row = inputs.count(rows, dtype=torch.int64)
        indices = torch.searchsorted(offsets[1:], row, right=True)
        indices = torch.where(row < offsets[-1], indices, torch.full_like(indices, -1))
        sizes_1, sizes_2 = shape_1.repeat(experts, 1), shape_2.repeat(experts, 1)
        sizes_1[:, 0], sizes_2[:, 0] = counts, counts
        return [x.to(torch.int32) for x in (counts, offsets, offsets[:-1] + counts, positions, indices,
                                            counts, sizes_1, sizes_2)]

    return run


def quantise(torch, rows):
    """Rows in E4M3 with a scale to each 128 elements."""
    groups = rows.float().view(rows.shape[0], -1, 128)
    scales = groups.abs().amax(dim=-1, keepdim=True).clamp(min=1e-10) / 448
    return (groups / scales).to(torch.float8_e4m3fn).view(rows.shape), scales


def silu_and_mul(torch, inputs, sizes, name):
    rows, width = sizes["rows"], sizes["width"]
    both = inputs.floats(rows, 2 * width)

    def run():
        out = torch.nn.functional.silu(both[:, :width]) * both[:, width:]
        return quantise(torch, out) if name.endswith("e4m3") else out

    return run


def permute(torch, inputs, sizes, name):
    tokens, width, top_k = sizes["tokens"], sizes["width"], sizes["top_k"]
    source = inputs.floats(tokens, width)
    order = torch.randperm(tokens * top_k, device=inputs.device)

    def run():
        out = source[torch.div(order, top_k, rounding_mode="floor")]
        return quantise(torch, out) if name.endswith("e4m3") else out

    return run


def combine(torch, inputs, sizes, _):
    tokens, width, top_k = sizes["tokens"], sizes["width"], sizes["top_k"]
    rows = inputs.floats(tokens * top_k, width)
    weights = inputs.floats(tokens, top_k, dtype=torch.float32)
    positions = torch.randperm(tokens * top_k, device=inputs.device)

    def run():
        return (rows[positions].view(tokens, top_k, width) * weights[..., None].to(rows.dtype)).sum(dim=1)

    return run


def poison(torch, inputs, sizes, _):
    memory = inputs.empty(sizes["bytes"], dtype=torch.uint8)

    def run():
        memory.fill_(255)

    return run


def validate(torch, inputs, sizes, _):
    data = inputs.floats(sizes["rows"], sizes["width"])

    def run():
        return torch.isnan(data).sum(), (data.view(torch.int16) == -1).sum()

    return run


def validate_ids(torch, inputs, sizes, _):
    ids = inputs.choices(sizes["rows"], sizes["experts"], sizes["top_k"]).to(torch.int32)

    def run():
        ordered = torch.sort(ids, dim=1).values
        double = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != -1)
        return ((ids < -1) | (ids >= sizes["experts"])).sum(), double.sum()

    return run


SEQUENCES = {f.__name__: f for f in (
    cu_seqlens, page_table, concat_pages, verify_pages, kv_indices, merge_states, neutral_rows, padded_copy,
    restore_counters, scale_padding, chunk_plan, gather_kv, concat_kv, route, align_blocks, expert_counts,
    silu_and_mul, permute, combine, poison, validate, validate_ids)}
# These replace a kernel, or code on the host.
WITHOUT = {"fa3_schedule": "a kernel of FlashAttention-3", "flashmla_schedule": "a kernel of FlashMLA",
           "local_attention": "NumPy on the host, and a copy to the device"}


def time_replays(torch, run, count):
    """Microseconds of one run, the median of several batches of `count`."""
    times = []
    for _ in range(REPLAYS + 3):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / count)
    return sorted(times[3:])[REPLAYS // 2]


def measure(torch, run, moved_bytes):
    """(microseconds, whether in a graph)"""
    count = 50 if moved_bytes < 16 << 20 else 3
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            for _ in range(count):
                run()
    except RuntimeError:  # it waits for the device somewhere: no graph can hold it
        torch.cuda.synchronize()
        return time_replays(torch, lambda: [run() for _ in range(count)] and None, count), False
    return time_replays(torch, graph.replay, count), True


def compare(torch, case, device):
    """One row: ours beside torch's."""
    module, sizes = case["module"], dict(case["sizes"])
    row = {"module": module, "case": case["case"], "us": case.get("us")}
    if module in WITHOUT or module not in SEQUENCES:
        row["replaces"] = WITHOUT.get(module, "no sequence is written for it")
        return row
    if device == "cpu":
        sizes = {k: min(v, SMALL.get(k, v)) for k, v in sizes.items()}
    run = SEQUENCES[module](torch, Inputs(torch, device), sizes, case["case"])
    if device == "cpu":
        run()
        return row
    row["torch_us"], row["graph"] = measure(torch, run, case["read_bytes"] + case["write_bytes"])
    if row["us"]:
        row["factor"] = row["torch_us"] / row["us"]
    return row


def show(row):
    def number(key, form):
        return format(row[key], form) if row.get(key) else "-"

    print(f"{row['module']:<18} {row['case']:<24} {number('us', '10.2f'):>10} {number('torch_us', '10.2f'):>10} "
          f"{number('factor', '7.1f'):>7}  {row.get('error') or row.get('replaces', '')}")


def write_whole(path, result):
    with open(path + ".part", "w", encoding="utf-8") as file:
        json.dump(result, file)
    os.replace(path + ".part", path)


def main():
    parser = argparse.ArgumentParser(description="time the PyTorch sequences that kernel modules replace")
    parser.add_argument("--cases", required=True, help="what `fallow bench kernels --json` printed")
    parser.add_argument("--only", help="one module")
    parser.add_argument("--out", help="a JSON file with everything")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    options = parser.parse_args()
    try:
        with open(options.cases, encoding="utf-8") as file:
            cases = json.load(file)["cases"]
    except (OSError, ValueError, KeyError) as error:
        parser.error(f"--cases {options.cases}: {error}")
    if options.only:
        cases = [case for case in cases if case["module"] == options.only]
    unknown = sorted({c["module"] for c in cases} - set(SEQUENCES) - set(WITHOUT))
    if unknown:
        print(f"kernels_torch: no sequence for {', '.join(unknown)}", file=sys.stderr)
    try:
        import torch
    except ImportError:
        print("kernels_torch: torch is not installed: nothing compared", file=sys.stderr)
        return 77
    if options.device == "cuda" and not torch.cuda.is_available():
        print("kernels_torch: torch finds no GPU: nothing compared", file=sys.stderr)
        return 77
    torch.manual_seed(1)
    rows, failed = [], 0
    print(f"{'module':<18} {'case':<24} {'us':>10} {'torch us':>10} {'factor':>7}")
    for case in cases:
        try:
            row = compare(torch, case, options.device)
        except Exception as error:  # the other sequences still count
            row = {"module": case["module"], "case": case["case"], "error": f"{type(error).__name__}: {error}"}
            failed = 1
        rows.append(row)
        show(row)
        if options.device == "cuda":
            torch.cuda.empty_cache()
    if options.out:
        device = torch.cuda.get_device_name() if options.device == "cuda" else "cpu"
        write_whole(options.out, {"torch": torch.__version__, "device": device, "cases": rows})
    return failed


if __name__ == "__main__":
    sys.exit(main())

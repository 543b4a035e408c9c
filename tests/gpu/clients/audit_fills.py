#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fills for `fallow audit` to find. torch | cupy: makes three arrays of 4 MiB of zeros, each written to
afterwards, and one of threes. check FILE: check that the report has them, with values and sizes from the launches'
arguments. Prints the findings."""
import json
import sys

import client

MIB = 1 << 20


def fill_torch():
    torch = client.need_torch()
    total = 0.0
    for _ in range(3):
        zeros = torch.zeros(MIB, device="cuda")
        zeros += 1
        total += zeros.sum().item()
    threes = torch.full((MIB,), 3.0, device="cuda")
    print("right", total == 3 * MIB and threes.sum().item() == 3 * MIB)


def fill_cupy():
    cupy = client.need("cupy")
    cupy.cuda.set_allocator(None)
    total = 0.0
    for _ in range(3):
        zeros = cupy.zeros(MIB, dtype=cupy.float32)
        zeros += 1
        total += float(zeros.sum())
    threes = cupy.full(MIB, 3, dtype=cupy.float32)
    print("right", total == 3 * MIB and float(threes.sum()) == 3 * MIB)


def check(path):
    with open(path) as file:
        report = json.load(file)
    counts = report["counts"]
    large = [site for site in report["sites"] if site["bytes"] >= 4 * MIB]
    found = sum(site["bytes"] for site in large)
    unread = sum(site["unread_value_count"] + site["unread_range_count"] for site in large)
    print("candidates of %d MiB in %s; %d fills of other values; %d of %d launches not read; %d graph launches" % (
        found // MIB, ", ".join(sorted({site["call"][:60] for site in large})) or "no call", counts["nonzero"],
        counts["unread_launches"], counts["launches"], counts["graph_launches"]))
    sys.exit(0 if found == 12 * MIB and unread == 0 and counts["nonzero"] > 0 else 1)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        client.absent("one of: torch, cupy, check FILE")
    if sys.argv[1] == "check":
        check(sys.argv[2])
    else:
        {"torch": fill_torch, "cupy": fill_cupy}[sys.argv[1]]()

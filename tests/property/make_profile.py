# SPDX-License-Identifier: Apache-2.0
#
# A real profile of PyTorch's, small enough to keep: two steps of a small model, with its stacks and its memory.
#
#   make_profile.py OUT.json.gz            (needs torch, 1.13 or later; no GPU)
#
# Only a GPU's memory is read, so each event of the host's memory is rewritten as one of device 0. Slices that enclose
# no event of memory, and fields that nothing reads, are left out; fuzz.json and property.profiles read the rest.
import gzip
import json
import os
import sys
import tempfile

import torch

SLICES = ("cpu_op", "python_function")


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(64, 256), torch.nn.Linear(256, 8)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def step(model, x, optimizer):
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def record(path):
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    cpu = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=cpu, profile_memory=True, with_stack=True) as profile:
        for _ in range(2):
            step(model, torch.randn(32, 64), optimizer)
    profile.export_chrome_trace(path)


def reduce(trace):
    events = trace["traceEvents"]
    memory = [e for e in events if e["name"] == "[memory]"]
    for event in memory:
        event["args"].update({"Device Type": 1, "Device Id": 0})
    kept = [e for e in events if e.get("cat") in SLICES and
            any(e["ts"] <= m["ts"] <= e["ts"] + e["dur"] for m in memory)]
    return {"schemaVersion": 1, "traceEvents": kept + memory}


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "profile.json")
        record(path)
        with open(path) as file:
            small = reduce(json.load(file))
    with gzip.GzipFile(sys.argv[1], "wb", mtime=0) as out:
        out.write(json.dumps(small, separators=(",", ":")).encode())


main()

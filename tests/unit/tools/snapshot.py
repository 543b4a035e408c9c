#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""snapshot.py <TEXT >PICKLE: write a PyTorch snapshot. Further pairs of keys and values may follow on each line:

    segment ADDRESS BYTES TYPE    its blocks follow
    block ADDRESS BYTES STATE
    device                        events of the next device follow
    ACTION ADDRESS BYTES          an event
    settings                      of the allocator
"""
import pickle
import re
import sys


def value(word):
    if re.fullmatch(r"\d+M?", word):
        return int(word.rstrip("M")) << (20 if word.endswith("M") else 0)
    if word[0] == "(":
        return tuple(value(each) for each in word[1:-1].split())
    return word == "True" or word.strip('"')


def main():
    snapshot = {"segments": [], "device_traces": [[]]}
    for line in sys.stdin:
        kind, *words = re.findall(r'"[^"]*"|\([^)]*\)|\S+', line)
        words = [value(word) for word in words]
        named = lambda *names: {**dict(zip(names, words)), **dict(zip(words[len(names)::2], words[len(names) + 1::2]))}
        if kind == "segment":
            snapshot["segments"].append({**named("address", "total_size", "segment_type"), "blocks": []})
        elif kind == "block":
            snapshot["segments"][-1]["blocks"].append(named("address", "size", "state"))
        elif kind == "device":
            snapshot["device_traces"].append([])
        elif kind == "settings":
            snapshot["allocator_settings"] = named()
        else:
            snapshot["device_traces"][-1].append({"action": kind, **named("addr", "size")})
    pickle.dump(snapshot, sys.stdout.buffer, 4)


if __name__ == "__main__":
    main()

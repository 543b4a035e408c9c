#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A chain of matrix products captured into graphs of several sizes that share a pool, replayed between eager work that
allocates and frees; compared with the same chain run eagerly, and printed to the bit."""
import client

SIZES = (256, 512, 384)


def main():
    torch = client.need_torch()
    weights = [torch.randn(512, 512, device="cuda") / 23 for _ in range(6)]

    def chain(rows):
        for weight in weights:
            rows = torch.tanh(rows @ weight)
        return rows

    torch.cuda.synchronize()
    warm = torch.cuda.Stream()
    with torch.cuda.stream(warm):
        for size in SIZES:
            chain(torch.ones(size, 512, device="cuda"))
    torch.cuda.synchronize()
    pool, graphs = None, []
    for size in SIZES:
        graph = torch.cuda.CUDAGraph()
        inputs = torch.zeros(size, 512, device="cuda")
        with torch.cuda.graph(graph, pool=pool):
            outputs = chain(inputs)
        pool = graph.pool()
        graphs.append((graph, inputs, outputs))
    wrong, digests = 0, []
    with client.Timer():
        for number in range(30):
            graph, inputs, outputs = graphs[number % len(SIZES)]
            fresh = torch.randn_like(inputs)
            eager = chain(fresh)
            noise = [torch.full((number + 1, 1000 * k), float("nan"), device="cuda") for k in range(1, 9)]
            del noise
            inputs.copy_(fresh)
            graph.replay()
            wrong += not torch.allclose(outputs, eager, rtol=1e-4, atol=1e-5)
            digests.append(client.tensor_digest(outputs))
            del fresh, eager
    print("%d wrong outputs, all of them %s" % (wrong, client.digest("".join(digests))))
    del graph, inputs, outputs, graphs
    torch.cuda.synchronize()
    after = chain(torch.ones(64, 512, device="cuda"))
    print("after the graphs", client.tensor_digest(after))
    client.write_stats()
    if wrong:
        raise SystemExit(1)


main()

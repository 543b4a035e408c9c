#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""200 steps of a small network with Adam: every loss, to the bit. --empty-cache: PyTorch's cache is emptied
after each step, so that its segments are freed and allocated again. FALLOW_CLIENT_FORM=mempool with --fallow: in a
torch.cuda.MemPool over Fallow instead of on it."""
import sys

import client

STEPS, WARM = 200, 20


def main():
    torch = client.need_torch()
    with client.torch_context(torch):
        train(torch)


def train(torch):
    empties = "--empty-cache" in sys.argv
    model = torch.nn.Sequential(*[layer for _ in range(4) for layer in (torch.nn.Linear(512, 512), torch.nn.GELU())],
                                torch.nn.Linear(512, 16)).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(2)
    losses = []

    def step():
        rows = int(torch.randint(64, 512, (1,), generator=generator))  # sizes vary, as they do
        inputs = torch.randn(rows, 512, generator=generator).cuda()
        targets = torch.randint(0, 16, (rows,), generator=generator).cuda()
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item().hex())
        if empties:
            torch.cuda.empty_cache()

    for _ in range(WARM):
        step()
    torch.cuda.synchronize()
    with client.Timer():
        for _ in range(STEPS - WARM):
            step()
        torch.cuda.synchronize()
    print("\n".join(losses[::20]))
    print("losses", client.digest("".join(losses)))
    print("weights", client.digest("".join(client.tensor_digest(p) for p in model.parameters())))
    if empties:  # PyTorch's own count: weights, gradients, two moments of each
        weights = sum(p.numel() * 4 for p in model.parameters())
        print("sane" if 3 * weights <= torch.cuda.memory_allocated() <= 8 * weights else "not sane")
    client.write_stats()


main()

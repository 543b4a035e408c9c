#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A tensor is freed while a kernel on another stream still has to write to it, as PyTorch without its cache
relies on cudaFree to allow; that kernel must not write to the next allocation."""
import client

ROUNDS = 50


def main():
    torch = client.need_torch()
    side = torch.cuda.Stream()
    wrong = 0
    for number in range(ROUNDS):
        torch.cuda.synchronize()
        victim = torch.empty(1 << 20, device="cuda", dtype=torch.int32)
        with torch.cuda.stream(side):
            torch.cuda._sleep(20_000_000)
            victim.fill_(-1)
        del victim  # without its cache PyTorch frees now
        fresh = torch.empty(1 << 20, device="cuda", dtype=torch.int32)
        fresh.fill_(number)
        torch.cuda.synchronize()
        wrong += int((fresh != number).sum())
    print("%d rounds, %d foreign words" % (ROUNDS, wrong))
    client.write_stats()
    if wrong:
        raise SystemExit(1)


main()

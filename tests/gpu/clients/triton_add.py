#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A Triton kernel over PyTorch tensors of many sizes."""
import client


def main():
    torch = client.need_torch()
    triton = client.need("triton")
    language = client.need("triton.language")

    @triton.jit
    def add(x, y, out, count, BLOCK: language.constexpr):
        at = language.program_id(0) * BLOCK + language.arange(0, BLOCK)
        mask = at < count
        language.store(out + at, language.load(x + at, mask=mask) + language.load(y + at, mask=mask), mask=mask)

    globals()["language"] = language  # the kernel's source names it
    wrong = 0
    with client.Timer():
        for number in range(1, 200):
            count = number * 997
            x = torch.arange(count, device="cuda", dtype=torch.int32)
            y = torch.full((count,), number, device="cuda", dtype=torch.int32)
            out = torch.empty_like(x)
            add[((count + 255) // 256,)](x, y, out, count, BLOCK=256)
            wrong += int((out != x + y).sum())
    print("%d wrong elements" % wrong)
    if wrong:
        raise SystemExit(1)


main()

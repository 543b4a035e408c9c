#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Numba: a reduction over arrays allocated and freed in turn, with the context reset in the middle. --fallow: Fallow's
memory manager."""
import client


def main():
    numpy = client.need("numpy")
    client.need("numba")
    cuda = client.need("numba.cuda")
    if not cuda.is_available():
        client.absent("numba finds no CUDA device")
    if client.is_plugged:
        import fallow

        fallow.enable_numba()

    def work():
        @cuda.reduce
        def add(a, b):
            return a + b

        @cuda.jit  # again: the module was unloaded with the context
        def scale(values, factor):
            i = cuda.grid(1)
            if i < values.size:
                values[i] *= factor

        total = 0
        for number in range(1, 60):
            host = numpy.arange(number * 1000, dtype=numpy.int64)
            values = cuda.to_device(host)
            scale[(host.size + 127) // 128, 128](values, number)
            total += int(add(values))
        return total

    expected = sum(number * (number * 1000) * (number * 1000 - 1) // 2 for number in range(1, 60))
    with client.Timer():
        print("before the reset", work() == expected)
        cuda.current_context().reset()
        print("after the reset", work() == expected)
    client.write_stats()


main()

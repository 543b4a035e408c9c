#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CuPy without its own pool: a transform, a sort and a product against NumPy, and 8 threads with a stream
each. --fallow: on fallow.enable_cupy()."""
import threading

import client


def main():
    numpy = client.need("numpy")
    cupy = client.need("cupy")
    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        client.absent("cupy finds no device: %s" % error)
    if client.is_plugged:
        import fallow

        fallow.enable_cupy()
    else:
        cupy.cuda.set_allocator(None)
    random = numpy.random.default_rng(1)
    values = random.standard_normal((300, 257)).astype(numpy.float32)
    ours = cupy.fft.fft(cupy.asarray(values)).get()
    print("fft", bool(numpy.allclose(ours, numpy.fft.fft(values), rtol=1e-3, atol=1e-3)), client.digest(ours.tobytes()))
    ours = cupy.sort(cupy.asarray(values), axis=1).get()
    print("sort", bool((ours == numpy.sort(values, axis=1)).all()), client.digest(ours.tobytes()))
    ours = (cupy.asarray(values) @ cupy.asarray(values.T)).get()
    print("product", bool(numpy.allclose(ours, values @ values.T, rtol=1e-2, atol=1e-2)), client.digest(ours.tobytes()))
    results = [None] * 8

    def work(number):
        with cupy.cuda.Stream(non_blocking=True) as stream:
            total = cupy.zeros(1 << 16, dtype=cupy.int64)
            for k in range(200):
                part = cupy.arange(1 << 16, dtype=cupy.int64) * (number + k)
                total += part
                del part  # in use by the stream still
            stream.synchronize()
            results[number] = int(total.sum())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    with client.Timer():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    whole = (1 << 16) * ((1 << 16) - 1) // 2
    expected = [whole * sum(number + k for k in range(200)) for number in range(8)]
    print("threads", results == expected)
    client.write_stats()
    if results != expected:
        raise SystemExit(1)


main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""JAX, one driver allocation a buffer (XLA_PYTHON_CLIENT_ALLOCATOR=platform): the gradient of a scan, against
the CPU backend."""
import client


def main():
    jax = client.need("jax")
    numpy = client.need("numpy")
    try:
        gpu = jax.devices("cuda")[0]
    except RuntimeError as error:
        client.absent("jax finds no CUDA device: %s" % error)

    def loss(weights, inputs):
        def step(state, row):
            state = jax.numpy.tanh(state @ weights + row)
            return state, state.sum()

        _, sums = jax.lax.scan(step, jax.numpy.zeros(256), inputs)
        return sums.mean()

    random = numpy.random.default_rng(1)
    weights = random.standard_normal((256, 256)).astype(numpy.float32) / 16
    answers = []
    with client.Timer():
        for rows in (16, 64, 33, 128):
            inputs = random.standard_normal((rows, 256)).astype(numpy.float32)
            results = []
            for device in (gpu, jax.devices("cpu")[0]):
                with jax.default_device(device), jax.default_matmul_precision("highest"):
                    results.append(numpy.asarray(jax.jit(jax.grad(loss))(weights, inputs)))
            answers.append(bool(numpy.allclose(results[0], results[1], rtol=1e-3, atol=1e-4)))
    print("gradients as on the CPU:", answers)
    if not all(answers):
        raise SystemExit(1)


main()

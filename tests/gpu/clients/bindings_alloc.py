#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's Python bindings of the driver: blocks allocated and freed in turn, and an entry point looked up."""
import client


def main():
    try:
        driver = client.need("cuda.bindings.driver")
    except SystemExit:
        driver = client.need("cuda.cuda")

    client.give_contents()

    def must(answer):
        if int(answer[0]) != 0:
            raise SystemExit("a call answered %r" % (answer[0],))
        return answer[1] if len(answer) == 2 else answer[1:]

    answer = driver.cuInit(0)
    if int(answer[0]) != 0:
        client.absent("cuInit answered %r" % (answer[0],))
    device = must(driver.cuDeviceGet(0))
    must(driver.cuCtxSetCurrent(must(driver.cuDevicePrimaryCtxRetain(device))))
    blocks, wrong = {}, 0
    for number in range(1, 500):
        place = number * 7 % 13
        if place in blocks:
            pointer, size, value = blocks.pop(place)
            back = bytearray(size)
            must(driver.cuMemcpyDtoH(back, pointer, size))
            wrong += back != bytes([value]) * size
            must(driver.cuMemFree(pointer))
        size = number * 37
        pointer = must(driver.cuMemAlloc(size))
        must(driver.cuMemsetD8(pointer, number % 251, size))
        blocks[place] = (pointer, size, number % 251)
    for pointer, _, _ in blocks.values():
        must(driver.cuMemFree(pointer))
    found = driver.cuGetProcAddress(b"cuMemAlloc", 12000, 0)
    print("%d wrong blocks, cuMemAlloc is %s" % (wrong, "found" if int(found[0]) == 0 else "not found"))
    if wrong:
        raise SystemExit(1)


main()

/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/audit/fillkernel.h"

#include <string.h>

#define NOWHERE 0xff /* the parameter cannot be read at a fixed place */

struct flw_fillkernel {
    const char *part, *also, *without; /* of the mangled name; NULL: any, none */
    uint8_t pointer;                   /* this parameter begins with the address */
    uint8_t count;                     /* elements: the parameter, and the offset in it */
    uint8_t count_offset;
    uint8_t value; /* the parameter is the value: one element */
};

/* The first match applies. Their parameters:
 *   PyTorch   (int count, FillFunctor{value}, {char *data}, ...); tensors that are not contiguous have
 *             the pointer inside a function object of no fixed layout, and a store that casts has
 *             elements of another size than the value
 *   CuPy      (value, {data, count, shape, strides}, indexer)
 *   ggml      (data, int64 count, value)
 *   XLA       a broadcast with nothing to read: the value is in the code */
static const struct flw_fillkernel kernels[] = {
    {"FillFunctor", "vectorized_elementwise_kernel", NULL, 2, 0, 0, 1},
    {"FillFunctor", "unrolled_elementwise_kernel", "WithCast", 2, 0, 0, 1},
    {"FillFunctor", NULL, NULL, NOWHERE, NOWHERE, 0, NOWHERE},
    {"cupy_fill", NULL, NULL, 1, 1, 8, 0},
    {"11fill_kernelI", NULL, NULL, 0, 1, 0, 2},
    {"wrapped_broadcast", NULL, NULL, NOWHERE, NOWHERE, 0, NOWHERE},
    {"loop_broadcast_fusion", NULL, NULL, NOWHERE, NOWHERE, 0, NOWHERE},
};

#define KERNEL_COUNT (sizeof kernels / sizeof *kernels)

const struct flw_fillkernel *flw_fillkernel_find(const char *name)
{
    for (size_t i = 0; i < KERNEL_COUNT; i++) {
        const struct flw_fillkernel *kernel = &kernels[i];
        if (strstr(name, kernel->part) != NULL &&
            (kernel->also == NULL || strstr(name, kernel->also) != NULL) &&
            (kernel->without == NULL || strstr(name, kernel->without) == NULL)) {
            return kernel;
        }
    }
    return NULL;
}

/* Read a number of 4 or 8 bytes at the end of the parameter or inside it. */
static bool read_number(const struct flw_parameter *parameter, size_t offset, uint64_t *out_value)
{
    uint32_t narrow;
    if (parameter->bytes >= offset + sizeof *out_value) {
        memcpy(out_value, parameter->at + offset, sizeof *out_value);
        return true;
    }
    if (parameter->bytes == offset + sizeof narrow) {
        memcpy(&narrow, parameter->at + offset, sizeof narrow);
        *out_value = narrow;
        return true;
    }
    return false;
}

static bool is_zero(const struct flw_parameter *parameter)
{
    for (size_t i = 0; i < parameter->bytes; i++) {
        if (parameter->at[i] != 0) {
            return false;
        }
    }
    return true;
}

struct flw_fillkernel_reading flw_fillkernel_read(const struct flw_fillkernel *kernel,
                                                  const struct flw_parameter *parameters,
                                                  uint32_t count)
{
    struct flw_fillkernel_reading reading = {0};
    uint64_t address, elements;
    if (kernel->pointer == NOWHERE || kernel->pointer >= count || kernel->count >= count ||
        kernel->value >= count || parameters[kernel->pointer].bytes < sizeof address ||
        parameters[kernel->value].bytes == 0 || parameters[kernel->value].bytes > 16 ||
        !read_number(&parameters[kernel->pointer], 0, &address) ||
        !read_number(&parameters[kernel->count], kernel->count_offset, &elements) ||
        elements > UINT64_MAX >> 8) {
        return reading;
    }
    reading.address = address;
    reading.bytes = elements * parameters[kernel->value].bytes;
    reading.is_value_read = true;
    reading.is_zero = is_zero(&parameters[kernel->value]);
    return reading;
}

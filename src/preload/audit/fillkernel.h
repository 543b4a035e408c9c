/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: kernels of frameworks that only fill memory, known by name, and how to read address, size
 * and value from their arguments.
 * Does not: find blocks; call the driver. */
#ifndef FLW_PRELOAD_AUDIT_FILLKERNEL_H
#define FLW_PRELOAD_AUDIT_FILLKERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FLW_PARAMETERS_MAX 96

/* A kernel's parameter, as stored in the caller's memory. */
struct flw_parameter {
    const unsigned char *at;
    size_t bytes;
};

struct flw_fillkernel;

struct flw_fillkernel_reading {
    uint64_t address; /* 0: not read; use the one block that the arguments point into */
    uint64_t bytes;   /* 0: not read */
    bool is_value_read, is_zero;
};

/* Return the fill kernel with this name; NULL: unknown. */
const struct flw_fillkernel *flw_fillkernel_find(const char *name);

/* Read the arguments; nothing if they do not have the layout that the name implies. */
struct flw_fillkernel_reading flw_fillkernel_read(const struct flw_fillkernel *kernel,
                                                  const struct flw_parameter *parameters,
                                                  uint32_t count);

#endif

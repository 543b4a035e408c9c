/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a C twin's access to device memory: element by element, through the simulated device's
 * accessors, so that reads of unwritten bytes are reported with kernel, argument and offset.
 * Independent of a kernel.
 *
 * A twin is the definition of the kernel: one thread, written to be read, in ascending order. It
 * never dereferences a device pointer; `name` is the argument's in reports. */
#ifndef FLW_KERNELS_TWIN_H
#define FLW_KERNELS_TWIN_H

#include <stdbool.h>

#include "common/integer.h"
#include "common/kernel_list.h"
#include "common/number.h"
#include "fallow/extend.h"
#include "fallow/kernels.h"
#include "fallow/simcuda.h"

struct flw_twin {
    flw_sim_launch *launch;
    flw_sim_load_function load;
    flw_sim_store_function store;
};

/* Set the simulated driver's flw_sim_load and flw_sim_store, of which a process has one. False: one is
 * NULL. */
bool flw_twin_set_accessors(void *load, void *store);
void flw_twin_begin(struct flw_twin *twin, flw_sim_launch *launch);

#define X(name) void flw_twin_##name(struct flw_twin *twin, const struct flw_##name##_args *args);
FLW_KERNEL_LIST(X)
#undef X

/* ---- ranges of bytes */

static inline void flw_load(struct flw_twin *twin, const char *name, const void *base,
                            int64_t byte_offset, void *to, size_t bytes)
{
    twin->load(twin->launch, name, to, (uint64_t)(uintptr_t)base + (uint64_t)byte_offset, bytes);
}

static inline void flw_store(struct flw_twin *twin, const char *name, void *base,
                             int64_t byte_offset, const void *from, size_t bytes)
{
    twin->store(twin->launch, name, (uint64_t)(uintptr_t)base + (uint64_t)byte_offset, from, bytes);
}

/* ---- one element */

static inline int32_t flw_load_i32(struct flw_twin *twin, const char *name, const int32_t *base,
                                   int64_t i)
{
    int32_t value;
    flw_load(twin, name, base, i * 4, &value, sizeof value);
    return value;
}

static inline void flw_store_i32(struct flw_twin *twin, const char *name, int32_t *base, int64_t i,
                                 int32_t value)
{
    flw_store(twin, name, base, i * 4, &value, sizeof value);
}

/* Load an optional scalar on the device. */
static inline int32_t flw_load_scalar(struct flw_twin *twin, const char *name, const int32_t *base,
                                      int32_t absent)
{
    return base == NULL ? absent : flw_load_i32(twin, name, base, 0);
}

/* I32 or I64. */
static inline int64_t flw_load_int(struct flw_twin *twin, const char *name, const void *base,
                                   int64_t i, fallow_dtype dtype)
{
    int64_t wide = 0;
    if (dtype == FALLOW_I32) {
        return flw_load_i32(twin, name, base, i);
    }
    flw_load(twin, name, base, i * 8, &wide, sizeof wide);
    return wide;
}

static inline void flw_store_int(struct flw_twin *twin, const char *name, void *base, int64_t i,
                                 fallow_dtype dtype, int64_t value)
{
    if (dtype == FALLOW_I32) {
        flw_store_i32(twin, name, base, i, (int32_t)value);
    } else {
        flw_store(twin, name, base, i * 8, &value, sizeof value);
    }
}

/* F32, F16, BF16 or E4M3. */
static inline float flw_load_float(struct flw_twin *twin, const char *name, const void *base,
                                   int64_t i, fallow_dtype dtype)
{
    unsigned char raw[4] = {0};
    size_t bytes = fallow_dtype_bytes(dtype);
    flw_load(twin, name, base, i * (int64_t)bytes, raw, bytes);
    return flw_number_widen(raw, dtype);
}

/* Round to nearest, ties to even; E4M3 saturates. */
static inline void flw_store_float(struct flw_twin *twin, const char *name, void *base, int64_t i,
                                   fallow_dtype dtype, float value)
{
    unsigned char raw[4] = {0};
    size_t bytes = fallow_dtype_bytes(dtype);
    flw_number_narrow(raw, dtype, value);
    flw_store(twin, name, base, i * (int64_t)bytes, raw, bytes);
}

/* OR bits into an optional flags word; nothing is accessed without bits. */
static inline void flw_raise_flags(struct flw_twin *twin, int32_t *flags, int32_t bits)
{
    if (flags != NULL && bits != 0) {
        flw_store_i32(twin, "flags", flags, 0, flw_load_i32(twin, "flags", flags, 0) | bits);
    }
}

#endif

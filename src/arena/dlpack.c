/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a region as a DLPack tensor. The structures are DLPack 1.0's, declared here so that no header
 * of its is needed.
 */
#include <stdlib.h>

#include "arena/arena.h"

enum {
    DEVICE_CUDA = 2,
    MAJOR_VERSION = 1,
    DIMENSIONS_MOST = 8
};

struct dl_tensor {
    void *data;
    struct {
        int32_t type, id;
    } device;
    int32_t dimensions;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
};

struct DLManagedTensorVersioned {
    struct {
        uint32_t major, minor;
    } version;
    void *manager;
    void (*deleter)(struct DLManagedTensorVersioned *self);
    uint64_t flags;
    struct dl_tensor tensor;
};

struct export
{
    struct DLManagedTensorVersioned managed;
    fallow_lease *lease;
    int64_t shape[DIMENSIONS_MOST], strides[DIMENSIONS_MOST];
};

static void delete (struct DLManagedTensorVersioned *self)
{
    struct export *export = (struct export *)self->manager;
    flw_lease_drop(export->lease);
    free(export);
}

/* Bytes from the first element to the end of the last; false: beyond 62 bits, or below the first. */
static bool measure(const struct export *export, int dimensions, uint64_t element_bytes,
                    uint64_t *out_bytes)
{
    uint64_t last = 0;
    for (int i = 0; i < dimensions; i++) {
        if (export->shape[i] < 0 || export->strides[i] < 0) {
            return false;
        }
        if (export->shape[i] == 0) {
            *out_bytes = 0;
            return true;
        }
        uint64_t steps = (uint64_t) export->shape[i] - 1, reach = 0;
        if (__builtin_mul_overflow(steps, (uint64_t) export->strides[i], &reach) ||
            __builtin_add_overflow(last, reach, &last)) {
            return false;
        }
    }
    return !__builtin_mul_overflow(last + 1, element_bytes, out_bytes) && *out_bytes < (uint64_t)1
                                                                                           << 62;
}

static bool fill_strides(struct export *export, const int64_t *strides, int dimensions)
{
    int64_t step = 1;
    for (int i = dimensions; i-- > 0;) {
        export->strides[i] = strides != NULL ? strides[i] : step;
        if (__builtin_mul_overflow(step, export->shape[i] < 1 ? 1 : export->shape[i], &step)) {
            return false;
        }
    }
    return true;
}

fallow_status fallow_lease_export(fallow_lease *lease, size_t index, const int64_t *shape,
                                  const int64_t *strides, int dimensions, uint8_t dtype_code,
                                  uint8_t dtype_bits, uint64_t byte_offset,
                                  struct DLManagedTensorVersioned **out_tensor)
{
    uint64_t bytes = 0;
    if (out_tensor == NULL) {
        return FALLOW_INVALID_ARGUMENT;
    }
    *out_tensor = NULL;
    void *address = fallow_lease_region_at(lease, index);
    if (address == NULL || dimensions < 0 || dimensions > DIMENSIONS_MOST ||
        (dimensions > 0 && shape == NULL) || dtype_bits == 0 || dtype_bits % 8 != 0) {
        return FALLOW_INVALID_ARGUMENT;
    }
    size_t room = lease->layout->regions[index].region.size_bytes;
    struct export *export = calloc(1, sizeof *export);
    if (export == NULL) {
        return FALLOW_OUT_OF_HOST_MEMORY;
    }
    for (int i = 0; i < dimensions; i++) {
        export->shape[i] = shape[i];
    }
    if (!fill_strides(export, strides, dimensions) ||
        !measure(export, dimensions, dtype_bits / 8u, &bytes) || byte_offset > room ||
        bytes > room - byte_offset) {
        free(export);
        return flw_arena_refuse(lease->arena, FALLOW_INVALID_ARGUMENT,
                                "a tensor of %llu bytes at %llu leaves region '%s' of %zu bytes",
                                (unsigned long long)bytes, (unsigned long long)byte_offset,
                                lease->layout->regions[index].region.name, room);
    }
    export->lease = lease;
    export->managed = (struct DLManagedTensorVersioned){
        .version = {MAJOR_VERSION, 0},
        .manager = export,
        .deleter = delete,
        .tensor = {.data = address,
                   .device = {DEVICE_CUDA, lease->arena->pool->device},
                   .dimensions = dimensions,
                   .dtype = {dtype_code, dtype_bits, 1},
                   .shape = export->shape,
                   .strides = export->strides,
                   .byte_offset = byte_offset}};
    atomic_fetch_add_explicit(&lease->references, 1, memory_order_relaxed);
    *out_tensor = &export->managed;
    return FALLOW_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a region as a DLPack tensor. The structures are DLPack 1.0's, declared here so that the
 * header is not needed. */
#include <stdlib.h>

#include "arena/arena.h"

enum {
    DEVICE_CUDA = 2,
    MAJOR_VERSION = 1,
    LAST_CODE_OF_1_0 = 6,
    FLOAT4_CODE = 17,
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

/* The form before 1.0. */
struct DLManagedTensor {
    struct dl_tensor tensor;
    void *manager;
    void (*deleter)(struct DLManagedTensor *self);
};

/* Addresses and shape: nothing of the lease, which may end before. */
struct flw_export {
    struct DLManagedTensorVersioned managed;
    int64_t shape[DIMENSIONS_MOST], strides[DIMENSIONS_MOST];
};

static void drop_export(struct DLManagedTensorVersioned *self)
{
    free(self->manager);
}

/* Bytes from the first element to the end of the last; false: beyond 62 bits, or below the first. */
static bool measure(const struct flw_export *exported, int dimensions, uint64_t element_bytes,
                    uint64_t *out_bytes)
{
    uint64_t last = 0;
    bool is_empty = false;
    *out_bytes = 0;
    for (int i = 0; i < dimensions; i++) {
        if (exported->shape[i] < 0 || exported->strides[i] < 0) {
            return false;
        }
        is_empty |= exported->shape[i] == 0;
    }
    for (int i = 0; !is_empty && i < dimensions; i++) {
        uint64_t steps = (uint64_t)exported->shape[i] - 1, reach = 0;
        if (__builtin_mul_overflow(steps, (uint64_t)exported->strides[i], &reach) ||
            __builtin_add_overflow(last, reach, &last)) {
            return false;
        }
    }
    return is_empty || (last < (uint64_t)1 << 62 &&
                        !__builtin_mul_overflow(last + 1, element_bytes, out_bytes) &&
                        *out_bytes <= (uint64_t)1 << 62);
}

static bool fill_strides(struct flw_export *exported, const int64_t *strides, int dimensions)
{
    int64_t step = 1;
    for (int i = dimensions; i-- > 0;) {
        int64_t rows = exported->shape[i] < 1 ? 1 : exported->shape[i];
        exported->strides[i] = strides != NULL ? strides[i] : step;
        if (strides == NULL && __builtin_mul_overflow(step, rows, &step)) {
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
    uint16_t lanes = dtype_code == FLOAT4_CODE ? 2 : 1; /* a pair in a byte */
    if (out_tensor == NULL) {
        return FALLOW_INVALID_ARGUMENT;
    }
    *out_tensor = NULL;
    char *address = fallow_lease_region_at(lease, index);
    fallow_arena *arena = flw_lease_arena(lease);
    if (arena != NULL && flw_pool_of(arena->handle) == NULL) {
        return FALLOW_INVALID_POOL;
    }
    if (address == NULL || arena == NULL || dimensions < 0 || dimensions > DIMENSIONS_MOST ||
        (dimensions > 0 && shape == NULL) || dtype_bits == 0 || dtype_bits * lanes % 8 != 0) {
        return FALLOW_INVALID_ARGUMENT;
    }
    uint64_t element_bytes = dtype_bits * lanes / 8u;
    const fallow_region *region = &arena->lease.layout->regions[index].region;
    struct flw_export *exported = calloc(1, sizeof *exported);
    if (exported == NULL) {
        return FALLOW_OUT_OF_HOST_MEMORY;
    }
    for (int i = 0; i < dimensions; i++) {
        exported->shape[i] = shape[i];
    }
    if (!fill_strides(exported, strides, dimensions) ||
        !measure(exported, dimensions, element_bytes, &bytes) || byte_offset > region->size_bytes ||
        bytes > region->size_bytes - byte_offset) {
        free(exported);
        return flw_arena_refuse(
            arena, FALLOW_INVALID_ARGUMENT,
            "a tensor of %llu bytes at offset %llu exceeds region '%s' of %zu bytes",
            (unsigned long long)bytes, (unsigned long long)byte_offset, region->name,
            region->size_bytes);
    }
    if (((uintptr_t)address + byte_offset) % element_bytes != 0) {
        free(exported);
        return flw_arena_refuse(arena, FALLOW_INVALID_ARGUMENT,
                                "a tensor at %llu of region '%s' is not aligned to its elements of "
                                "%llu bytes",
                                (unsigned long long)byte_offset, region->name,
                                (unsigned long long)element_bytes);
    }
    exported->managed = (struct DLManagedTensorVersioned){
        .version = {MAJOR_VERSION, dtype_code > LAST_CODE_OF_1_0},
        .manager = exported,
        .deleter = drop_export,
        .tensor = {.data = address + byte_offset, /* not all read byte_offset */
                   .device = {DEVICE_CUDA, arena->pool->device},
                   .dimensions = dimensions,
                   .dtype = {dtype_code, dtype_bits, lanes},
                   .shape = exported->shape,
                   .strides = exported->strides}};
    *out_tensor = &exported->managed;
    return FALLOW_OK;
}

static void drop_unversioned(struct DLManagedTensor *self)
{
    struct DLManagedTensorVersioned *versioned = self->manager;
    free(self);
    versioned->deleter(versioned);
}

struct DLManagedTensor *fallow_export_unversioned(struct DLManagedTensorVersioned *tensor)
{
    struct DLManagedTensor *unversioned = tensor == NULL ? NULL : malloc(sizeof *unversioned);
    if (unversioned != NULL) {
        *unversioned = (struct DLManagedTensor){
            .tensor = tensor->tensor, .manager = tensor, .deleter = drop_unversioned};
    }
    return unversioned;
}

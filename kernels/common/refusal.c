/* SPDX-License-Identifier: Apache-2.0 */
#include "common/refusal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/library.h"

#define LARGEST_PRODUCT ((int64_t)1 << 62)

static const char *dtype_name(fallow_dtype dtype)
{
    static const char *const names[] = {"I32", "I64", "U8", "F32", "F16", "BF16", "E4M3"};
    return (unsigned)dtype < sizeof names / sizeof *names ? names[dtype] : "no dtype";
}

void flw_refusal_begin(struct flw_refusal *refusal, fallow_kernels *kernels, const char *call)
{
    *refusal = (struct flw_refusal){.call = call};
    if (kernels == NULL) {
        flw_refusal_refuse(refusal, FALLOW_INVALID_ARGUMENT, "kernels is NULL");
    }
}

void flw_refusal_begin_query(struct flw_refusal *refusal, const char *call)
{
    *refusal = (struct flw_refusal){.call = call, .is_query = true};
}

void flw_refusal_refuse(struct flw_refusal *refusal, fallow_status status, const char *format, ...)
{
    if (refusal->status != FALLOW_OK) {
        return;
    }
    refusal->status = status;
    char reason[200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    flw_kernels_refuse("%s: %s", refusal->call, reason);
}

void flw_refusal_copy(struct flw_refusal *refusal, void *to, size_t bytes, const void *caller)
{
    size_t given = 0;
    memset(to, 0, bytes);
    if (caller == NULL) {
        flw_refusal_refuse(refusal, FALLOW_INVALID_ARGUMENT, "params is NULL");
        return;
    }
    memcpy(&given, caller, sizeof given);
    if (given < sizeof given || given > 4096) {
        flw_refusal_refuse(refusal, FALLOW_INVALID_ARGUMENT,
                           "params.struct_size is %zu: call fallow_..._params_init first", given);
        return;
    }
    for (size_t i = bytes; i < given; i++) {
        if (((const unsigned char *)caller)[i] != 0) {
            flw_refusal_refuse(refusal, FALLOW_VERSION,
                               "params sets a field that this version does not support");
            return;
        }
    }
    memcpy(to, caller, given < bytes ? given : bytes);
}

void flw_refusal_count(struct flw_refusal *refusal, const char *name, int64_t value, int64_t least,
                       int64_t most)
{
    if (value < least || value > most) {
        flw_refusal_refuse(refusal, FALLOW_INVALID_ARGUMENT, "%s is %lld, outside %lld to %lld",
                           name, (long long)value, (long long)least, (long long)most);
    }
}

void flw_refusal_dtype(struct flw_refusal *refusal, const char *name, fallow_dtype value,
                       uint32_t allowed)
{
    if ((unsigned)value >= 32 || (allowed >> (unsigned)value & 1u) == 0) {
        flw_refusal_refuse(refusal, FALLOW_INVALID_ARGUMENT,
                           "%s is %s (%d), a type that this kernel does not support", name,
                           dtype_name(value), (int)value);
    }
}

void flw_refusal_out_dtype(struct flw_refusal *refusal, fallow_dtype *out_dtype, fallow_dtype dtype)
{
    uint32_t own = (unsigned)dtype < 32 ? 1u << (unsigned)dtype : 0;
    *out_dtype = *out_dtype == FALLOW_I32 ? dtype : *out_dtype;
    flw_refusal_dtype(refusal, "out_dtype", *out_dtype,
                      own | ((own & FLW_DTYPES_FLOATS) != 0 ? 1u << FALLOW_E4M3 : 0));
}

int64_t flw_refusal_product(struct flw_refusal *refusal, const char *name, int64_t a, int64_t b)
{
    if (a < 0 || b < 0 || (a != 0 && b > LARGEST_PRODUCT / a)) {
        flw_refusal_refuse(refusal, FALLOW_INVALID_ARGUMENT, "%s: %lld x %lld is beyond 2^62", name,
                           (long long)a, (long long)b);
        return 0;
    }
    return a * b;
}

uint64_t flw_refusal_rows(struct flw_refusal *refusal, const char *name, int64_t rows,
                          int64_t stride, int64_t width, size_t element_bytes)
{
    if (rows <= 0) {
        return 0;
    }
    int64_t before = flw_refusal_product(refusal, name, rows - 1, stride);
    return (uint64_t)flw_refusal_product(refusal, name, before + width, (int64_t)element_bytes);
}

static void add_extent(struct flw_refusal *refusal, struct flw_extent extent, uint64_t bytes,
                       size_t align_bytes)
{
    if (refusal->is_query || bytes == 0) {
        return;
    }
    if (extent.begin == 0) {
        flw_refusal_refuse(refusal, FALLOW_INVALID_ARGUMENT, "%s is NULL", extent.name);
    } else if (extent.begin % align_bytes != 0) {
        flw_refusal_refuse(refusal, FALLOW_INVALID_ARGUMENT, "%s is not aligned to %zu bytes",
                           extent.name, align_bytes);
    } else if (bytes > UINT64_MAX - extent.begin) {
        flw_refusal_refuse(refusal, FALLOW_INVALID_ARGUMENT, "%s ends beyond the address space",
                           extent.name);
    } else if (refusal->extent_count == FLW_REFUSAL_EXTENTS) {
        flw_refusal_refuse(refusal, FALLOW_NOT_SUPPORTED, "too many buffers to check");
    } else if (refusal->status == FALLOW_OK) {
        extent.end = extent.begin + bytes;
        refusal->extents[refusal->extent_count++] = extent;
    }
}

void flw_refusal_input(struct flw_refusal *refusal, const char *name, const void *pointer,
                       uint64_t bytes, size_t align_bytes)
{
    add_extent(refusal, (struct flw_extent){.name = name, .begin = (uintptr_t)pointer}, bytes,
               align_bytes);
}

void flw_refusal_output_alias(struct flw_refusal *refusal, const char *name, const void *pointer,
                              uint64_t bytes, size_t align_bytes, const char *alias)
{
    add_extent(refusal,
               (struct flw_extent){
                   .name = name, .alias = alias, .begin = (uintptr_t)pointer, .is_output = true},
               bytes, align_bytes);
}

void flw_refusal_output(struct flw_refusal *refusal, const char *name, const void *pointer,
                        uint64_t bytes, size_t align_bytes)
{
    flw_refusal_output_alias(refusal, name, pointer, bytes, align_bytes, NULL);
}

void flw_refusal_optional_input(struct flw_refusal *refusal, const char *name, const void *pointer,
                                uint64_t bytes, size_t align_bytes)
{
    flw_refusal_input(refusal, name, pointer, pointer != NULL ? bytes : 0, align_bytes);
}

void flw_refusal_optional_output(struct flw_refusal *refusal, const char *name, const void *pointer,
                                 uint64_t bytes, size_t align_bytes)
{
    flw_refusal_output(refusal, name, pointer, pointer != NULL ? bytes : 0, align_bytes);
}

/* True if these two overlapping extents may be the same memory. */
static bool may_share(const struct flw_extent *a, const struct flw_extent *b)
{
    const struct flw_extent *output = a->is_output ? a : b, *input = a->is_output ? b : a;
    return !input->is_output && output->alias != NULL && output->begin == input->begin &&
           strcmp(output->alias, input->name) == 0;
}

fallow_status flw_refusal_status(struct flw_refusal *refusal)
{
    for (int i = 0; i < refusal->extent_count; i++) {
        for (int j = i + 1; j < refusal->extent_count; j++) {
            const struct flw_extent *a = &refusal->extents[i], *b = &refusal->extents[j];
            if ((a->is_output || b->is_output) && a->begin < b->end && b->begin < a->end &&
                !may_share(a, b)) {
                flw_refusal_refuse(refusal, FALLOW_INVALID_ARGUMENT,
                                   "%s and %s overlap; one of them is written", a->name, b->name);
            }
        }
    }
    return refusal->status;
}

fallow_status flw_refusal_give_need(struct flw_refusal *refusal, fallow_workspace_need *out_need,
                                    const fallow_workspace_need *need)
{
    fallow_workspace_need old = {0};
    if (out_need == NULL) {
        flw_refusal_refuse(refusal, FALLOW_INVALID_ARGUMENT, "out_need is NULL");
        return refusal->status;
    }
    flw_refusal_copy(refusal, &old, sizeof old, out_need);
    if (refusal->status == FALLOW_OK) {
        size_t given = old.struct_size;
        memcpy(out_need, need, given < sizeof *need ? given : sizeof *need);
        out_need->struct_size = given;
    }
    return refusal->status;
}

void flw_need_add(fallow_workspace_need *need, const char *name, uint64_t bytes, size_t align_bytes,
                  fallow_init_class init)
{
    if (need->output_count < FALLOW_NEED_OUTPUTS) {
        need->outputs[need->output_count++] = (fallow_output_need){
            .name = name, .bytes = (size_t)bytes, .align_bytes = align_bytes, .init = init};
    }
}

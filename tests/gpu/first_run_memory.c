/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the questions about addresses: of entry points, of memory, before and after a reset.
 */
#include "first_run.h"

#include <stdio.h>
#include <string.h>

#include "preload/hook_list.h"

/* 2. Is the exported symbol the function that cuGetProcAddress gives? */
static const struct {
    const char *symbol, *base;
    int since;
} hooked[] = {
#define X(symbol, base, since, parameters, arguments) {#symbol, #base, since},
    FLW_HOOK_LIST(X)
#undef X
};

static bool ends_with(const char *text, const char *tail)
{
    size_t length = strlen(text), tail_length = strlen(tail);
    return length >= tail_length && strcmp(text + length - tail_length, tail) == 0;
}

void check_addresses(struct bed *bed)
{
    unsigned same = 0, different = 0, absent = 0;
    if (bed->cu->cuGetProcAddress_v2 == NULL) {
        answer("2", "this driver has no cuGetProcAddress_v2");
        return;
    }
    for (size_t i = 0; i < sizeof hooked / sizeof *hooked; i++) {
        void *exported = flw_driver_entry(bed->cu, hooked[i].symbol), *given = NULL;
        CUdriverProcAddressQueryResult status;
        bool is_twin = ends_with(hooked[i].symbol, "_ptsz") || ends_with(hooked[i].symbol, "_ptds");
        CUresult result = bed->cu->cuGetProcAddress_v2(hooked[i].base, &given, hooked[i].since,
                                                       is_twin ? 2 : 1, &status);
        if (result != CUDA_SUCCESS || given == NULL || exported == NULL) {
            absent++;
            answer("2", "%s: exported %s, given for %s %d %s", hooked[i].symbol,
                   exported != NULL ? "yes" : "no", hooked[i].base, hooked[i].since,
                   given != NULL ? "yes" : "no");
        } else if (exported == given) {
            same++;
        } else {
            different++;
            answer("2", "%s: exported and given at different addresses", hooked[i].symbol);
        }
    }
    answer("2", "of %zu hooked names %u have one address, %u two, %u lack one of them",
           sizeof hooked / sizeof *hooked, same, different, absent);
}

/* ---- 9 */

typedef CUresult (*attributes_function)(unsigned count, CUpointer_attribute *attributes,
                                        void **data, CUdeviceptr pointer);

static void ask_attributes(struct bed *bed, CUdeviceptr pointer, const char *what)
{
    attributes_function ask;
    void *entry = flw_driver_entry(bed->cu, "cuPointerGetAttributes");
    unsigned type = 77;
    CUdeviceptr start = 0;
    size_t size = 0;
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                        (CUpointer_attribute)11 /* RANGE_START_ADDR */,
                                        (CUpointer_attribute)12 /* RANGE_SIZE */};
    void *data[] = {&type, &start, &size};
    if (entry == NULL) {
        answer("9a", "no cuPointerGetAttributes");
        return;
    }
    memcpy(&ask, &entry, sizeof ask);
    CUresult result = ask(3, attributes, data, pointer);
    CUresult one = bed->cu->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer);
    answer("9a",
           "%s: cuPointerGetAttributes %s, memory type %u, range of %zu bytes; "
           "cuPointerGetAttribute %s",
           what, bed_name(bed, result), type, size, bed_name(bed, one));
}

void check_pointers(struct bed *bed)
{
    CUdeviceptr pointer, next;
    bool is_aligned = true, is_large_aligned = true;
    MUST(cuMemAlloc_v2(&pointer, 3 * MIB));
    ask_attributes(bed, pointer, "a live pointer");
    MUST(cuMemFree_v2(pointer));
    ask_attributes(bed, pointer, "a freed pointer");
    for (size_t bytes = 1; bytes <= 64 * MIB; bytes *= 2) {
        MUST(cuMemAlloc_v2(&pointer, bytes));
        MUST(cuMemAlloc_v2(&next, bytes));
        size_t seen = 0;
        CUdeviceptr base = 0;
        CUresult range = bed->cu->cuMemGetAddressRange_v2(&base, &seen, pointer);
        answer(
            "9b",
            "two blocks of %zu bytes: at %#llx and %lld bytes on; cuMemGetAddressRange %s says %zu",
            bytes, (unsigned long long)pointer, (long long)(next - pointer), bed_name(bed, range),
            seen);
        is_aligned &= pointer % 256 == 0 && next % 256 == 0;
        is_large_aligned &= bytes < 2 * MIB || (pointer % (2 * MIB) == 0 && next % (2 * MIB) == 0);
        MUST(cuMemFree_v2(pointer));
        MUST(cuMemFree_v2(next));
    }
    rely(bed, "9b", is_aligned, "every block is aligned to 256 bytes");
    rely(bed, "9b", is_large_aligned, "blocks of 2 MiB and more are aligned to 2 MiB");
}

/* ---- 8. The last check: nothing of the context is left. */

void check_contexts(struct bed *bed)
{
    unsigned long long before = 0, after = 0;
    CUdeviceptr pointer;
    CUdevice device;
    CUcontext popped, again;
    if (bed->cu->cuCtxGetId == NULL || bed->cu->cuDevicePrimaryCtxReset_v2 == NULL) {
        answer("8", "this driver lacks cuCtxGetId or the reset of a primary context");
        return;
    }
    MUST(cuCtxGetDevice(&device));
    MUST(cuCtxGetId(bed->context, &before));
    MUST(cuMemAlloc_v2(&pointer, MIB));
    CUdeviceptr second;
    MUST(cuMemAlloc_v2(&second, MIB));
    MUST(cuCtxPopCurrent_v2(&popped));
    answer("8a", "cuMemFree with no context current: %s",
           bed_name(bed, bed->cu->cuMemFree_v2(second)));
    MUST(cuDevicePrimaryCtxReset_v2(device));
    answer("8b", "cuMemFree of a pointer from before the reset, no context: %s",
           bed_name(bed, bed->cu->cuMemFree_v2(pointer)));
    MUST(cuDevicePrimaryCtxRetain(&again, device));
    MUST(cuCtxSetCurrent(again));
    answer("8c", "the same with the new context current: %s",
           bed_name(bed, bed->cu->cuMemFree_v2(pointer)));
    MUST(cuCtxGetId(again, &after));
    answer("8d", "the context's handle is %s after the reset",
           again == bed->context ? "the same" : "another");
    rely(bed, "8d", before != after, "its id is another");
    bed->context = again;
}

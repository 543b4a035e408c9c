/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: helpers of the cases. Independent of any case. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "conformance.h"

static void note(struct bed *b, const char *what, const char *got, const char *want, int line)
{
    if (b->failures++ == 0) {
        snprintf(b->message, sizeof b->message, "line %d: %s: %s%s%s", line, what, got,
                 want[0] != '\0' ? ", expected " : "", want);
    }
}

bool bed_that(struct bed *b, bool holds, const char *text, int line)
{
    if (!holds && b->skip == NULL) {
        note(b, text, "does not hold", "", line);
    }
    return holds;
}

/* The entry point that the text of a call names: "b->cu->cuMemCreate(&handle, ...". */
static size_t name_length(const char *text, const char **name)
{
    size_t length = strcspn(text, "(");
    *name = text;
    for (size_t i = 0; i + 1 < length; i++) {
        *name = text[i] == '-' && text[i + 1] == '>' ? text + i + 2 : *name;
    }
    length -= (size_t)(*name - text);
    return length > 3 && strncmp(*name + length - 3, "_v2", 3) == 0 ? length - 3 : length;
}

/* True if the driver returned the error that the profile plans for this call: the case
 * is skipped. */
static bool is_refused(struct bed *b, CUresult got, const char *text)
{
    static const char bare[] = "cuMemAddressReserve cuMemCreate cuMemMap cuMemSetAccess";
    const char *begin, *error = flw_driver_error_name(b->cu, got) + strlen("CUDA_ERROR_");
    const char *refusing = strstr(b->profile, "refusing");
    char name[64];
    int length = (int)name_length(text, &begin);
    if (got == CUDA_SUCCESS || refusing == NULL || b->failures > 0 ||
        snprintf(name, sizeof name, "%.*s", length, begin) >= (int)sizeof name) {
        return false;
    }
    bool is_named = strchr(b->profile, ':') != NULL ? strstr(b->profile, name) != NULL
                                                    : strstr(bare, name) != NULL;
    bool is_error = strchr(b->profile, '=') != NULL ? strstr(b->profile, error) != NULL
                                                    : got == CUDA_ERROR_NOT_PERMITTED;
    if (is_named && is_error) {
        snprintf(b->message, sizeof b->message, "the profile refuses %s", name);
        b->skip = b->message;
    }
    return is_named && is_error;
}

bool bed_result(struct bed *b, CUresult got, CUresult want, const char *text, int line)
{
    if (got != want && b->skip == NULL && !is_refused(b, got, text)) {
        note(b, text, flw_driver_error_name(b->cu, got), flw_driver_error_name(b->cu, want), line);
    }
    return got == want;
}

bool bed_refused(struct bed *b, CUresult got, const char *text, int line)
{
    if (got == CUDA_SUCCESS && b->skip == NULL) {
        note(b, text, "succeeded", "a refusal", line);
    }
    return got != CUDA_SUCCESS;
}

/* ---- the gate ---- */

static atomic_int gate_is_closed;

static void CUDA_CB wait_at_gate(void *argument)
{
    (void)argument;
    while (atomic_load_explicit(&gate_is_closed, memory_order_acquire) != 0) {
        sched_yield();
    }
}

void bed_gate_close(struct bed *b, CUstream stream)
{
    if (b->is_sim) {
        /* Each case starts with a held device: no work completes until requested. */
        flw_sim_range none = {0};
        OK((CUresult)b->sim.touch(stream, &none, 0));
        return;
    }
    atomic_store_explicit(&gate_is_closed, 1, memory_order_release);
    OK(b->cu->cuLaunchHostFunc(stream, wait_at_gate, NULL));
}

void bed_gate_open(struct bed *b)
{
    if (b->is_sim) {
        b->sim.step(~0ull);
        return;
    }
    atomic_store_explicit(&gate_is_closed, 0, memory_order_release);
}

/* ---- objects ---- */

static uintptr_t keep(struct bed *b, int kind, uintptr_t handle)
{
    if (handle != 0 && THAT(b->object_count < sizeof b->objects / sizeof *b->objects)) {
        b->objects[b->object_count].kind = kind;
        b->objects[b->object_count++].handle = handle;
    }
    return handle;
}

CUstream bed_stream(struct bed *b)
{
    CUstream stream = NULL;
    OK(b->cu->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return (CUstream)keep(b, BED_STREAM, (uintptr_t)stream);
}

CUevent bed_event(struct bed *b)
{
    CUevent event = NULL;
    OK(b->cu->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    return (CUevent)keep(b, BED_EVENT, (uintptr_t)event);
}

CUdeviceptr bed_alloc(struct bed *b, size_t bytes)
{
    CUdeviceptr address = 0;
    OK(b->cu->cuMemAlloc_v2(&address, bytes));
    return keep(b, BED_MEMORY, (uintptr_t)address);
}

void *bed_pinned(struct bed *b, size_t bytes)
{
    void *pinned = NULL;
    OK(b->cu->cuMemHostAlloc(&pinned, bytes, 0));
    return (void *)keep(b, BED_PINNED, (uintptr_t)pinned);
}

static void end_capture(struct bed *b, CUstream stream)
{
    CUgraph graph = NULL;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (b->cu->cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
        status != CU_STREAM_CAPTURE_STATUS_NONE) {
        b->cu->cuStreamEndCapture(stream, &graph);
    }
    if (graph != NULL) {
        OK(b->cu->cuGraphDestroy(graph));
    }
}

void bed_release(struct bed *b)
{
    bed_gate_open(b);
    for (size_t i = 0; i < b->object_count; i++) {
        if (b->objects[i].kind == BED_STREAM) {
            end_capture(b, (CUstream)b->objects[i].handle);
        }
    }
    if (b->object_count > 0) {
        OK(b->cu->cuCtxSynchronize());
    }
    while (b->object_count > 0) {
        uintptr_t handle = b->objects[--b->object_count].handle;
        switch (b->objects[b->object_count].kind) {
        case BED_STREAM:
            OK(b->cu->cuStreamDestroy_v2((CUstream)handle));
            break;
        case BED_EVENT:
            OK(b->cu->cuEventDestroy_v2((CUevent)handle));
            break;
        case BED_MEMORY:
            OK(b->cu->cuMemFree_v2(handle));
            break;
        case BED_PINNED:
            OK(b->cu->cuMemFreeHost((void *)handle));
            break;
        }
    }
}

flw_sim_config bed_world(void)
{
    flw_sim_config config = flw_sim_config_default(7);
    config.schedule = FLW_SIM_HELD;
    config.backed = 1;
    config.check = 1;
    return config;
}

void bed_restart(struct bed *b, const flw_sim_config *config)
{
    b->object_count = 0; /* gone with the old world */
    b->context = flw_sim_begin(&b->sim, config);
}

/* ---- another thread ---- */

struct visit {
    struct bed *bed;
    void (*f)(struct bed *b, void *argument);
    void *argument;
};

static void *visit_thread(void *argument)
{
    struct visit *visit = argument;
    struct bed *b = visit->bed;
    OK(b->cu->cuCtxSetCurrent(b->context));
    visit->f(b, visit->argument);
    OK(b->cu->cuCtxSetCurrent(NULL));
    return NULL;
}

void bed_on_thread(struct bed *b, void (*f)(struct bed *b, void *argument), void *argument)
{
    struct visit visit = {b, f, argument};
    pthread_t thread;
    if (THAT(pthread_create(&thread, NULL, visit_thread, &visit) == 0)) {
        pthread_join(thread, NULL);
    }
}

/* ---- memory ---- */

bool bed_has_attribute(struct bed *b, CUdevice_attribute attribute, const char *without)
{
    int has = 0;
    if (b->cu->cuDeviceGetAttribute(&has, attribute, b->device) != CUDA_SUCCESS || has == 0) {
        b->skip = without;
    }
    return has != 0;
}

CUmemAllocationProp bed_properties(const struct bed *b, unsigned handle_types)
{
    CUmemAllocationProp properties = {0};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = b->device;
    properties.requestedHandleTypes = (CUmemAllocationHandleType)handle_types;
    return properties;
}

CUmemAccessDesc bed_access(const struct bed *b, CUmemAccess_flags flags)
{
    CUmemAccessDesc access = {0};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = b->device;
    access.flags = flags;
    return access;
}

static bool has_vmm(struct bed *b)
{
    int has = 0;
    if (b->cu->cuMemMap == NULL ||
        b->cu->cuDeviceGetAttribute(&has, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                                    b->device) != CUDA_SUCCESS ||
        has == 0) {
        b->skip = "the device has no virtual memory management";
    }
    return has != 0;
}

size_t bed_grain(struct bed *b)
{
    size_t bytes = 0;
    CUmemAllocationProp properties = bed_properties(b, 0);
    if (has_vmm(b)) {
        OK(b->cu->cuMemGetAllocationGranularity(&bytes, &properties,
                                                CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    }
    return bytes != 0 ? bytes : 2u << 20;
}

bool bed_map(struct bed *b, struct bed_mapping *m, size_t count, unsigned handle_types)
{
    const struct flw_driver *cu = b->cu;
    *m = (struct bed_mapping){.count = count};
    m->grain_bytes = bed_grain(b);
    if (b->skip != NULL) {
        return false;
    }
    CUmemAllocationProp properties = bed_properties(b, handle_types);
    CUmemAccessDesc access = bed_access(b, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    bool good = OK(cu->cuMemAddressReserve(&m->address, m->grain_bytes * count, 0, 0, 0));
    for (size_t i = 0; good && i < count; i++) {
        good =
            OK(cu->cuMemCreate(&m->handle[i], m->grain_bytes, &properties, 0)) &&
            OK(cu->cuMemMap(m->address + i * m->grain_bytes, m->grain_bytes, 0, m->handle[i], 0));
    }
    return good && OK(cu->cuMemSetAccess(m->address, m->grain_bytes * count, &access, 1));
}

void bed_unmap(struct bed *b, struct bed_mapping *m)
{
    const struct flw_driver *cu = b->cu;
    OK(cu->cuMemUnmap(m->address, m->grain_bytes * m->count));
    OK(cu->cuMemAddressFree(m->address, m->grain_bytes * m->count));
    for (size_t i = 0; i < m->count; i++) {
        OK(cu->cuMemRelease(m->handle[i]));
    }
}

uint32_t bed_peek(struct bed *b, CUdeviceptr address)
{
    uint32_t value = 0;
    OK(b->cu->cuMemcpyDtoH_v2(&value, address, sizeof value));
    return value;
}

void bed_poke(struct bed *b, CUdeviceptr address, uint32_t value)
{
    OK(b->cu->cuMemcpyHtoD_v2(address, &value, sizeof value));
}

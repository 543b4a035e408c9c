/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the device that `fallow bench kernels` runs on, and a call's memory on it.
 */
#include "bench/kernels.h"

#include <stdlib.h>
#include <string.h>

#include "common/tool_host.h"

/* ---- bed */

#define CALL(bed, message, call, ...) FLW_BENCH_CALL(&(bed)->device, message, call, __VA_ARGS__)

static const flw_sim_config world = {.struct_size = sizeof world,
                                     .seed = 1,
                                     .backed = 1,
                                     .check = 1,
                                     .device_bytes = (uint64_t)8 << 30};

bool flw_kernel_bed_open(struct flw_kernel_bed *bed, int device, char *message, bool *out_is_absent)
{
    *bed = (struct flw_kernel_bed){0};
    *out_is_absent = true;
    if (!flw_bench_device_open(&bed->device, device, &world, message) ||
        !CALL(bed, message, cuStreamCreate, &bed->stream, CU_STREAM_NON_BLOCKING)) {
        goto fail;
    }
    fallow_pool_config config;
    fallow_pool_config_init(&config);
    config.device = device < 0 ? 0 : device;
    config.driver = bed->device.is_sim ? "sim" : NULL;
    fallow_status status = fallow_pool_create(&config, &bed->pool);
    if (status == FALLOW_OK) {
        status = fallow_kernels_create(bed->pool, &bed->kernels);
    }
    if (status == FALLOW_OK) { /* no figure has a load in it, and graphs come first */
        status = fallow_kernels_load(bed->kernels, NULL, 0);
    }
    if (status != FALLOW_OK) {
        char why[128] = "";
        if (bed->pool != NULL) {
            fallow_kernels_last_error(bed->kernels, why, sizeof why);
        }
        *out_is_absent = status == FALLOW_NOT_SUPPORTED;
        snprintf(message, FLW_BENCH_MESSAGE_BYTES, "%s on %s: %s%s%s",
                 bed->pool == NULL ? "no pool" : "no kernels", bed->device.name,
                 fallow_status_name(status), why[0] == 0 ? "" : ": ", why);
        goto fail;
    }
    *out_is_absent = false;
    return true;
fail:
    flw_kernel_bed_close(bed);
    return false;
}

void flw_kernel_bed_close(struct flw_kernel_bed *bed)
{
    fallow_kernels_destroy(bed->kernels);
    if (bed->pool != NULL) {
        fallow_status retired = fallow_stream_retire(bed->pool, bed->stream);
        (void)retired; /* the pool ends with it */
        fallow_pool_destroy(bed->pool);
    }
    if (bed->stream != NULL) {
        bed->device.driver.cuStreamDestroy_v2(bed->stream);
    }
    flw_bench_device_close(&bed->device);
    *bed = (struct flw_kernel_bed){.device.is_sim = bed->device.is_sim};
}

bool flw_kernel_bed_settle(struct flw_kernel_bed *bed, char *message)
{
    flw_sim_ledger ledger = {.struct_size = sizeof ledger};
    flw_sim_ledger_function get_ledger = NULL;
    flw_sim_violation_function violation = NULL;
    if (!CALL(bed, message, cuStreamSynchronize, bed->stream)) {
        return false;
    }
    if (!bed->device.is_simulated) {
        return true;
    }
    flw_bench_device_find(&bed->device, "flw_sim_get_ledger", &get_ledger);
    flw_bench_device_find(&bed->device, "flw_sim_violation", &violation);
    if (get_ledger == NULL || violation == NULL) {
        snprintf(message, FLW_BENCH_MESSAGE_BYTES,
                 "the simulated driver lacks its controls: rebuild libfallow-simcuda.so");
        return false;
    }
    get_ledger(0, &ledger);
    bool is_clean = ledger.violation_count == bed->violations_told;
    if (!is_clean) {
        const char *sentence = violation(bed->violations_told);
        snprintf(message, FLW_BENCH_MESSAGE_BYTES, "%s",
                 sentence != NULL ? sentence : "the rule checker found a violation");
    }
    bed->violations_told = ledger.violation_count;
    return is_clean;
}

/* ---- a call's parts */

/* What stands for memory where there is none: a query asks of optional ones whether they are given. */
static _Alignas(256) int32_t nowhere[64];

int64_t flw_kernel_size(struct flw_kernel_call *call, const char *name, int64_t most_simulated)
{
    if (call->size_count == FLW_KERNEL_SIZES) {
        call->is_broken = true;
        snprintf(call->message, FLW_BENCH_MESSAGE_BYTES, "more sizes than %d", FLW_KERNEL_SIZES);
        return 1;
    }
    int64_t value = call->of->sizes[call->size_count];
    if (call->scale == FLW_KERNEL_SMALL && value > most_simulated) {
        value = most_simulated;
    }
    call->sizes[call->size_count++] = (struct flw_kernel_size){name, value};
    return value;
}

void *flw_kernel_params(struct flw_kernel_call *call, size_t bytes)
{
    if (bytes > sizeof call->params) {
        abort(); /* a struct larger than the room for it: a mistake of whoever added the case */
    }
    fallow_params_init_sized(call->params, bytes);
    return call->params;
}

void *flw_kernel_output(struct flw_kernel_call *call, int64_t bytes)
{
    void *buffer = NULL;
    if (call->scale == FLW_KERNEL_SHAPES || call->is_broken) {
        return nowhere;
    }
    size_t room = bytes == 0 ? 16 : (size_t)bytes;
    fallow_status status = FALLOW_OUT_OF_HOST_MEMORY;
    if (call->buffer_count < FLW_KERNEL_BUFFERS) {
        status = fallow_alloc(call->bed->pool, room, call->bed->stream, &buffer);
    }
    if (status != FALLOW_OK) {
        call->is_broken = true;
        snprintf(call->message, FLW_BENCH_MESSAGE_BYTES, "no buffer of %zu bytes: %s", room,
                 fallow_status_name(status));
        return nowhere;
    }
    call->buffers[call->buffer_count++] = buffer;
    return buffer;
}

void *flw_kernel_filled(struct flw_kernel_call *call, int64_t bytes, uint32_t word)
{
    void *buffer = flw_kernel_output(call, (bytes + 3) / 4 * 4);
    if (buffer != nowhere &&
        !CALL(call->bed, call->message, cuMemsetD32Async, (CUdeviceptr)(uintptr_t)buffer, word,
              (size_t)(bytes + 3) / 4, call->bed->stream)) {
        call->is_broken = true;
    }
    return buffer;
}

int32_t *flw_kernel_integers(struct flw_kernel_call *call, int64_t count, flw_kernel_value value,
                             const int64_t *with)
{
    if (call->scale == FLW_KERNEL_SHAPES || call->is_broken) {
        return nowhere;
    }
    int32_t *host = flw_host_alloc((size_t)count, sizeof *host);
    for (int64_t i = 0; i < count; i++) {
        host[i] = (int32_t)value(i, with);
    }
    int32_t *buffer = flw_kernel_output(call, count * 4);
    if (buffer != nowhere && count > 0 &&
        (!CALL(call->bed, call->message, cuMemcpyHtoDAsync_v2, (CUdeviceptr)(uintptr_t)buffer, host,
               (size_t)count * 4, call->bed->stream) ||
         !CALL(call->bed, call->message, cuStreamSynchronize, call->bed->stream))) {
        call->is_broken = true;
    }
    flw_host_free(host);
    return buffer;
}

bool flw_kernel_call_make(struct flw_kernel_call *call, const struct flw_kernel_case *of,
                          struct flw_kernel_bed *bed, enum flw_kernel_scale scale, char *message)
{
    *call = (struct flw_kernel_call){.of = of, .bed = bed, .scale = scale};
    call->message = message;
    of->make(call);
    return !call->is_broken;
}

void flw_kernel_call_finish(struct flw_kernel_call *call)
{
    while (call->buffer_count > 0) {
        (void)fallow_free(call->bed->pool, call->buffers[--call->buffer_count], call->bed->stream);
    }
}

/* ---- values */

int64_t flw_kernel_same(int64_t index, const int64_t *with)
{
    (void)index;
    return with[0];
}

int64_t flw_kernel_multiples(int64_t index, const int64_t *with)
{
    return index * with[0];
}

int64_t flw_kernel_shuffle(int64_t index, const int64_t *with)
{
    return index * 40503 & (with[0] - 1); /* odd, so it has an inverse */
}

int64_t flw_kernel_scatter(int64_t index, const int64_t *with)
{
    uint64_t x = (uint64_t)index * 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 32)) * 0x94d049bb133111ebull;
    return (int64_t)((x >> 33) % (uint64_t)with[0]);
}

int64_t flw_kernel_choice(int64_t index, const int64_t *with)
{
    return (flw_kernel_scatter(index / with[1], with) + index % with[1]) % with[0];
}

int64_t flw_kernel_logits(int64_t index, const int64_t *with)
{
    static const int64_t bits = (int64_t)1 << 31;
    (void)with;
    int64_t random = flw_kernel_scatter(index, &bits);
    return (int64_t)(int32_t)((uint32_t)(random * 2) & 0x80ff80ffu) | 0x3f003f00;
}

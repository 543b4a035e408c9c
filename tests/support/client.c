/* SPDX-License-Identifier: Apache-2.0 */
#include "support/client.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/random.h"

static void must(const struct flw_client *client, CUresult result, const char *call)
{
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "the test's own %s failed: %s\n", call,
                flw_driver_error_name(&client->sim->cu, result));
        abort();
    }
}

uint64_t flw_client_random(struct flw_client *client)
{
    return flw_random_next(&client->random);
}

void flw_client_enter_device(const struct flw_sim *sim)
{
    struct flw_client bed = {.sim = sim};
    CUcontext context;
    CUdevice device;
    must(&bed, sim->cu.cuInit(0), "cuInit");
    must(&bed, sim->cu.cuDeviceGet(&device, 0), "cuDeviceGet");
    must(&bed, sim->cu.cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    must(&bed, sim->cu.cuCtxSetCurrent(context), "cuCtxSetCurrent");
}

void flw_client_init(struct flw_client *client, size_t capacity, uint32_t stream_count,
                     const CUstream *shared, uint32_t shared_count)
{
    const struct flw_driver *cu = &client->sim->cu;
    client->stream_count = stream_count;
    client->capacity = capacity;
    client->count = 0;
    client->blocks = calloc(capacity, sizeof *client->blocks);
    if (client->blocks == NULL) {
        abort();
    }
    for (uint32_t i = 0; i < stream_count; i++) {
        must(client, cu->cuEventCreate(&client->events[i], CU_EVENT_DISABLE_TIMING),
             "cuEventCreate");
        if (i < shared_count) {
            client->streams[i] = shared[i];
        } else {
            must(client, cu->cuStreamCreate(&client->streams[i], CU_STREAM_NON_BLOCKING),
                 "cuStreamCreate");
        }
    }
}

void flw_client_finish(struct flw_client *client, uint32_t shared_count)
{
    const struct flw_driver *cu = &client->sim->cu;
    for (uint32_t i = 0; i < client->stream_count; i++) {
        must(client, cu->cuEventDestroy_v2(client->events[i]), "cuEventDestroy");
        if (i >= shared_count) {
            must(client, cu->cuStreamDestroy_v2(client->streams[i]), "cuStreamDestroy");
        }
    }
    free(client->blocks);
    client->blocks = NULL;
}

/* Of one driver call: several may be planned to fail. */
static int tries(const struct flw_client *client)
{
    return client->has_faults ? 16 : 1;
}

void flw_client_order(struct flw_client *client, uint32_t from, uint32_t to)
{
    const struct flw_driver *cu = &client->sim->cu;
    CUresult result = CUDA_ERROR_UNKNOWN;
    if (from == to) {
        return;
    }
    if (client->is_cut_off) {
        (void)cu->cuEventRecord(client->events[from], client->streams[from]);
        (void)cu->cuStreamWaitEvent(client->streams[to], client->events[from], 0);
        return;
    }
    for (int i = 0; i < tries(client) && result != CUDA_SUCCESS; i++) {
        result = cu->cuEventRecord(client->events[from], client->streams[from]);
    }
    must(client, result, "cuEventRecord");
    result = CUDA_ERROR_UNKNOWN;
    for (int i = 0; i < tries(client) && result != CUDA_SUCCESS; i++) {
        result = cu->cuStreamWaitEvent(client->streams[to], client->events[from], 0);
    }
    must(client, result, "cuStreamWaitEvent");
}

static void trace(const struct flw_client *client, const struct flw_client_block *block,
                  const char *what, uint32_t stream)
{
    uint64_t begin = (uint64_t)(uintptr_t)block->ptr;
    if (client->trace_address - begin < block->size_bytes && client->trace_address >= begin) {
        fprintf(stderr, "%llu: %s [0x%llx, +%zu) on stream %u, home %u, readers 0x%x%s\n",
                (unsigned long long)client->op_count, what, (unsigned long long)begin,
                block->size_bytes, stream, block->home, block->readers,
                block->is_captured ? ", captured" : "");
    }
}

static void touch(struct flw_client *client, const struct flw_client_block *block, uint32_t stream,
                  bool is_write)
{
    uint64_t begin = (uint64_t)(uintptr_t)block->ptr;
    if (client->is_quiet) {
        return;
    }
    trace(client, block, is_write ? "write" : "read", stream);
    struct flw_sim_range ranges[3] = {{begin, block->size_bytes, is_write, 0}};
    size_t count = 1;
    if (block->size_bytes > client->touch_bytes) {
        uint64_t part = client->touch_bytes / 3;
        ranges[0].bytes = part;
        ranges[1] = (struct flw_sim_range){begin + block->size_bytes / 2, part, is_write, 0};
        ranges[2] = (struct flw_sim_range){begin + block->size_bytes - part, part, is_write, 0};
        count = 3;
    }
    must(client, (CUresult)client->sim->touch(client->streams[stream], ranges, count),
         "flw_sim_touch");
}

void flw_client_gather(struct flw_client *client, struct flw_client_block *block)
{
    for (uint32_t i = 0; block->readers != 0; i++) {
        if ((block->readers >> i & 1) != 0) {
            flw_client_order(client, i, block->home);
            block->readers &= ~(1u << i);
        }
    }
}

void flw_client_write(struct flw_client *client, struct flw_client_block *block)
{
    flw_client_gather(client, block);
    touch(client, block, block->home, true);
}

void flw_client_read(struct flw_client *client, struct flw_client_block *block, uint32_t stream)
{
    if (stream != block->home && !client->is_quiet) {
        flw_client_order(client, block->home, stream);
        block->readers |= 1u << stream;
    }
    touch(client, block, stream, false);
}

bool flw_client_adopt(struct flw_client *client, const struct flw_client_block *block)
{
    struct flw_client_block *own = &client->blocks[client->count];
    if (client->count == client->capacity) {
        fprintf(stderr, "the test's table of blocks is full\n");
        abort();
    }
    *own = *block;
    own->claimed_bytes = own->claimed_bytes != 0 ? own->claimed_bytes : own->size_bytes;
    if (!flw_overlap_claim(client->overlap, (uint64_t)(uintptr_t)own->ptr, own->claimed_bytes)) {
        return false;
    }
    client->count++;
    flw_client_write(client, own);
    return true;
}

void flw_client_drop(struct flw_client *client, size_t index, struct flw_client_block *block)
{
    *block = client->blocks[index];
    client->blocks[index] = client->blocks[--client->count];
}

/* Order every use before the end of `stream`, or announce it. */
static fallow_status order_uses(struct flw_client *client, struct flw_client_block *block,
                                uint32_t stream)
{
    uint32_t users =
        client->orders_by_context ? 0 : (block->readers | 1u << block->home) & ~(1u << stream);
    for (uint32_t i = 0; users >> i != 0; i++) {
        if ((users >> i & 1) == 0) {
            continue;
        }
        if (!block->is_captured && flw_client_chance(client, 50)) {
            fallow_status status =
                client->put.ops->record_use(client->put.pool, block->ptr, client->streams[i]);
            client->op_count++;
            if (status == FALLOW_OK) {
                trace(client, block, "announce", i);
                continue;
            }
            if (status != FALLOW_OUT_OF_MEMORY && status != FALLOW_OUT_OF_HOST_MEMORY &&
                !flw_client_forgives(client, status) && !client->is_cut_off) {
                return status;
            }
        }
        flw_client_order(client, i, stream);
    }
    return FALLOW_OK;
}

fallow_status flw_client_free(struct flw_client *client, size_t index, uint32_t stream, bool sized)
{
    struct flw_client_block *block = &client->blocks[index];
    struct flw_client_block gone = *block;
    fallow_status status = order_uses(client, block, stream);
    if (status != FALLOW_OK) {
        return status;
    }
    /* Before the free: the address may be another thread's the moment after. */
    flw_overlap_release(client->overlap, (uint64_t)(uintptr_t)gone.ptr, gone.claimed_bytes);
    const struct flw_put *put = &client->put;
    trace(client, &gone, "free", stream);
    status =
        sized ? put->ops->free_sized(put->pool, gone.ptr, gone.size_bytes, client->streams[stream])
              : put->ops->free(put->pool, gone.ptr, client->streams[stream]);
    client->op_count++;
    if (status != FALLOW_OK) {
        return flw_overlap_claim(client->overlap, (uint64_t)(uintptr_t)gone.ptr, gone.claimed_bytes)
                   ? status
                   : FALLOW_INVALID_POINTER; /* the address belongs to another block: no free
                                                 may return this */
    }
    flw_client_drop(client, index, &gone);
    return FALLOW_OK;
}

/* End the reads on a stream: make home wait for them, or announce them. */
static void end_reads(struct flw_client *client, struct flw_client_block *block, uint32_t reader)
{
    bool is_announced = !block->is_captured && flw_client_chance(client, 50) &&
                        client->put.ops->record_use(client->put.pool, block->ptr,
                                                    client->streams[reader]) == FALLOW_OK;
    if (!is_announced) {
        flw_client_order(client, reader, block->home);
    }
    block->readers &= ~(1u << reader);
}

void flw_client_leave_stream(struct flw_client *client, uint32_t index, uint32_t heir)
{
    for (size_t i = 0; i < client->count; i++) {
        struct flw_client_block *block = &client->blocks[i];
        if (block->home == index) {
            flw_client_gather(client, block);
            flw_client_order(client, index, heir);
            block->home = heir;
        } else if ((block->readers >> index & 1) != 0) {
            end_reads(client, block, index);
        }
    }
}

fallow_status flw_client_renew_stream(struct flw_client *client, uint32_t index, bool tells)
{
    fallow_status status = FALLOW_OK;
    const struct flw_driver *cu = &client->sim->cu;
    flw_client_leave_stream(client, index, (index + 1) % client->stream_count);
    if (tells) {
        status = client->put.ops->retire(client->put.pool, client->streams[index]);
        client->op_count++;
    }
    if (status == FALLOW_OK || flw_client_forgives(client, status)) {
        must(client, cu->cuStreamDestroy_v2(client->streams[index]), "cuStreamDestroy");
        must(client, cu->cuStreamCreate(&client->streams[index], CU_STREAM_NON_BLOCKING),
             "cuStreamCreate");
    }
    return status;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the operations that a stress run is made of: allocate, free, read, send to another thread.
 */
#include "stress_worker.h"

#include <stdlib.h>

#include "base/bits.h"

/* Pick a size: half are from a few recurring ones, so that memory moves between streams; the
 * others mostly small, spread evenly over the powers of two. */
static size_t pick_size(struct worker *worker)
{
    struct flw_client *client = &worker->client;
    uint64_t most = worker->run->settings.most_bytes;
    static const size_t popular[] = {512, 4096, 40000, 1 << 20, (2 << 20) + 1, 6 << 20};
    size_t again = popular[flw_client_below(client, sizeof popular / sizeof *popular)];
    if (again <= most && flw_client_chance(client, 50)) {
        return again;
    }
    uint64_t kind = flw_client_below(client, 100);
    uint64_t top = kind < 60 ? flw_min(most, 4096) : kind < 88 ? flw_min(most, FLW_MIB) : most;
    unsigned log2 = (unsigned)flw_client_below(client, flw_log2_floor(top) + 1);
    uint64_t size = (1ull << log2) + flw_client_below(client, 1ull << log2);
    return flw_min(size, top);
}

uint32_t stress_pick_stream(struct worker *worker)
{
    return (uint32_t)flw_client_below(&worker->client, worker->client.stream_count);
}

void stress_free_one(struct worker *worker, size_t index)
{
    struct flw_client *client = &worker->client;
    uint32_t stream =
        flw_client_chance(client, 70) ? client->blocks[index].home : stress_pick_stream(worker);
    bool sized = client->blocks[index].align_bytes == 0 && flw_client_chance(client, 25);
    fallow_status status = flw_client_free(client, index, stream, sized);
    if (status == FALLOW_INVALID_STREAM &&
        client->is_cut_off) { /* the context has ended, as the pool reports */
        struct flw_client_block gone;
        flw_client_drop(client, index, &gone);
        flw_overlap_release(client->overlap, (uint64_t)(uintptr_t)gone.ptr, gone.claimed_bytes);
    } else if (status == FALLOW_DRIVER || status == FALLOW_NOT_SUPPORTED) {
        /* The driver could not identify the stream: the block is still live and will be freed
         * later. */
        stress_expect(worker, sized ? "free_sized" : "free", status);
    } else if (status != FALLOW_OK) {
        stress_fail(worker, sized ? "free_sized" : "free", status);
    }
}

static void adopt(struct worker *worker, const struct flw_client_block *block)
{
    size_t need = block->align_bytes != 0    ? block->align_bytes
                  : block->size_bytes >= 512 ? 512
                                             : 256;
    if (block->ptr == NULL || (uintptr_t)block->ptr % need != 0) {
        stress_fail(worker, "alloc (alignment)", FALLOW_OK);
    } else if (!flw_client_adopt(&worker->client, block)) {
        stress_fail(worker, "alloc (overlap)", FALLOW_OK);
    }
}

/* Free half of the blocks when memory runs out, so that all workers continue. */
static void make_room(struct worker *worker)
{
    for (size_t keep = worker->client.count / 2;
         worker->client.count > keep && !atomic_load(&worker->run->failed);) {
        stress_free_one(worker, flw_client_below(&worker->client, worker->client.count));
    }
}

/* Handle a status other than OK. */
static void take_refusal(struct worker *worker, const char *call, fallow_status status)
{
    if (status == FALLOW_OUT_OF_MEMORY) {
        make_room(worker);
    } else {
        stress_expect(worker, call, status);
    }
}

static void alloc_batch(struct worker *worker)
{
    struct flw_client *client = &worker->client;
    uint32_t stream = stress_pick_stream(worker);
    size_t sizes[6], count = 1 + flw_client_below(client, 6);
    void *ptrs[6];
    for (size_t i = 0; i < count; i++) {
        sizes[i] = pick_size(worker);
        ptrs[i] = &sizes[i];
    }
    fallow_status status =
        client->put.ops->alloc_batch(client->put.pool, sizes, count, client->streams[stream], ptrs);
    client->op_count += count;
    for (size_t i = 0; i < count; i++) {
        if (status == FALLOW_OK) {
            adopt(worker, &(struct flw_client_block){
                              .ptr = ptrs[i], .size_bytes = sizes[i], .home = stream});
        } else if (ptrs[i] != NULL) {
            stress_fail(worker, "alloc_batch (a pointer after a failure)", status);
        }
    }
    take_refusal(worker, "alloc_batch", status);
}

/* Any set of wishes that may be had together. */
static uint32_t pick_flags(struct worker *worker)
{
    struct flw_client *client = &worker->client;
    uint32_t flags = 0;
    flags |= flw_client_chance(client, 20) ? FALLOW_REQUEST_NO_WAIT : 0u;
    flags |= flw_client_chance(client, 20) ? FALLOW_REQUEST_NO_GROW : 0u;
    flags |= flw_client_chance(client, 15) ? FALLOW_REQUEST_DEDICATED : 0u;
    flags |= flw_client_chance(client, 15) ? FALLOW_REQUEST_ZERO : 0u;
    flags |= worker->run->settings.share && flw_client_chance(client, 30) ? FALLOW_REQUEST_EXPORT_FD
                                                                          : 0u;
    return flags;
}

static fallow_status alloc_request(struct worker *worker, struct flw_client_block *block,
                                   void **out_ptr)
{
    struct flw_client *client = &worker->client;
    fallow_request request = {.struct_size = sizeof request, .size_bytes = block->size_bytes};
    request.flags = pick_flags(worker);
    request.tag = block->tag = (uint32_t)flw_client_below(client, 10);
    if (flw_client_chance(client, 30)) {
        request.align_bytes = block->align_bytes = 1ull << flw_client_below(client, 22);
    }
    block->is_exportable = (request.flags & FALLOW_REQUEST_EXPORT_FD) != 0;
    fallow_status status = client->put.ops->alloc_request(client->put.pool, &request,
                                                          client->streams[block->home], out_ptr);
    bool may_refuse = (request.flags & (FALLOW_REQUEST_NO_WAIT | FALLOW_REQUEST_NO_GROW)) != 0;
    return status == FALLOW_WOULD_WAIT && may_refuse ? FALLOW_OUT_OF_MEMORY : status;
}

static void alloc_one(struct worker *worker)
{
    struct flw_client *client = &worker->client;
    struct flw_client_block block = {.home = stress_pick_stream(worker),
                                     .size_bytes = pick_size(worker)};
    CUstream stream = client->streams[block.home];
    void *ptr = &block;
    fallow_status status;
    uint64_t kind = flw_client_below(client, 100);
    if (kind < 5) {
        block.align_bytes = 1ull << flw_client_below(client, 22);
        status = client->put.ops->alloc_aligned(client->put.pool, block.size_bytes,
                                                block.align_bytes, stream, &ptr);
    } else if (kind < 10 && client->put.ops->alloc_request != NULL) {
        status = alloc_request(worker, &block, &ptr);
    } else {
        status = client->put.ops->alloc(client->put.pool, block.size_bytes, stream, &ptr);
    }
    client->op_count++;
    if (status == FALLOW_OK) {
        block.ptr = ptr;
        adopt(worker, &block);
    } else if (ptr != NULL) {
        stress_fail(worker, "alloc (a pointer after a failure)", status);
    } else {
        take_refusal(worker, "alloc", status);
    }
}

/* Order the readers before home, or announce them: then another thread's free has to wait. */
static void order_readers(struct worker *worker, struct flw_client_block *block)
{
    struct flw_client *client = &worker->client;
    bool announces = !block->is_captured && flw_client_chance(client, 40);
    for (uint32_t i = 0; announces && block->readers >> i != 0; i++) {
        if ((block->readers >> i & 1) != 0) {
            announces = client->put.ops->record_use(client->put.pool, block->ptr,
                                                    client->streams[i]) == FALLOW_OK;
            block->readers &= announces ? ~(1u << i) : ~0u;
        }
    }
    flw_client_gather(client, block);
}

static void send_block(struct worker *worker)
{
    struct flw_client *client = &worker->client;
    struct mailbox *mailbox = &worker->run->mailbox;
    size_t index = flw_client_below(client, client->count);
    struct flw_client_block *block = &client->blocks[index];
    uint32_t shared = (uint32_t)flw_client_below(client, STRESS_SHARED_STREAMS);
    order_readers(worker, block);
    flw_client_order(client, block->home, shared);
    block->home = shared;
    pthread_mutex_lock(&mailbox->mutex);
    if (mailbox->count < STRESS_MAILBOX_SLOTS) {
        flw_client_drop(client, index, &mailbox->blocks[mailbox->count]);
        mailbox->count++;
    }
    pthread_mutex_unlock(&mailbox->mutex);
}

static void receive_block(struct worker *worker)
{
    struct flw_client *client = &worker->client;
    struct mailbox *mailbox = &worker->run->mailbox;
    pthread_mutex_lock(&mailbox->mutex);
    if (mailbox->count > 0 && client->count < client->capacity) {
        client->blocks[client->count++] = mailbox->blocks[--mailbox->count];
    }
    pthread_mutex_unlock(&mailbox->mutex);
}

static void let_the_device_work(struct worker *worker)
{
    const struct stress_settings *settings = &worker->run->settings;
    if (settings->faults != 0 && flw_client_below(&worker->client, settings->faults) == 0) {
        stress_plan_fault(worker);
    }
    if (settings->schedule == FLW_SIM_CLOCK) {
        worker->run->sim.advance(flw_client_below(&worker->client, settings->lag_ns + 1));
    } else {
        worker->run->sim.step(1ull << flw_client_below(&worker->client, 10));
    }
}

void stress_step(struct worker *worker)
{
    struct flw_client *client = &worker->client;
    const struct stress_settings *settings = &worker->run->settings;
    uint64_t live = settings->live, kind = flw_client_below(client, 1000);
    bool has_more_to_do = settings->sleep || settings->share || settings->foreign;
    bool is_full = client->count >= live || client->count + 8 > client->capacity;
    bool allocates = client->count == 0 || (kind >= 100 && kind < 555 && !is_full);
    bool is_rare =
        kind < (has_more_to_do ? 6u : 3u) || (settings->dies != 0 && flw_client_chance(client, 2));
    if (is_rare) {
        stress_rare(worker);
    } else if (kind < 10) {
        let_the_device_work(worker);
    } else if (kind < 30) {
        receive_block(worker);
    } else if (allocates && kind >= 100 && kind < 110 && client->put.ops->alloc_batch != NULL) {
        alloc_batch(worker);
    } else if (allocates) {
        alloc_one(worker);
    } else if (kind < 50) {
        send_block(worker);
    } else if (kind < 100) {
        flw_client_read(client, &client->blocks[flw_client_below(client, client->count)],
                        stress_pick_stream(worker));
    } else {
        stress_free_one(worker, flw_client_below(client, client->count));
    }
}

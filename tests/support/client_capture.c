/* SPDX-License-Identifier: Apache-2.0 */
#include "support/client_capture.h"

#include <stdio.h>

#define MOST_LAUNCHES 3

static bool is_cuda(struct flw_client *client, CUresult result, const char *call)
{
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "capture: %s answered %s\n", call,
                flw_driver_error_name(&client->sim->cu, result));
    }
    return result == CUDA_SUCCESS;
}

static bool is_expected(const struct flw_client *client, fallow_status status, const char *call)
{
    if (status != FALLOW_OK && status != FALLOW_OUT_OF_MEMORY &&
        !flw_client_forgives(client, status)) {
        fprintf(stderr, "capture: %s answered %s\n", call, fallow_status_name(status));
        return false;
    }
    return true;
}

static fallow_status allocate(struct flw_client *client, struct flw_client_block *block)
{
    const struct flw_put *put = &client->put;
    CUstream stream = client->streams[block->home];
    uint64_t kind = flw_client_below(client, 10);
    void *ptr = NULL;
    fallow_status status;
    if (kind == 0 && put->ops->alloc_request != NULL) {
        fallow_request request = {
            .struct_size = sizeof request, .size_bytes = block->size_bytes, .tag = 7};
        block->tag = request.tag;
        status = put->ops->alloc_request(put->pool, &request, stream, &ptr);
    } else if (kind == 1) {
        block->align_bytes = 1ull << flw_client_below(client, 18);
        status =
            put->ops->alloc_aligned(put->pool, block->size_bytes, block->align_bytes, stream, &ptr);
    } else {
        status = put->ops->alloc(put->pool, block->size_bytes, stream, &ptr);
    }
    block->ptr = ptr;
    client->op_count++;
    return status;
}

/* Some blocks allocated and some freed on one captured stream. */
static fallow_status work(struct flw_client *client, const struct flw_client_capture *how,
                          uint32_t stream)
{
    unsigned steps = 1 + (unsigned)flw_client_below(client, 8);
    for (unsigned i = 0; i < steps && client->count < client->capacity; i++) {
        struct flw_client_block block = {.home = stream, .is_captured = true};
        block.size_bytes = 1 + flw_client_below(client, how->most_bytes);
        fallow_status status = allocate(client, &block);
        if (status != FALLOW_OK) {
            return status;
        }
        if (!flw_client_adopt(client, &block)) {
            return FALLOW_INVALID_POINTER; /* overlaps, already reported */
        }
        if (flw_client_chance(client, 50)) {
            status = flw_client_free(client, client->count - 1, stream, false);
            if (status != FALLOW_OK) {
                return status;
            }
        }
        if (how->between != NULL) {
            how->between(how->context);
        }
    }
    return FALLOW_OK;
}

/* Free, inside the capture, ordinary memory last used on the stream before the capture. */
static fallow_status free_ordinary(struct flw_client *client, uint32_t stream)
{
    for (size_t i = 0; i < client->count; i++) {
        const struct flw_client_block *block = &client->blocks[i];
        if (block->home == stream && block->readers == 0 && !block->is_captured) {
            return flw_client_free(client, i, stream, false);
        }
    }
    return FALLOW_OK;
}

static bool joins(const struct flw_client_capture *how, unsigned i)
{
    return how->joined[i] != how->stream && (i == 0 || how->joined[1] != how->joined[0]);
}

/* Fork both streams into the capture and join them again before the end. */
static fallow_status join(struct flw_client *client, const struct flw_client_capture *how,
                          fallow_capture *capture)
{
    size_t first = client->count;
    fallow_status status = FALLOW_OK;
    uint32_t from = how->stream;
    unsigned forked = 0;
    for (; forked < 2 && status == FALLOW_OK; forked++) {
        if (joins(how, forked)) {
            flw_client_order(client, from, how->joined[forked]);
            from = how->joined[forked];
            status = client->put.ops->capture_join(capture, client->streams[from]);
            status = status == FALLOW_OK ? work(client, how, from) : status;
        }
    }
    if (status == FALLOW_OK && joins(how, 0)) {
        status = work(client, how, how->joined[0]);
    }
    for (unsigned i = 0; i < forked; i++) {
        flw_client_order(client, how->joined[i], how->stream);
    }
    /* The graph orders only its own blocks; blocks of an earlier capture stay. */
    for (size_t i = first; i < client->count; i++) {
        client->blocks[i].home = how->stream;
    }
    return status;
}

/* Launch the graph and destroy it. */
static bool launch(struct flw_client *client, uint32_t stream, CUgraph graph)
{
    const struct flw_driver *cu = &client->sim->cu;
    CUgraphExec executable = NULL;
    bool good = is_cuda(client, cu->cuGraphInstantiateWithFlags(&executable, graph, 0),
                        "cuGraphInstantiateWithFlags");
    unsigned launches = 1 + (unsigned)flw_client_below(client, MOST_LAUNCHES);
    for (unsigned i = 0; good && i < launches; i++) {
        good = is_cuda(client, cu->cuGraphLaunch(executable, client->streams[stream]),
                       "cuGraphLaunch");
    }
    if (good && flw_client_chance(client, 50)) {
        good = is_cuda(client, cu->cuStreamSynchronize(client->streams[stream]),
                       "cuStreamSynchronize");
    }
    good = good && is_cuda(client, cu->cuGraphExecDestroy(executable), "cuGraphExecDestroy");
    return is_cuda(client, cu->cuGraphDestroy(graph), "cuGraphDestroy") && good;
}

/* Make the captured stream the only one that orders the blocks. */
static void prepare(struct flw_client *client, const struct flw_client_capture *how)
{
    uint32_t all = 1u << how->stream | 1u << how->joined[0] | 1u << how->joined[1];
    for (size_t i = 0; i < client->count; i++) {
        struct flw_client_block *block = &client->blocks[i];
        if ((all >> block->home & 1) != 0 || (all & block->readers) != 0) {
            flw_client_gather(client, block);
        }
    }
}

static bool begin_stream(struct flw_client *client, CUstream stream)
{
    const struct flw_driver *cu = &client->sim->cu;
    return is_cuda(client, cu->cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED),
                   "cuStreamBeginCapture");
}

/* Announced before or after the stream captures. A refusal leaves a stream that does not. */
static fallow_status begin(struct flw_client *client, CUstream stream, fallow_capture **out_capture)
{
    const struct flw_driver *cu = &client->sim->cu;
    bool early = flw_client_chance(client, 50) || client->announces_first;
    CUgraph graph = NULL;
    if (!early && !begin_stream(client, stream)) {
        return FALLOW_INVALID_STREAM;
    }
    fallow_status status = client->put.ops->capture_begin(client->put.pool, stream, out_capture);
    if (status == FALLOW_OK) {
        return early && !begin_stream(client, stream) ? FALLOW_INVALID_STREAM : FALLOW_OK;
    }
    if (!flw_client_forgives(client, status)) {
        fprintf(stderr, "capture: fallow_capture_begin answered %s\n", fallow_status_name(status));
        return FALLOW_INVALID_CAPTURE;
    }
    if ((!early &&
         (!is_cuda(client, cu->cuStreamEndCapture(stream, &graph), "cuStreamEndCapture") ||
          !is_cuda(client, cu->cuGraphDestroy(graph), "cuGraphDestroy")))) {
        return FALLOW_INVALID_STREAM;
    }
    return status;
}

/* Renew the stream. A use of the new stream follows, so the pool may discard the state of the old
 * one. */
static bool renew(struct flw_client *client, uint32_t stream, bool tells)
{
    const struct flw_put *put = &client->put;
    void *ptr = NULL;
    fallow_status status = flw_client_renew_stream(client, stream, tells);
    bool good = is_expected(client, status, "fallow_stream_retire");
    if (put->ops->alloc(put->pool, 300, client->streams[stream], &ptr) == FALLOW_OK) {
        status = put->ops->free(put->pool, ptr, client->streams[stream]);
        good = is_expected(client, status, "fallow_free") && good;
    }
    return good;
}

fallow_status flw_client_capture_run(struct flw_client *client,
                                     const struct flw_client_capture *how)
{
    const struct flw_driver *cu = &client->sim->cu;
    CUstream stream = client->streams[how->stream];
    fallow_capture *capture = NULL;
    CUgraph graph = NULL;
    prepare(client, how);
    if (client->trace_address != 0) {
        fprintf(stderr, "%llu: capture on stream %u, joined by %u and %u\n",
                (unsigned long long)client->op_count, how->stream, how->joined[0], how->joined[1]);
    }
    fallow_status worked = begin(client, stream, &capture);
    if (capture == NULL || worked != FALLOW_OK) {
        return worked;
    }
    worked = work(client, how, how->stream);
    if (worked == FALLOW_OK) {
        worked = free_ordinary(client, how->stream);
    }
    if (worked == FALLOW_OK) {
        worked = join(client, how, capture);
    }
    if (worked == FALLOW_OK) {
        worked = work(client, how, how->stream);
    }
    bool good = is_expected(client, worked, "a call inside the capture");
    good = is_cuda(client, cu->cuStreamEndCapture(stream, &graph), "cuStreamEndCapture") && good;
    bool dies_early = how->dies && flw_client_chance(client, 50);
    if (dies_early) { /* a retire would be refused */
        good = renew(client, how->stream, false) && good;
        good = is_cuda(client, cu->cuGraphDestroy(graph), "cuGraphDestroy") && good;
    }
    fallow_status status = client->put.ops->capture_end(capture);
    good = is_expected(client, status, "fallow_capture_end") && good;
    good = good && graph != NULL && (dies_early || launch(client, how->stream, graph));
    if (how->dies && !dies_early) {
        good = renew(client, how->stream, how->tells) && good;
    }
    if (client->trace_address != 0) {
        fprintf(stderr, "%llu: release\n", (unsigned long long)client->op_count);
    }
    status = client->put.ops->capture_release(capture);
    good = is_expected(client, status, "fallow_capture_release") && good;
    client->op_count += 3;
    return good ? worked : FALLOW_INVALID_CAPTURE;
}

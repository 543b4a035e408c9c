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

static bool is_expected(fallow_status status, const char *call)
{
    if (status != FALLOW_OK && status != FALLOW_OUT_OF_MEMORY) {
        fprintf(stderr, "capture: %s answered %s\n", call, fallow_status_name(status));
        return false;
    }
    return true;
}

/* Some blocks lent and some returned on one captured stream. */
static fallow_status work(struct flw_client *client, const struct flw_client_capture *how,
                          uint32_t stream)
{
    unsigned steps = 1 + (unsigned)flw_client_below(client, 8);
    for (unsigned i = 0; i < steps && client->count < client->capacity; i++) {
        struct flw_client_block block = {.home = stream, .is_captured = true};
        void *ptr = NULL;
        block.size_bytes = 1 + flw_client_below(client, how->most_bytes);
        fallow_status status = client->put.ops->alloc(client->put.pool, block.size_bytes,
                                                      client->streams[stream], &ptr);
        client->op_count++;
        if (status != FALLOW_OK) {
            return status;
        }
        block.ptr = ptr;
        if (!flw_client_adopt(client, &block)) {
            return FALLOW_DRIVER;
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

/* Ordinary memory, last used before the capture on the stream itself, returned inside it. */
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

static fallow_status join(struct flw_client *client, const struct flw_client_capture *how,
                          fallow_capture *capture)
{
    size_t first = client->count;
    flw_client_order(client, how->stream, how->joined);
    fallow_status status = client->put.ops->capture_join(capture, client->streams[how->joined]);
    if (status == FALLOW_OK) {
        status = work(client, how, how->joined);
    }
    flw_client_order(client, how->joined, how->stream);
    /* The graph orders its own blocks only: an earlier capture's stay where they are. */
    for (size_t i = first; i < client->count; i++) {
        client->blocks[i].home = how->stream;
    }
    return status;
}

/* From the graph to its last launch and its end. */
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

/* What a captured stream holds must be ordered by it alone. */
static void prepare(struct flw_client *client, const struct flw_client_capture *how)
{
    uint32_t both = 1u << how->stream | 1u << how->joined;
    for (size_t i = 0; i < client->count; i++) {
        struct flw_client_block *block = &client->blocks[i];
        if ((both >> block->home & 1) != 0 || (both & block->readers) != 0) {
            flw_client_gather(client, block);
        }
    }
}

fallow_status flw_client_capture_run(struct flw_client *client,
                                     const struct flw_client_capture *how)
{
    const struct flw_driver *cu = &client->sim->cu;
    CUstream stream = client->streams[how->stream];
    fallow_capture *capture = NULL;
    CUgraph graph = NULL;
    bool early = flw_client_chance(client, 50);
    prepare(client, how);
    if (client->trace_address != 0) {
        fprintf(stderr, "%llu: capture on stream %u, joined by %u\n",
                (unsigned long long)client->op_count, how->stream, how->joined);
    }
    if (!early &&
        !is_cuda(client, cu->cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED),
                 "cuStreamBeginCapture")) {
        return FALLOW_DRIVER;
    }
    fallow_status status = client->put.ops->capture_begin(client->put.pool, stream, &capture);
    if (!is_expected(status, "fallow_capture_begin") || status != FALLOW_OK) {
        return FALLOW_DRIVER;
    }
    if (early &&
        !is_cuda(client, cu->cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED),
                 "cuStreamBeginCapture")) {
        return FALLOW_DRIVER;
    }
    fallow_status worked = work(client, how, how->stream);
    if (worked == FALLOW_OK) {
        worked = free_ordinary(client, how->stream);
    }
    if (worked == FALLOW_OK && how->joined != how->stream) {
        worked = join(client, how, capture);
    }
    if (worked == FALLOW_OK) {
        worked = work(client, how, how->stream);
    }
    bool good = is_expected(worked, "a call inside the capture");
    good = is_cuda(client, cu->cuStreamEndCapture(stream, &graph), "cuStreamEndCapture") && good;
    status = client->put.ops->capture_end(capture);
    good = is_expected(status, "fallow_capture_end") && status == FALLOW_OK && good;
    good = good && graph != NULL && launch(client, how->stream, graph);
    if (client->trace_address != 0) {
        fprintf(stderr, "%llu: release\n", (unsigned long long)client->op_count);
    }
    status = client->put.ops->capture_release(capture);
    good = is_expected(status, "fallow_capture_release") && status == FALLOW_OK && good;
    client->op_count += 3;
    return good ? worked : FALLOW_DRIVER;
}

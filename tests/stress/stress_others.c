/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the parts of a run outside the pool: a second pool that imports blocks, peer devices, work
 * of another context. Does not: use peers (the checker orders the work of one device only). */
#include "stress_worker.h"

#include <unistd.h>

#include "base/bits.h"

#define DEVICES 3

static void touch_import(struct worker *worker, void *ptr, size_t bytes)
{
    const struct run *run = worker->run;
    CUstream stream = worker->client.streams[STRESS_SHARED_STREAMS];
    flw_sim_range range = {(uint64_t)(uintptr_t)ptr, bytes, 0, 0};
    if (!worker->client.is_quiet && run->sim.touch(stream, &range, 1) != 0) {
        stress_fail(worker, "a read of imported memory", FALLOW_OK);
    }
}

static void unimport_one(struct worker *worker)
{
    struct run *run = worker->run;
    unsigned last = worker->import_count - 1;
    fallow_status status = run->put.ops->unimport(run->importer, worker->imports[last]);
    worker->client.op_count++;
    if (status == FALLOW_OK) {
        worker->import_count--;
    } else if (status != FALLOW_CAPTURING) { /* of another thread: later */
        stress_expect(worker, "unimport", status);
    }
}

static void export_one(struct worker *worker, const struct flw_client_block *block)
{
    struct run *run = worker->run;
    fallow_share share;
    void *ptr = &share;
    fallow_status status =
        run->put.ops->export_block(run->put.pool, block->ptr, FALLOW_HANDLE_FD, &share);
    worker->client.op_count++;
    if (status != FALLOW_OK) {
        stress_expect(worker, "export", status);
        return;
    }
    atomic_fetch_add(&run->exports, 1);
    if (share.size_bytes != block->size_bytes) {
        stress_fail(worker, "export (the size)", status);
    }
    if (worker->import_count < STRESS_IMPORTS) {
        status = run->put.ops->import(run->importer, &share, &ptr);
        worker->client.op_count++;
        if (status == FALLOW_OK) {
            worker->imports[worker->import_count++] = ptr;
            touch_import(worker, ptr, block->size_bytes);
        } else {
            stress_expect(worker, "import", status);
        }
    }
    close(share.descriptor);
}

void stress_share(struct worker *worker)
{
    struct flw_client *client = &worker->client;
    if (worker->import_count > 0 && flw_client_chance(client, 50)) {
        unimport_one(worker);
        return;
    }
    for (size_t i = 0; i < client->count; i++) {
        if (client->blocks[i].is_exportable) {
            export_one(worker, &client->blocks[i]);
            return;
        }
    }
}

void stress_change_peers(struct worker *worker)
{
    struct run *run = worker->run;
    struct flw_client *client = &worker->client;
    int device = 1 + (int)flw_client_below(client, DEVICES - 1);
    void *pool = flw_client_chance(client, 20) ? run->importer : run->put.pool;
    fallow_status status = run->put.ops->set_peer(pool, device, flw_client_chance(client, 60));
    client->op_count++;
    if (status == FALLOW_OK) {
        atomic_fetch_add(&run->peers, 1);
    } else if (status != FALLOW_BUSY) { /* during a sleep, or another such call */
        stress_expect(worker, "allow_peer, deny_peer", status);
    }
}

/* ---- another context */

static bool enter_abroad(struct worker *worker)
{
    const struct flw_driver *cu = &worker->run->sim.cu;
    CUcontext popped;
    if (worker->foreign != NULL) {
        return true;
    }
    if (cu->cuCtxCreate_v2 == NULL) {
        stress_fail(worker, "the driver has no cuCtxCreate_v2: run without contexts of others",
                    FALLOW_OK);
        return false;
    }
    if (cu->cuCtxCreate_v2(&worker->foreign, 0, 0) != CUDA_SUCCESS ||
        cu->cuStreamCreate(&worker->foreign_stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS ||
        cu->cuCtxPopCurrent_v2(&popped) != CUDA_SUCCESS) {
        stress_fail(worker, "the test's own context", FALLOW_OK);
        return false;
    }
    return true;
}

/* End the context, either after retiring the stream in the pool or without. */
static void end_abroad(struct worker *worker)
{
    struct run *run = worker->run;
    const struct flw_driver *cu = &run->sim.cu;
    if (worker->foreign == NULL) {
        return;
    }
    fallow_status status = run->put.ops->retire(run->put.pool, worker->foreign_stream);
    stress_expect(worker, "stream_retire of another context's stream", status);
    if (cu->cuCtxDestroy_v2(worker->foreign) != CUDA_SUCCESS) {
        stress_fail(worker, "the test's own cuCtxDestroy", FALLOW_OK);
    }
    worker->foreign = NULL;
}

/* Driver calls of the test's own may meet a failure that was planned for the pool. */
static bool wait_for_home(struct worker *worker, const struct flw_client_block *block)
{
    const struct flw_client *client = &worker->client;
    const struct flw_driver *cu = &worker->run->sim.cu;
    CUresult recorded = CUDA_ERROR_UNKNOWN, waits = CUDA_ERROR_UNKNOWN;
    CUcontext popped;
    for (int i = 0; i < 16 && recorded != CUDA_SUCCESS; i++) {
        recorded = cu->cuEventRecord(client->events[block->home], client->streams[block->home]);
    }
    if (recorded != CUDA_SUCCESS || cu->cuCtxPushCurrent_v2(worker->foreign) != CUDA_SUCCESS) {
        return false;
    }
    for (int i = 0; i < 16 && waits != CUDA_SUCCESS; i++) {
        waits = cu->cuStreamWaitEvent(worker->foreign_stream, client->events[block->home], 0);
    }
    return cu->cuCtxPopCurrent_v2(&popped) == CUDA_SUCCESS && waits == CUDA_SUCCESS;
}

/* Read there after the wait for home; announced, so that the free need not wait. */
static void read_abroad(struct worker *worker, const struct flw_client_block *block)
{
    const struct run *run = worker->run;
    CUcontext popped;
    flw_sim_range range = {(uint64_t)(uintptr_t)block->ptr, flw_min(block->size_bytes, 4096), 0, 0};
    if (!wait_for_home(worker, block) ||
        run->sim.cu.cuCtxPushCurrent_v2(worker->foreign) != CUDA_SUCCESS ||
        run->sim.touch(worker->foreign_stream, &range, 1) != 0 ||
        run->sim.cu.cuCtxPopCurrent_v2(&popped) != CUDA_SUCCESS) {
        stress_fail(worker, "a read in another context", FALLOW_OK);
    }
}

void stress_use_abroad(struct worker *worker)
{
    struct run *run = worker->run;
    struct flw_client *client = &worker->client;
    if (flw_client_chance(client, 15)) {
        end_abroad(worker);
        return;
    }
    if (client->is_quiet || client->count == 0 || !enter_abroad(worker)) {
        return;
    }
    struct flw_client_block *block = &client->blocks[flw_client_below(client, client->count)];
    if (block->is_captured) {
        return;
    }
    read_abroad(worker, block);
    fallow_status status =
        run->put.ops->record_use(run->put.pool, block->ptr, worker->foreign_stream);
    client->op_count++;
    atomic_fetch_add(&run->foreign_uses, 1);
    if (status != FALLOW_OK) {
        stress_expect(worker, "record_use of another context's stream", status);
        if (run->sim.cu.cuStreamSynchronize(worker->foreign_stream) != CUDA_SUCCESS) {
            stress_fail(worker, "the test's own cuStreamSynchronize", FALLOW_OK);
        }
    }
}

void stress_leave_others(struct worker *worker)
{
    while (worker->import_count > 0 && !atomic_load(&worker->run->failed)) {
        unimport_one(worker);
    }
    end_abroad(worker);
}

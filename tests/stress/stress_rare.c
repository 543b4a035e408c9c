/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: operations that happen once in hundreds: new and ended streams and captures, maintenance,
 * misuse, queries. */
#include "stress_worker.h"

#include <stdio.h>

#include "base/bits.h"
#include "support/client_capture.h"

/* Frees that must be refused and change nothing. */
static void misuse(struct worker *worker)
{
    struct flw_client *client = &worker->client;
    const struct flw_put *put = &client->put;
    fallow_stream stream = client->streams[stress_pick_stream(worker)];
    int local = 0;
    void *wild[] = {&local, (void *)(uintptr_t)flw_client_random(client), (void *)(uintptr_t)1};
    fallow_status status = put->ops->free(put->pool, wild[flw_client_below(client, 2) * 2], stream);
    if (status == FALLOW_INVALID_POINTER && client->count > 0) {
        const struct flw_client_block *block =
            &client->blocks[flw_client_below(client, client->count)];
        unsigned char *inside = block->ptr + 1 + flw_client_below(client, block->size_bytes);
        if (inside < block->ptr + block->size_bytes) {
            status = put->ops->free(put->pool, inside, stream);
        }
    }
    client->op_count += 2;
    bool has_ended = client->is_cut_off && status == FALLOW_INVALID_STREAM; /* as of a good free */
    bool is_over = has_ended || (status == FALLOW_OK &&
                                 (worker->run->settings.faults != 0 || client->is_cut_off));
    if (status != FALLOW_INVALID_POINTER && !is_over) { /* after a loss every free is accepted */
        stress_fail(worker, "a wild or interior free", status);
    }
}

/* Importers' memory stays allocated after the exporter has freed it. */
static bool agrees(const struct run *run, const fallow_stats *stats, const flw_sim_ledger *ledger)
{
    return run->put.ops->exact_ledger && !run->settings.share
               ? stats->reserved_bytes == ledger->given_bytes
               : stats->reserved_bytes <= ledger->given_bytes;
}

/* With one thread every counter is exact at every moment; but for a helper's, which may be
 * releasing between the two looks. */
void stress_compare_ledger(struct worker *worker)
{
    struct run *run = worker->run;
    fallow_stats stats;
    uint64_t requested = 0, live = worker->client.count + run->mailbox.count;
    fallow_status status = run->put.ops->get_stats(run->put.pool, &stats);
    flw_sim_ledger ledger = flw_sim_read_ledger(&run->sim);
    for (unsigned i = 0; run->settings.helper && i < 10000 && !agrees(run, &stats, &ledger); i++) {
        status = run->put.ops->get_stats(run->put.pool, &stats);
        ledger = flw_sim_read_ledger(&run->sim);
    }
    for (size_t i = 0; i < worker->client.count; i++) {
        requested += worker->client.blocks[i].size_bytes;
    }
    for (size_t i = 0; i < run->mailbox.count; i++) {
        requested += run->mailbox.blocks[i].size_bytes;
    }
    if (status != FALLOW_OK || !agrees(run, &stats, &ledger) ||
        stats.requested_bytes != requested || stats.live_count != live) {
        fprintf(stderr,
                "stats: reserved %llu, ledger %llu; requested %llu, model %llu; live %llu, model "
                "%llu\n",
                (unsigned long long)stats.reserved_bytes, (unsigned long long)ledger.given_bytes,
                (unsigned long long)stats.requested_bytes, (unsigned long long)requested,
                (unsigned long long)stats.live_count, (unsigned long long)live);
        stress_fail(worker, "get_stats", status);
    }
}

/* Query an allocated block. */
static void ask(struct worker *worker)
{
    struct flw_client *client = &worker->client;
    const struct flw_put_ops *ops = client->put.ops;
    fallow_block info;
    fallow_oom_report report;
    if (ops->block_info == NULL || client->count == 0 || client->is_cut_off) {
        return;
    }
    const struct flw_client_block *block = &client->blocks[flw_client_below(client, client->count)];
    fallow_status status = ops->block_info(
        client->put.pool, block->ptr + flw_client_below(client, block->size_bytes), &info);
    if (status != FALLOW_OK || info.base != block->ptr ||
        info.requested_bytes != block->size_bytes || info.tag != block->tag ||
        info.usable_bytes < info.requested_bytes || info.state == FALLOW_BLOCK_FREE) {
        stress_fail(worker, "block_info", status);
    }
    status = ops->get_oom_report(client->put.pool, &report);
    if (status != FALLOW_OK || report.owner_count > FALLOW_OOM_OWNERS) {
        stress_fail(worker, "get_oom_report", status);
    }
    client->op_count += 2;
}

static void trim(struct worker *worker)
{
    struct flw_client *client = &worker->client;
    const struct flw_put_ops *ops = client->put.ops;
    uint64_t keep = flw_client_below(client, 64 * FLW_MIB);
    uint64_t deadline = flw_client_chance(client, 50) ? 0 : flw_client_below(client, 2000000);
    size_t released = 0;
    client->op_count++;
    if (ops->trim_within == NULL || flw_client_chance(client, 50)) {
        stress_expect(worker, "trim", ops->trim(client->put.pool, keep));
        return;
    }
    fallow_status status = ops->trim_within(client->put.pool, keep, deadline, &released);
    if (status != FALLOW_TIMEOUT || deadline == 0) {
        stress_expect(worker, "trim_within", status);
    }
}

/* ---- streams */

/* Use a destroyed handle, which a pool that tracks identities refuses. With one thread only: else
 * the handle may have been reused. */
static void use_ended_stream(struct worker *worker)
{
    struct flw_client *client = &worker->client;
    const struct flw_driver *cu = &worker->run->sim.cu;
    CUstream ended = NULL;
    void *ptr = &ended;
    if (cu->cuStreamCreate(&ended, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) {
        return;
    }
    fallow_status status = client->put.ops->alloc(client->put.pool, 4096, ended, &ptr);
    if (status == FALLOW_OK) {
        stress_expect(worker, "free", client->put.ops->free(client->put.pool, ptr, ended));
    }
    if (cu->cuStreamDestroy_v2(ended) != CUDA_SUCCESS) {
        stress_fail(worker, "the test's own cuStreamDestroy", FALLOW_OK);
    }
    status = client->put.ops->alloc(client->put.pool, 4096, ended, &ptr);
    client->op_count += 3;
    if (status != FALLOW_INVALID_STREAM || ptr != NULL) {
        stress_expect(worker, "alloc on a destroyed stream", status);
        if (status == FALLOW_OK) {
            stress_fail(worker, "alloc on a destroyed stream", status);
        }
    }
}

static void renew_stream(struct worker *worker, uint32_t own)
{
    struct flw_client *client = &worker->client;
    const struct stress_settings *settings = &worker->run->settings;
    if (client->is_cut_off) {
        stress_expect(worker, "stream_retire",
                      client->put.ops->retire(client->put.pool, client->streams[own]));
        return;
    }
    bool tells = settings->dies == 0 || flw_client_chance(client, 50);
    stress_expect(worker, "stream_retire", flw_client_renew_stream(client, own, tells));
    if (settings->dies != 0 && settings->threads == 1) {
        use_ended_stream(worker);
    }
}

void stress_renew_shared(struct worker *worker)
{
    struct run *run = worker->run;
    struct mailbox *mailbox = &run->mailbox;
    uint32_t index = (uint32_t)flw_client_below(&worker->client, STRESS_SHARED_STREAMS);
    pthread_mutex_lock(&run->turnstile);
    pthread_rwlock_wrlock(&run->steps);
    for (unsigned i = 0; i < mailbox->count && !run->is_quiet; i++) {
        struct flw_client_block *block = &mailbox->blocks[i];
        if (block->home == index) {
            flw_client_gather(&worker->client, block);
            block->home = (index + 1) % STRESS_SHARED_STREAMS;
            flw_client_order(&worker->client, index, block->home);
        }
    }
    for (uint64_t i = 0; i < run->settings.threads && !run->is_quiet; i++) {
        flw_client_leave_stream(&run->workers[i].client, index, STRESS_SHARED_STREAMS);
    }
    if (!run->is_quiet) {
        bool tells = flw_client_chance(&worker->client, 30);
        stress_expect(worker, "stream_retire",
                      flw_client_renew_stream(&worker->client, index, tells));
        run->shared[index] = worker->client.streams[index];
    }
    for (uint64_t i = 0; i < run->settings.threads; i++) {
        run->workers[i].client.streams[index] = run->shared[index];
    }
    pthread_rwlock_unlock(&run->steps);
    pthread_mutex_unlock(&run->turnstile);
}

/* ---- captures */

/* Frees during the capture wait for the end; blocks used by the graph stay allocated longer. */
static void capture_in_context_order(struct worker *worker, uint32_t own)
{
    struct flw_client *client = &worker->client;
    const struct flw_driver *cu = &worker->run->sim.cu;
    const struct flw_put *put = &client->put;
    CUstream stream = client->streams[own];
    CUgraph graph = NULL;
    CUgraphExec executable = NULL;
    struct flw_client_block block = {.home = own, .size_bytes = 70000};
    void *kept = NULL, *given = NULL;
    fallow_status status = put->ops->alloc(put->pool, block.size_bytes, stream, &kept);
    if (status != FALLOW_OK) {
        stress_expect(worker, "alloc", status);
        return;
    }
    flw_sim_range range = {(uint64_t)(uintptr_t)kept, block.size_bytes, 1, 0};
    put->ops->context_capture_begin();
    bool good = cu->cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS;
    for (uint64_t i = flw_client_below(client, 20); i > 0 && status == FALLOW_OK; i--) {
        status = put->ops->alloc(put->pool, 1 + flw_client_below(client, 200000), stream, &given);
        if (status == FALLOW_OK) {
            status = put->ops->free(put->pool, given, stream);
        }
    }
    good = good && worker->run->sim.touch(stream, &range, 1) == 0;
    good = cu->cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS && good;
    put->ops->context_capture_end();
    good = good && cu->cuGraphInstantiateWithFlags(&executable, graph, 0) == CUDA_SUCCESS &&
           cu->cuGraphLaunch(executable, stream) == CUDA_SUCCESS &&
           cu->cuGraphExecDestroy(executable) == CUDA_SUCCESS &&
           cu->cuGraphDestroy(graph) == CUDA_SUCCESS;
    if (!good) {
        stress_fail(worker, "a capture beside a pool in context order", status);
    }
    stress_expect(worker, "a call beside a capture", status);
    stress_expect(worker, "free", put->ops->free(put->pool, kept, stream));
}

/* Announced, and nothing more: a sleep may be under way. */
static void capture_quietly(struct worker *worker, CUstream stream)
{
    const struct flw_put *put = &worker->client.put;
    fallow_capture *capture = NULL;
    fallow_status status = put->ops->capture_begin(put->pool, stream, &capture);
    if (status == FALLOW_OK) {
        stress_expect(worker, "capture_end", put->ops->capture_end(capture));
        stress_expect(worker, "capture_release", put->ops->capture_release(capture));
    } else {
        stress_expect(worker, "capture_begin", status);
    }
}

static void capture(struct worker *worker, uint32_t own)
{
    struct flw_client *client = &worker->client;
    struct flw_client_capture how = {.stream = own, .joined = {own, own}, .most_bytes = 64 << 10};
    if (client->put.ops->capture_begin == NULL || client->count > client->capacity / 2) {
        return;
    }
    if (worker->run->settings.order != 0) {
        if (!client->is_cut_off) {
            capture_in_context_order(worker, own);
        }
        return;
    }
    if (client->is_quiet) {
        capture_quietly(worker, client->streams[own]);
        return;
    }
    for (unsigned i = 0; i < 2; i++) {
        if (flw_client_chance(client, 50)) {
            how.joined[i] =
                STRESS_SHARED_STREAMS +
                (uint32_t)flw_client_below(client, client->stream_count - STRESS_SHARED_STREAMS);
        }
    }
    how.dies =
        worker->run->settings.dies != 0 && !client->is_cut_off && flw_client_chance(client, 30);
    how.tells = flw_client_chance(client, 30);
    worker->is_in_capture = true;
    fallow_status status = flw_client_capture_run(client, &how);
    worker->is_in_capture = false;
    stress_expect(worker, "a capture", status);
}

/* ---- */

static void upkeep(struct worker *worker)
{
    struct flw_client *client = &worker->client;
    if (client->put.ops->poll != NULL) {
        client->op_count++;
        stress_expect(worker, "poll", client->put.ops->poll(client->put.pool));
    }
}

static void choose(struct worker *worker)
{
    struct flw_client *client = &worker->client;
    const struct stress_settings *settings = &worker->run->settings;
    uint64_t kind = flw_client_below(client, 100);
    uint32_t own = STRESS_SHARED_STREAMS +
                   (uint32_t)flw_client_below(client, client->stream_count - STRESS_SHARED_STREAMS);
    if (kind < 8 && settings->dies != 0 && settings->threads > 1) {
        worker->wants_renewal = !client->is_quiet && !client->is_cut_off;
    } else if (kind < 15 && settings->retire) {
        renew_stream(worker, own);
    } else if (kind < 20) {
        trim(worker);
    } else if (kind < 38 && settings->capture) {
        capture(worker, own);
    } else if (kind < 52) {
        misuse(worker);
    } else if (kind < 58) {
        ask(worker);
    } else if (kind < 66 && settings->sleep) {
        worker->wants_sleep = !client->is_quiet;
    } else if (kind < 70 && settings->share) {
        stress_change_peers(worker);
    } else if (kind < 76 && settings->share) {
        stress_share(worker);
    } else if (kind < 90 && settings->foreign && !client->is_cut_off) {
        stress_use_abroad(worker);
    } else {
        upkeep(worker);
    }
}

void stress_rare(struct worker *worker)
{
    struct run *run = worker->run;
    choose(worker);
    bool is_comparable = run->settings.threads == 1 && !worker->client.is_quiet &&
                         !atomic_load(&run->lost) && !atomic_load(&run->failed);
    if (is_comparable) {
        stress_compare_ledger(worker);
    }
    if (flw_sim_read_ledger(&run->sim).violation_count != 0) {
        stress_fail(worker, "the rule checker (see below)", FALLOW_OK);
    }
}

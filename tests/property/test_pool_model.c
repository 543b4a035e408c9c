/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: random sequences of every public call, in one thread, compared with the model after each
 * step; and sequences that every pool can serve, with statuses equal to the oracle's, call by
 * call.
 *
 *   test_pool_model [--pool NAME] [--seed N] [--steps N] [--runs N] [--no-peaks 1]
 *
 * Each run draws other settings (schedule, limit, virtual memory management or not, economy). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "property/model.h"
#include "support/client_capture.h"

#define LIVE_TARGET 160

static uint32_t pick_stream(struct flw_model *model)
{
    return (uint32_t)flw_client_below(&model->client, model->client.stream_count);
}

/* From 0 to beyond the device, and the sums that wrap. */
static size_t pick_size(struct flw_model *model)
{
    static const size_t absurd[] = {SIZE_MAX,         SIZE_MAX - 1,    SIZE_MAX - 255,
                                    SIZE_MAX - 511,   SIZE_MAX / 2,    SIZE_MAX / 2 + 1,
                                    SIZE_MAX - 65535, (size_t)1 << 63, (size_t)1 << 48};
    struct flw_client *client = &model->client;
    uint64_t kind = flw_client_below(client, 100);
    if (kind < 2) {
        return 0;
    }
    if (kind < 3) {
        return absurd[flw_client_below(client, sizeof absurd / sizeof *absurd)];
    }
    if (kind < 4) {
        return model->limit_bytes + 1 + flw_client_below(client, 1 << 30);
    }
    if (kind < 30) { /* a few recurring sizes */
        static const size_t again[] = {1, 256, 257, 512, 4096, 4097, 65536, FLW_MIB, FLW_MIB + 1};
        return again[flw_client_below(client, sizeof again / sizeof *again)];
    }
    uint64_t most = model->only_common ? model->device_bytes / 4096 : model->limit_bytes / 4;
    uint64_t top = kind < 70 ? 4096 : kind < 92 ? FLW_MIB : flw_max(most, FLW_MIB);
    uint64_t log2 = flw_client_below(client, flw_log2_floor(top) + 1);
    return flw_min((1ull << log2) + flw_client_below(client, 1ull << log2), top);
}

static void step_alloc(struct flw_model *model)
{
    struct flw_client_block asked = {.size_bytes = pick_size(model), .home = pick_stream(model)};
    void *ptr = model;
    fallow_status status = model->put.ops->alloc(model->put.pool, asked.size_bytes,
                                                 model->client.streams[asked.home], &ptr);
    flw_model_note(model, status);
    flw_model_judge_alloc(model, &asked, status, ptr);
}

static void step_alloc_aligned(struct flw_model *model)
{
    static const size_t bad[] = {3, 513, 4u << 20, SIZE_MAX, (size_t)1 << 63, 768};
    struct flw_client_block asked = {.size_bytes = pick_size(model), .home = pick_stream(model)};
    void *ptr = model;
    bool is_bad = flw_client_chance(&model->client, 10);
    asked.align_bytes = is_bad ? bad[flw_client_below(&model->client, sizeof bad / sizeof *bad)]
                               : 1ull << flw_client_below(&model->client, 22);
    fallow_status status =
        model->put.ops->alloc_aligned(model->put.pool, asked.size_bytes, asked.align_bytes,
                                      model->client.streams[asked.home], &ptr);
    flw_model_note(model, status);
    if (is_bad) {
        flw_model_expect(model, status == FALLOW_INVALID_ARGUMENT && ptr == NULL,
                         "a bad alignment is refused", status);
        return;
    }
    flw_model_judge_alloc(model, &asked, status, ptr);
}

/* Check that a refused free leaves the block unchanged. */
static void expect_unchanged(struct flw_model *model, fallow_status status, const char *sentence,
                             fallow_status wanted)
{
    flw_model_note(model, status);
    flw_model_expect(model, status == wanted, sentence, status);
    model->misuse_count += wanted == FALLOW_INVALID_POINTER;
    model->refused_use_count += wanted != FALLOW_INVALID_POINTER;
    flw_model_compare(model);
}

static void step_free(struct flw_model *model)
{
    struct flw_client *client = &model->client;
    size_t index = flw_client_below(client, client->count);
    struct flw_client_block block = client->blocks[index];
    uint32_t stream = flw_client_chance(client, 60) ? block.home : pick_stream(model);
    bool sized = block.align_bytes == 0 && flw_client_chance(client, 30);
    bool twice = flw_client_chance(client, 10);
    bool is_complete = !model->only_common && model->put.ops->free_complete != NULL &&
                       flw_client_chance(client, 5);
    fallow_status status;
    if (is_complete) { /* after all work, without a stream: any stream may have the memory next */
        flw_model_expect(model, model->sim.cu.cuCtxSynchronize() == CUDA_SUCCESS, "all work ends",
                         FALLOW_OK);
        flw_client_drop(client, index, &block);
        flw_overlap_release(client->overlap, (uintptr_t)block.ptr, block.claimed_bytes);
        status = model->put.ops->free_complete(model->put.pool, block.ptr);
    } else {
        status = flw_client_free(client, index, stream, sized);
    }
    flw_model_note(model, status);
    flw_model_expect(model, status == FALLOW_OK, "a good free succeeds", status);
    if (twice) {
        status = model->put.ops->free(model->put.pool, block.ptr, client->streams[stream]);
        expect_unchanged(model, status, "a second free is refused", FALLOW_INVALID_POINTER);
        status = model->put.ops->record_use(model->put.pool, block.ptr, client->streams[stream]);
        flw_model_expect(model, status == FALLOW_INVALID_POINTER,
                         "no use of a freed block can be announced", status);
        model->refused_use_count++;
    }
}

static void step_free_wrong_size(struct flw_model *model)
{
    struct flw_client *client = &model->client;
    const struct flw_client_block *block = &client->blocks[flw_client_below(client, client->count)];
    static const size_t factors[] = {2, 3, 100};
    size_t wrong = flw_client_chance(client, 20)
                       ? SIZE_MAX
                       : block->size_bytes * factors[flw_client_below(client, 3)] + 65536;
    if (block->align_bytes == 0 && block->size_bytes >= 2048 && flw_client_chance(client, 40)) {
        wrong = flw_client_below(client, 257); /* a class below */
    }
    if (block->align_bytes != 0 || (block->tag != 0)) {
        wrong = SIZE_MAX;
    }
    fallow_status status = model->put.ops->free_sized(model->put.pool, block->ptr, wrong,
                                                      client->streams[block->home]);
    expect_unchanged(model, status, "a wrong size is refused", FALLOW_INVALID_ARGUMENT);
}

static void step_misuse(struct flw_model *model)
{
    struct flw_client *client = &model->client;
    const struct flw_put *put = &model->put;
    fallow_stream stream = client->streams[pick_stream(model)];
    const struct flw_client_block *block = &client->blocks[flw_client_below(client, client->count)];
    unsigned char *inside = block->ptr + 1 + flw_client_below(client, block->size_bytes);
    void *wild[] = {&stream,
                    (void *)(uintptr_t)1,
                    (void *)(uintptr_t)UINTPTR_MAX,
                    (void *)(uintptr_t)(flw_client_random(client) | 1),
                    model->foreign,
                    block->ptr + block->size_bytes > inside ? inside : (unsigned char *)model};
    void *ptr = wild[flw_client_below(client, sizeof wild / sizeof *wild)];
    fallow_status status = put->ops->free(put->pool, ptr, stream);
    expect_unchanged(model, status, "a wild, foreign or interior free is refused",
                     FALLOW_INVALID_POINTER);
    status = put->ops->record_use(put->pool, ptr, stream);
    flw_model_note(model, status);
    flw_model_expect(model, status == FALLOW_INVALID_POINTER,
                     "no use of a wild pointer can be announced", status);
    model->refused_use_count++;
    status = put->ops->free(put->pool, NULL, stream);
    flw_model_note(model, status);
    flw_model_expect(model, status == FALLOW_OK, "a free of NULL is nothing", status);
    if (put->ops->block_info != NULL && ptr != (void *)inside) {
        fallow_block info;
        status = put->ops->block_info(put->pool, ptr, &info);
        flw_model_expect(model, status == FALLOW_INVALID_POINTER, "a wild pointer has no block",
                         status);
    }
}

static void step_request(struct flw_model *model)
{
    struct flw_client *client = &model->client;
    const struct flw_put_ops *ops = model->put.ops;
    static const uint32_t flags[] = {0,
                                     FALLOW_REQUEST_NO_WAIT,
                                     FALLOW_REQUEST_NO_GROW,
                                     FALLOW_REQUEST_DEDICATED,
                                     FALLOW_REQUEST_ZERO,
                                     FALLOW_REQUEST_EVERY_STREAM,
                                     1u << 31};
    struct flw_client_block asked = {.size_bytes = pick_size(model), .home = pick_stream(model)};
    fallow_request request = {.struct_size = sizeof request, .size_bytes = asked.size_bytes};
    fallow_stats before, after;
    void *ptr = model;
    request.flags = flags[flw_client_below(client, sizeof flags / sizeof *flags)];
    request.tag = asked.tag = 1 + (uint32_t)flw_client_below(client, 1000);
    request.align_bytes = asked.align_bytes =
        flw_client_chance(client, 30) ? 1ull << flw_client_below(client, 22) : 0;
    if (request.flags == FALLOW_REQUEST_DEDICATED) {
        asked.align_bytes = flw_max(asked.align_bytes, 1024); /* whole handles: no bound on waste */
    }
    (void)!ops->get_stats(model->put.pool, &before);
    fallow_status status =
        ops->alloc_request(model->put.pool, &request, client->streams[asked.home], &ptr);
    (void)!ops->get_stats(model->put.pool, &after);
    if (request.flags == 1u << 31) {
        flw_model_expect(model, status == FALLOW_INVALID_ARGUMENT && ptr == NULL,
                         "unknown flags are refused", status);
        return;
    }
    if (request.flags == FALLOW_REQUEST_EVERY_STREAM) {
        asked.home = pick_stream(model); /* the first work may be on any stream */
    }
    if (request.flags == FALLOW_REQUEST_NO_GROW) {
        flw_model_expect(model, after.reserved_bytes <= before.reserved_bytes,
                         "NO_GROW takes nothing from the driver", status);
    }
    if (request.flags == FALLOW_REQUEST_NO_WAIT) {
        flw_model_expect(model, after.wait_count == before.wait_count, "NO_WAIT does not wait",
                         status);
    }
    if (status == FALLOW_WOULD_WAIT && request.flags != 0) {
        status = FALLOW_OUT_OF_MEMORY;
    }
    flw_model_judge_alloc(model, &asked, status, ptr);
}

static void step_batch(struct flw_model *model)
{
    struct flw_client *client = &model->client;
    uint32_t stream = pick_stream(model);
    size_t sizes[8], count = 1 + flw_client_below(client, 8);
    void *ptrs[8];
    bool has_absurd = false;
    fallow_stats before, after;
    for (size_t i = 0; i < count; i++) {
        sizes[i] = pick_size(model);
        has_absurd = has_absurd || sizes[i] > model->limit_bytes;
        ptrs[i] = model;
    }
    (void)!model->put.ops->get_stats(model->put.pool, &before);
    fallow_status status =
        model->put.ops->alloc_batch(model->put.pool, sizes, count, client->streams[stream], ptrs);
    (void)!model->put.ops->get_stats(model->put.pool, &after);
    flw_model_expect(model, status != FALLOW_OK || !has_absurd, "a batch is all or none", status);
    for (size_t i = 0; i < count; i++) {
        struct flw_client_block asked = {.size_bytes = sizes[i], .home = stream};
        if (status == FALLOW_OK) {
            flw_model_judge_alloc(model, &asked, status, ptrs[i]);
        } else {
            flw_model_expect(model, ptrs[i] == NULL, "no pointer after a failed batch", status);
        }
    }
    if (status != FALLOW_OK) {
        flw_model_expect(model,
                         after.requested_bytes == before.requested_bytes &&
                             after.live_count == before.live_count,
                         "a failed batch allocates nothing", status);
        model->zero_size_count += after.zero_size_count - before.zero_size_count;
        model->peak_is_exact = false;
    }
}

static void step_trim(struct flw_model *model)
{
    const struct flw_put *put = &model->put;
    uint64_t keep = flw_client_chance(&model->client, 50)
                        ? 0
                        : flw_client_below(&model->client, model->limit_bytes);
    if (put->ops->trim_within == NULL || flw_client_chance(&model->client, 50)) {
        fallow_status status = put->ops->trim(put->pool, keep);
        flw_model_expect(model, status == FALLOW_OK || status == FALLOW_TIMEOUT, "trim succeeds",
                         status);
        return;
    }
    fallow_stats before, after;
    size_t released = SIZE_MAX;
    uint64_t deadline_ns = flw_client_chance(&model->client, 50) ? 0 : 1000000;
    (void)!put->ops->get_stats(put->pool, &before);
    fallow_status status = put->ops->trim_within(put->pool, keep, deadline_ns, &released);
    (void)!put->ops->get_stats(put->pool, &after);
    flw_model_expect(model, status == FALLOW_OK || status == FALLOW_TIMEOUT,
                     "trim_within succeeds or is late", status);
    flw_model_expect(model, before.reserved_bytes - after.reserved_bytes == released,
                     "trim_within tells what it released", status);
    flw_model_expect(model, deadline_ns != 0 || after.wait_count == before.wait_count,
                     "trim with deadline 0 does not wait", status);
}

/* Free all blocks: a trim must release everything, and the pool must serve its whole limit again. */
static void step_drain(struct flw_model *model)
{
    const struct flw_put *put = &model->put;
    while (model->client.count > 0) {
        fallow_status status =
            flw_client_free(&model->client, model->client.count - 1, pick_stream(model), false);
        flw_model_expect(model, status == FALLOW_OK, "a good free succeeds", status);
    }
    /* The fences that one trim records are complete at the next. The second trim may find slabs that
     * several streams shared, and record fences for these. */
    fallow_status status = FALLOW_OK;
    for (int round = 0; round < 4 && status == FALLOW_OK; round++) {
        status = put->ops->trim(put->pool, 0);
        model->sim.step(UINT64_MAX);
    }
    flw_model_expect(model, status == FALLOW_OK, "trim succeeds", status);
    fallow_stats stats;
    (void)!put->ops->get_stats(put->pool, &stats);
    if (stats.reserved_bytes != 0) {
        fprintf(stderr,
                "left: reserved %llu, live %llu, cached %llu, pending %llu, captured %llu\n",
                (unsigned long long)stats.reserved_bytes, (unsigned long long)stats.live_bytes,
                (unsigned long long)stats.cached_bytes, (unsigned long long)stats.deferred_bytes,
                (unsigned long long)stats.captured_bytes);
    }
    flw_model_expect(model, stats.reserved_bytes == 0, "trim of an idle pool leaves nothing",
                     status);
    struct flw_client_block asked = {.size_bytes = model->limit_bytes / 2, .home = 0};
    void *ptr = NULL;
    status = put->ops->alloc(put->pool, asked.size_bytes, model->client.streams[0], &ptr);
    flw_model_expect(model, status == FALLOW_OK, "an idle pool allocates half of its limit",
                     status);
    flw_model_judge_alloc(model, &asked, status, ptr);
    status = flw_client_free(&model->client, 0, 0, false);
    flw_model_expect(model, status == FALLOW_OK, "a good free succeeds", status);
}

static void step_capture(struct flw_model *model)
{
    struct flw_client_capture how = {.stream = pick_stream(model), .most_bytes = 3 << 20};
    for (unsigned i = 0; i < 2; i++) {
        how.joined[i] = flw_client_chance(&model->client, 50) ? how.stream : pick_stream(model);
    }
    model->peak_is_exact = false;
    fallow_status status = flw_client_capture_run(&model->client, &how);
    flw_model_expect(model, status == FALLOW_OK || status == FALLOW_OUT_OF_MEMORY,
                     "a capture runs through", status);
}

static void step_rare(struct flw_model *model)
{
    const struct flw_put *put = &model->put;
    uint64_t kind = flw_client_below(&model->client, 100);
    fallow_status status = FALLOW_OK;
    if (kind < 30) {
        status = flw_client_renew_stream(&model->client, pick_stream(model), true);
    } else if (kind < 35) {
        CUstream unseen = NULL;
        CUresult result = model->sim.cu.cuStreamCreate(&unseen, CU_STREAM_NON_BLOCKING);
        status = put->ops->retire(put->pool, unseen);
        flw_model_expect(model,
                         result == CUDA_SUCCESS &&
                             model->sim.cu.cuStreamDestroy_v2(unseen) == CUDA_SUCCESS,
                         "a stream that the pool never saw may be retired", status);
    } else if (kind < 55) {
        step_trim(model);
    } else if (kind < 60) {
        step_drain(model);
    } else if (kind < 80 && put->ops->capture_begin != NULL && !model->only_common) {
        step_capture(model);
    } else if (put->ops->poll != NULL) {
        status = put->ops->poll(put->pool);
    }
    flw_model_expect(model, status == FALLOW_OK, "retire and poll succeed", status);
    if (put->ops->validate != NULL) {
        status = put->ops->validate(put->pool);
        flw_model_expect(model, status == FALLOW_OK, "the pool's invariants hold", status);
    }
}

static void step(struct flw_model *model, uint64_t index)
{
    struct flw_client *client = &model->client;
    const struct flw_put_ops *ops = model->put.ops;
    flw_model_begin_step(model, index);
    uint64_t kind = flw_client_below(client, 1000);
    bool full = client->count >= LIVE_TARGET;
    if (kind < 10) {
        step_rare(model);
    } else if (kind < 30) {
        model->sim.step(1ull << flw_client_below(client, 10));
    } else if (client->count == 0 || (kind < 400 && !full)) {
        step_alloc(model);
    } else if (kind < 450 && !full) {
        step_alloc_aligned(model);
    } else if (kind < 500 && !full && !model->only_common && ops->alloc_request != NULL) {
        step_request(model);
    } else if (kind < 520 && !full && !model->only_common && ops->alloc_batch != NULL) {
        step_batch(model);
    } else if (kind < 540) {
        step_misuse(model);
    } else if (kind < 560) {
        step_free_wrong_size(model);
    } else if (kind < 620) {
        flw_client_read(client, &client->blocks[flw_client_below(client, client->count)],
                        pick_stream(model));
    } else {
        step_free(model);
    }
    if (index % 8 == 0) {
        flw_model_compare(model);
    }
}

static void run(const struct flw_model_setup *setup, uint64_t steps, struct flw_model *model)
{
    if (!flw_model_init(model, setup)) {
        exit(1);
    }
    for (uint64_t i = 0; i < steps; i++) {
        step(model, i);
    }
    flw_model_finish(model);
}

/* Both pools give the same answers to the same calls. */
static void compare_with_oracle(const struct flw_model_setup *setup, uint64_t steps)
{
    struct flw_model oracle, model;
    struct flw_model_setup common = *setup;
    common.only_common = true;
    common.limit_bytes = 0;
    common.device_bytes = 256ull << 30;
    run(&common, steps, &model);
    common.ops = &flw_put_oracle;
    run(&common, steps, &oracle);
    size_t i = 0;
    while (i < model.transcript_count && i < oracle.transcript_count &&
           model.transcript[i] == oracle.transcript[i]) {
        i++;
    }
    if (i < model.transcript_count || i < oracle.transcript_count) {
        fprintf(stderr, "property.model: call %zu of seed %llu: %s answers %s, oracle %s\n", i,
                (unsigned long long)setup->seed, setup->ops->name,
                i < model.transcript_count ? fallow_status_name(model.transcript[i]) : "nothing",
                i < oracle.transcript_count ? fallow_status_name(oracle.transcript[i]) : "nothing");
        exit(1);
    }
    free(model.transcript);
    free(oracle.transcript);
}

int main(int count, char **words)
{
    const char *pool = NULL, *seed_text = getenv("FALLOW_TEST_SEED");
    uint64_t seed = seed_text != NULL ? strtoull(seed_text, NULL, 0) : 1;
    uint64_t steps = 10000, runs = 8;
    bool ignore_peaks = false; /* to debug beyond a wrong peak */
    for (int i = 1; i + 1 < count; i += 2) {
        uint64_t value = strtoull(words[i + 1], NULL, 0);
        if (strcmp(words[i], "--pool") == 0) {
            pool = words[i + 1];
        } else if (strcmp(words[i], "--seed") == 0) {
            seed = value;
        } else if (strcmp(words[i], "--steps") == 0) {
            steps = value;
        } else if (strcmp(words[i], "--runs") == 0) {
            runs = value;
        } else if (strcmp(words[i], "--no-peaks") == 0) {
            ignore_peaks = value != 0;
        }
    }
    static const struct flw_put_ops *const pools[] = {&flw_put_oracle, &flw_put_fallow};
    for (size_t p = 0; p < sizeof pools / sizeof *pools; p++) {
        const struct flw_put_ops *ops = pools[p];
        for (uint64_t r = 0; r < runs && (pool == NULL || strcmp(pool, ops->name) == 0); r++) {
            struct flw_model model;
            struct flw_model_setup setup = {
                .ops = ops, .seed = seed + r, .device_bytes = 4ull << 30};
            setup.ignore_peaks = ignore_peaks;
            setup.limit_bytes = setup.seed % 4 == 1   ? 200 << 20
                                : setup.seed % 4 == 2 ? 40 << 20
                                                      : 0;
            setup.without_vmm = setup.seed % 5 == 4;
            setup.without_ids = setup.seed % 7 == 6;
            setup.reserve_most_bytes = setup.seed % 3 == 1 ? setup.device_bytes : 0;
            /* A trim releases segments only after the event completes, which never happens on a
             * held device. */
            bool is_held =
                setup.seed % 3 != 0 && !setup.without_vmm && setup.reserve_most_bytes == 0;
            setup.schedule = is_held ? FLW_SIM_HELD : FLW_SIM_RANDOM;
            setup.economy = (fallow_economy)(setup.seed / 2 % 3);
            fprintf(stderr, "test_pool_model --pool %s --seed %llu --steps %llu --runs 1\n",
                    ops->name, (unsigned long long)setup.seed, (unsigned long long)steps);
            run(&setup, steps, &model);
            free(model.transcript);
            compare_with_oracle(&setup, steps);
        }
    }
    printf("every answer was allowed\n");
    return 0;
}

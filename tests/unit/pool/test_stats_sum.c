/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves: at quiet points of random programs the terms of fallow_stats add up to the reserved and sleeping bytes, and
 * each term equals the sum over the pool's spans; statistics never show more reserved bytes than the peak; peaks are
 * those since their last reset.
 */
#include "unit/pool/test_api.h"

#include <stdatomic.h>

#include "fallow/sleep.h"
#include "heap/heap.h"
#include "pool/pool.h"
#include "pool/state/table.h"

/* ---- the walk */

struct sums {
    uint64_t live, deferred, captured, free;
};

static void add_block(struct sums *sums, uint64_t word, uint64_t bytes)
{
    unsigned state = (unsigned)(word & FLW_SLOT_STATE_MASK);
    sums->live += state == FLW_SLOT_FREE || state == FLW_SLOT_HELD ? 0 : bytes;
    sums->deferred += state == FLW_SLOT_HELD ? bytes : 0;
    sums->free += state == FLW_SLOT_FREE ? bytes : 0;
}

static void add_slab(struct sums *sums, const struct flw_heap *heap, const struct flw_span *slab)
{
    const struct flw_slab_part *part = &slab->u.slab;
    struct sums own = {0};
    if (part->run == NULL || part->run->u.run.slab != slab) {
        return;
    }
    for (uint32_t i = 0; i < part->carved_count; i++) {
        add_block(&own, flw_span_slot(&heap->map, slab, i)->word,
                  flw_class_bytes(part->class_index));
    }
    bool is_captured = part->capture != 0 && heap->domains[part->domain]->capture != 0;
    uint64_t rest = flw_run_bytes(part->run) - own.live - own.deferred;
    sums->live += own.live;
    sums->deferred += own.deferred;
    *(is_captured ? &sums->captured : &sums->free) += rest;
}

static struct sums walk(const struct flw_heap *heap)
{
    struct sums sums = {.free = heap->idle_bytes};
    for (const struct flw_span *span = NULL;
         (span = flw_page_map_next_span(&heap->map, span)) != NULL;) {
        bool is_run = span->kind == FLW_SPAN_RUN;
        if (span->kind == FLW_SPAN_SLAB) {
            add_slab(&sums, heap, span);
        } else if (is_run && span->u.run.state == FLW_RUN_DEFERRED) {
            sums.deferred += flw_run_bytes(span);
        } else if (is_run && span->u.run.state == FLW_RUN_LIVE && span->u.run.slab == NULL) {
            add_block(&sums, flw_span_slot(&heap->map, span, 0)->word, flw_run_bytes(span));
        }
    }
    for (uint32_t i = 0; i < heap->domain_end; i++) {
        const struct flw_domain *domain = heap->domains[i];
        *(domain->capture != 0 ? &sums.captured : &sums.free) += flw_domain_run_bytes(domain);
    }
    for (const struct flw_segment *segment = heap->segments.newest; segment != NULL;
         segment = segment->next) {
        uint64_t bytes = (uint64_t)segment->unit_count << FLW_UNIT_LOG2;
        sums.free += flw_align_up(bytes, heap->source.granularity_bytes) - bytes;
    }
    return sums;
}

static void expect_sum(struct api *api)
{
    struct flw_pool *pool = flw_pool_of(api->pool);
    fallow_stats stats = api_stats(api);
    flw_lock_acquire(&pool->heap.lock);
    struct sums sums = walk(&pool->heap);
    flw_lock_release(&pool->heap.lock);
    assert_int_equal(stats.live_bytes, sums.live);
    assert_int_equal(stats.deferred_bytes, sums.deferred);
    assert_int_equal(stats.captured_bytes, sums.captured);
    assert_int_equal(stats.cached_bytes + stats.idle_bytes, sums.free);
    assert_int_equal(stats.reserved_bytes + stats.asleep_bytes,
                     stats.live_bytes + stats.cached_bytes + stats.deferred_bytes +
                         stats.captured_bytes + stats.idle_bytes);
    assert_true(stats.reserved_bytes <= stats.peak_reserved_bytes);
}

/* ---- random programs */

#define LIVE  64
#define STEPS 700

struct run {
    struct api api;
    CUstream streams[3];
    fallow_capture *capture; /* on streams[0]; NULL: none */
    bool is_capturing, has_context_order, can_sleep, is_asleep;
    uint64_t requested_bytes, peak_bytes; /* since the last reset of the peaks */
    struct {
        void *ptr;
        uint64_t size_bytes;
        int stream;
        bool is_captured;
    } live[LIVE];
    uint64_t random;
};

static uint64_t below(struct run *run, uint64_t end)
{
    run->random ^= run->random << 13;
    run->random ^= run->random >> 7;
    run->random ^= run->random << 17;
    return run->random % end;
}

static void turn_block(struct run *run)
{
    int i = (int)below(run, LIVE), other = (int)below(run, 3);
    if (run->live[i].ptr == NULL) {
        fallow_request request;
        fallow_request_init(&request);
        request.size_bytes = 1 + below(run, below(run, 3) == 0 ? 5 * MIB : 40000);
        request.tag = below(run, 4) == 0 ? 7 : 0;
        fallow_status status =
            fallow_alloc_request(run->api.pool, &request, run->streams[other], &run->live[i].ptr);
        assert_true(status == FALLOW_OK || status == FALLOW_OUT_OF_MEMORY ||
                    (status == FALLOW_ASLEEP && run->is_asleep));
        run->live[i].size_bytes = status == FALLOW_OK ? request.size_bytes : 0;
        run->requested_bytes += run->live[i].size_bytes;
        run->peak_bytes = flw_max(run->peak_bytes, run->requested_bytes);
        run->live[i].stream = other;
        run->live[i].is_captured = run->is_capturing && other == 0;
        return;
    }
    if (!run->live[i].is_captured && !run->has_context_order && below(run, 3) == 0) {
        assert_int_equal(fallow_record_use(run->api.pool, run->live[i].ptr, run->streams[2]),
                         FALLOW_OK);
    }
    int stream = below(run, 3) == 0 ? other : run->live[i].stream;
    assert_int_equal(fallow_free(run->api.pool, run->live[i].ptr, run->streams[stream]), FALLOW_OK);
    run->live[i].ptr = NULL;
    run->requested_bytes -= run->live[i].size_bytes;
}

static void *reset_peaks(void *pool)
{
    assert_int_equal(fallow_pool_reset_peaks(pool), FALLOW_OK);
    return NULL;
}

static void reset_peaks_elsewhere(fallow_pool *pool)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, reset_peaks, pool), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void turn_peaks(struct run *run)
{
    if (below(run, 2) == 0) {
        reset_peaks(run->api.pool);
    } else {
        reset_peaks_elsewhere(run->api.pool);
    }
    fallow_stats stats = api_stats(&run->api);
    assert_int_equal(stats.peak_live_bytes, stats.live_bytes);
    assert_int_equal(stats.peak_reserved_bytes, stats.reserved_bytes);
    run->peak_bytes = run->requested_bytes;
}

static void turn_capture(struct run *run)
{
    if (run->has_context_order || run->is_asleep) {
        return;
    }
    if (run->capture == NULL) {
        assert_int_equal(fallow_capture_begin(run->api.pool, run->streams[0], &run->capture),
                         FALLOW_OK);
        run->is_capturing = true;
    } else if (run->is_capturing) {
        assert_int_equal(fallow_capture_end(run->capture), FALLOW_OK);
        run->is_capturing = false;
    } else {
        assert_int_equal(fallow_capture_release(run->capture), FALLOW_OK);
        run->capture = NULL;
    }
}

static void turn_sleep(struct run *run)
{
    fallow_sleep_request request;
    fallow_sleep_request_init(&request);
    request.flags = FALLOW_SLEEP_WAIT;
    if (run->is_asleep) {
        assert_int_equal(fallow_pool_wake(run->api.pool), FALLOW_OK);
        run->is_asleep = false;
    } else if (run->can_sleep && !run->is_capturing) {
        assert_int_equal(fallow_pool_sleep(run->api.pool, &request), FALLOW_OK);
        run->is_asleep = true;
    }
}

static void end_run(struct run *run)
{
    while (run->capture != NULL || run->is_asleep) {
        turn_sleep(run);
        turn_capture(run);
    }
    for (int i = 0; i < LIVE; i++) {
        assert_int_equal(fallow_free(run->api.pool, run->live[i].ptr, run->streams[1]), FALLOW_OK);
    }
    expect_sum(&run->api);
    assert_int_equal(run->api.sim.cu.cuCtxSynchronize(), 0);
    assert_int_equal(fallow_pool_trim(run->api.pool, 0, UINT64_MAX, NULL), FALLOW_OK);
    assert_int_equal(api_stats(&run->api).idle_bytes, 0);
    expect_sum(&run->api);
}

static void run_with(uint64_t seed, fallow_order order, fallow_page_source source)
{
    static struct run run;
    flw_sim_config world = flw_sim_config_default(seed);
    memset(&run, 0, sizeof run);
    world.check = 1;
    world.device_bytes = 256 * MIB;
    api_begin(&run.api, &world);
    fallow_pool_config config = api_config(&run.api);
    config.order = order;
    config.page_source = source;
    run.random = seed * 0x9E3779B97F4A7C15ull;
    run.streams[0] = run.api.stream;
    run.streams[1] = run.api.other;
    run.has_context_order = order == FALLOW_ORDER_CONTEXT;
    run.can_sleep = !run.has_context_order && source != FALLOW_PAGES_SEGMENTS;
    config.economy = (fallow_economy)below(&run, 3);
    config.reuse_policy =
        run.has_context_order ? FALLOW_REUSE_WAIT : (fallow_reuse_policy)below(&run, 3);
    assert_int_equal(fallow_pool_create(&config, &run.api.pool), FALLOW_OK);
    assert_int_equal(run.api.sim.cu.cuStreamCreate(&run.streams[2], CU_STREAM_NON_BLOCKING), 0);
    for (int step = 0; step < STEPS; step++) {
        uint64_t kind = below(&run, 100);
        if (kind < 90) {
            turn_block(&run);
        } else if (kind < 95) {
            turn_capture(&run);
        } else if (kind < 97) {
            turn_sleep(&run);
        } else if (kind < 98) {
            turn_peaks(&run);
        } else {
            assert_int_equal(kind == 98 ? fallow_pool_poll(run.api.pool)
                                        : fallow_pool_trim(run.api.pool, 0, 0, NULL),
                             FALLOW_OK);
        }
        expect_sum(&run.api);
        assert_int_equal(api_stats(&run.api).requested_bytes, run.requested_bytes);
        assert_int_equal(api_stats(&run.api).peak_requested_bytes, run.peak_bytes);
    }
    end_run(&run);
    api_end(&run.api);
}

static void the_terms_add_up_at_every_quiet_point(void **state)
{
    for (uint64_t seed = 1; seed <= 8; seed++) {
        print_message("seed %llu\n", (unsigned long long)seed);
        run_with(seed, FALLOW_ORDER_STREAM, FALLOW_PAGES_HANDLES);
        run_with(seed, FALLOW_ORDER_STREAM, FALLOW_PAGES_SEGMENTS);
        run_with(seed, FALLOW_ORDER_CONTEXT, FALLOW_PAGES_AUTOMATIC);
    }
}

/* ---- the peak, read while a driver allocation is in progress */

static struct api looker;
static CUresult (*real_alloc)(CUdeviceptr *pointer, size_t bytes);
static uint64_t seen_peak, looks;
static bool looks_on;

static CUresult CUDAAPI look_and_alloc(CUdeviceptr *out, size_t bytes)
{
    if (looks_on) {
        fallow_stats stats = api_stats(&looker);
        assert_true(stats.reserved_bytes <= stats.peak_reserved_bytes);
        assert_true(seen_peak <= stats.peak_reserved_bytes);
        seen_peak = stats.peak_reserved_bytes;
        looks++;
    }
    return real_alloc(out, bytes);
}

static void a_look_never_sees_more_reserved_than_the_peak(void **state)
{
    void *ptrs[4];
    api_begin(&looker, NULL);
    struct flw_driver driver = looker.sim.cu;
    struct flw_pool_place place = {.driver = &driver, .context_id = 9};
    fallow_pool_config config = api_config(&looker);
    config.order = FALLOW_ORDER_CONTEXT;
    real_alloc = driver.cuMemAlloc_v2;
    driver.cuMemAlloc_v2 = look_and_alloc;
    assert_int_equal(flw_pool_create(&config, &place, &looker.pool), FALLOW_OK);
    looks_on = true;
    for (int i = 0; i < 4; i++) {
        if (i == 2) { /* a failed growth does not count for the peak */
            assert_int_equal((looker.sim.fail)("cuMemAlloc_v2", 1, CUDA_ERROR_OUT_OF_MEMORY, 0), 1);
        }
        ptrs[i] = api_alloc(&looker, (size_t)(i + 1) * 8 * MIB, looker.stream);
        assert_int_equal(api_stats(&looker).peak_reserved_bytes,
                         flw_sim_read_ledger(&looker.sim).peak_given_bytes);
    }
    assert_true(looks >= 5);
    looks_on = false;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(fallow_free(looker.pool, ptrs[i], looker.stream), FALLOW_OK);
    }
    api_end(&looker);
}

/* ---- peaks reset while threads allocate */

#define THREADS    4
#define ROUNDS     2000
#define KEPT       16
#define BLOCK_MOST ((size_t)100 << 10)

struct worker {
    struct api *api;
    CUstream stream;
    pthread_t thread;
    uint64_t random;
    atomic_uint *working;
};

static void *allocate_and_free(void *argument)
{
    struct worker *worker = argument;
    struct run run = {.random = worker->random};
    void *kept[KEPT] = {NULL};
    for (int i = 0; i < ROUNDS + KEPT; i++) {
        void **at = &kept[i % KEPT];
        assert_int_equal(fallow_free(worker->api->pool, *at, worker->stream), FALLOW_OK);
        *at =
            i < ROUNDS ? api_alloc(worker->api, 1 + below(&run, BLOCK_MOST), worker->stream) : NULL;
    }
    atomic_fetch_sub(worker->working, 1);
    return NULL;
}

static void peaks_are_reset_while_threads_allocate(void **state)
{
    struct api api;
    struct worker workers[THREADS];
    atomic_uint working = THREADS;
    flw_sim_config world = flw_sim_config_default(3);
    api_begin(&api, &world);
    api.pool = api_create(&api);
    void *held = api_alloc(&api, 7 * MIB, api.stream);
    for (uint64_t i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.api = &api, .random = i + 1, .working = &working};
        assert_int_equal(api.sim.cu.cuStreamCreate(&workers[i].stream, CU_STREAM_NON_BLOCKING), 0);
        assert_int_equal(pthread_create(&workers[i].thread, NULL, allocate_and_free, &workers[i]),
                         0);
    }
    uint64_t most = 7 * MIB + THREADS * KEPT * BLOCK_MOST;
    while (atomic_load(&working) != 0) {
        assert_int_equal(fallow_pool_reset_peaks(api.pool), FALLOW_OK);
        fallow_stats stats = api_stats(&api);
        assert_in_range(stats.peak_requested_bytes, 7 * MIB, 2 * most); /* cached at most as much */
        assert_true(stats.peak_live_bytes >= stats.peak_requested_bytes);
        assert_true(stats.peak_reserved_bytes >= stats.reserved_bytes);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
    }
    assert_int_equal(fallow_pool_reset_peaks(api.pool), FALLOW_OK);
    assert_int_equal(api_stats(&api).peak_requested_bytes, 7 * MIB); /* nothing is left of theirs */
    assert_int_equal(api_ask_elsewhere(&api, api.stream), FALLOW_OK);
    assert_int_equal(api_stats(&api).peak_requested_bytes, 7 * MIB + 300);
    for (int i = 0; i < 4; i++) { /* hits alone, which reach the same peak again */
        reset_peaks_elsewhere(api.pool);
        void *block = api_alloc(&api, 5000, api.stream);
        assert_int_equal(fallow_free(api.pool, block, api.stream), FALLOW_OK);
        assert_int_equal(api_stats(&api).peak_requested_bytes, 7 * MIB + 5000);
    }
    assert_int_equal(fallow_free(api.pool, held, api.stream), FALLOW_OK);
    api_end(&api);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_terms_add_up_at_every_quiet_point),
        cmocka_unit_test(a_look_never_sees_more_reserved_than_the_peak),
        cmocka_unit_test(peaks_are_reset_while_threads_allocate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: graph memory of plugin.h: ids, tags, captures that share an id, aborted captures, and their effect on pools in
 * context order.
 */
#include "unit/plugin/test_plugin.h"

#include <pthread.h>

#include "fallow/arena.h"

static const fallow_mempool_id graph_id = {1, 0}, shared_id = {0, 7}, third_id = {3, 0};
static const fallow_mempool_id tag_id = {9, FALLOW_MEMPOOL_TAG},
                               inner_tag_id = {8, FALLOW_MEMPOOL_TAG};

TEST(graphs_of_one_id_share_their_memory)
{
    fallow_torch_begin_allocate_to_pool(0, shared_id, &sim);
    begin_capture(stream);
    void *kept = take(5000, stream), *passing = take(9000, stream);
    assert_int_equal(block_of(kept).state, FALLOW_BLOCK_CAPTURED);
    give(passing, 9000, stream);
    assert_ptr_equal(take(9000, stream), passing); /* in order inside one capture */
    give(passing, 9000, stream);
    end_capture(stream);
    fallow_torch_end_allocate_to_pool(0, shared_id);
    void *eager = take(9000, stream);
    assert_ptr_not_equal(eager, passing);
    assert_int_equal(block_of(eager).state, FALLOW_BLOCK_LIVE);

    fallow_torch_begin_allocate_to_pool(0, shared_id, &sim);
    begin_capture(stream);
    assert_ptr_equal(take(9000, stream), passing);
    end_capture(stream);
    fallow_torch_end_allocate_to_pool(0, shared_id);

    give(eager, 9000, stream);
    give(passing, 9000, stream);
    fallow_torch_release_pool(0, shared_id);
    assert_true(stats_of(0, FALLOW_PLUGIN_STREAM).captured_bytes > 0);
    give(kept, 5000, stream);
    void *output =
        take(5000, other); /* like a graph's last launch, on a stream outside the capture */
    assert_int_equal(sim.cu.cuStreamQuery(other), CUDA_ERROR_NOT_READY);
    fallow_torch_release_pool(0, shared_id);
    assert_int_equal(stats_of(0, FALLOW_PLUGIN_STREAM).captured_bytes, 0);
    assert_ok(sim.cu.cuStreamQuery(other)); /* waited for */
    give(output, 5000, other);
}

static void *allocate_in_capture(void *context)
{
    CUcontext present;
    (void)context;
    assert_ok(sim.cu.cuDevicePrimaryCtxRetain(&present, 0));
    assert_ok(sim.cu.cuCtxSetCurrent(present));
    void *ptr = fallow_torch_alloc(5000, 0, stream);
    assert_ok(sim.cu.cuDevicePrimaryCtxRelease_v2(0));
    return ptr;
}

static bool is_leased(fallow_arena *arena, const fallow_layout *layout, CUstream on)
{
    fallow_lease *lease = NULL;
    return fallow_lease_begin(arena, layout, on, &lease) == FALLOW_OK &&
           fallow_lease_end(lease, on) == FALLOW_OK;
}

/* A lease may be the first call in a capture, with the layout of the last lease or another layout. */
TEST(a_lease_in_a_capture_is_pinned_before_any_allocation)
{
    fallow_layout *layouts[2];
    fallow_region region = {.name = "x", .size_bytes = 40000};
    give(take(5000, stream), 5000, stream);
    for (int i = 0; i < 2; i++) {
        assert_ok(fallow_layout_create(&region, 1, &layouts[i]));
        region.size_bytes /= 2;
    }
    for (int i = 0; i < 2; i++) {
        fallow_arena *arena = NULL;
        assert_ok(fallow_arena_create(pool_of(0, FALLOW_PLUGIN_STREAM), NULL, &arena));
        assert_true(is_leased(arena, layouts[0], stream));
        fallow_torch_begin_allocate_to_pool(0, shared_id, &sim);
        uint64_t calls = flw_sim_read_ledger(&sim).call_count;
        assert_true(is_leased(arena, layouts[0], stream)); /* not captured: queried, not pinned */
        assert_true(flw_sim_read_ledger(&sim).call_count > calls);
        assert_ok(fallow_arena_trim(arena));
        assert_true(is_leased(arena, layouts[0], stream));
        begin_capture(stream);
        assert_true(is_leased(arena, layouts[i], stream));
        end_capture(stream);
        fallow_torch_end_allocate_to_pool(0, shared_id);
        assert_int_equal(fallow_arena_trim(arena), FALLOW_BUSY);
        assert_true(is_leased(arena, layouts[0], other));
        fallow_torch_release_pool(0, shared_id);
        assert_ok(fallow_arena_trim(arena));
        fallow_arena_destroy(arena);
    }
    fallow_layout_destroy(layouts[0]);
    fallow_layout_destroy(layouts[1]);
}

TEST(another_thread_and_another_stream_take_part)
{
    pthread_t thread;
    CUevent fork_event, join_event;
    void *theirs = NULL;
    assert_ok(sim.cu.cuEventCreate(&fork_event, 2));
    assert_ok(sim.cu.cuEventCreate(&join_event, 2));
    fallow_torch_begin_allocate_to_pool(0, graph_id, &sim);
    begin_capture(stream);
    assert_int_equal(pthread_create(&thread, NULL, allocate_in_capture, NULL), 0);
    assert_int_equal(pthread_join(thread, &theirs), 0);
    assert_int_equal(block_of(theirs).state, FALLOW_BLOCK_CAPTURED);
    assert_ok(sim.cu.cuEventRecord(fork_event, stream));
    assert_ok(sim.cu.cuStreamWaitEvent(other, fork_event, 0));
    void *joined = take(5000, other);
    assert_int_equal(block_of(joined).state, FALLOW_BLOCK_CAPTURED);
    give(joined, 5000, other);
    assert_ok(sim.cu.cuEventRecord(join_event, other));
    assert_ok(sim.cu.cuStreamWaitEvent(stream, join_event, 0));
    end_capture(stream);
    fallow_torch_end_allocate_to_pool(0, graph_id);
    give(theirs, 5000, stream);
    fallow_torch_release_pool(0, graph_id);
    assert_int_equal(stats_of(0, FALLOW_PLUGIN_STREAM).captured_bytes, 0);
    assert_ok(sim.cu.cuEventDestroy_v2(fork_event));
    assert_ok(sim.cu.cuEventDestroy_v2(join_event));
}

TEST(two_captures_keep_apart_and_a_release_waits_for_both)
{
    fallow_torch_begin_allocate_to_pool(0, graph_id, &sim);
    begin_capture(stream);
    void *mine = take(5000, stream);
    fallow_torch_begin_allocate_to_pool(0, third_id, &sim);
    begin_capture(other);
    give(mine, 5000, stream);
    void *theirs = take(5000, other);
    assert_ptr_not_equal(theirs, mine);
    assert_ptr_equal(take(5000, stream), mine);
    give(mine, 5000, stream);
    give(theirs, 5000, other);
    end_capture(stream);
    fallow_torch_end_allocate_to_pool(0, graph_id);
    fallow_torch_release_pool(0,
                              graph_id); /* put off: a synchronisation would break the other one */
    uint64_t waits = sim.call_count("cuCtxSynchronize");
    assert_true(stats_of(0, FALLOW_PLUGIN_STREAM).captured_bytes > 0);
    end_capture(other);
    fallow_torch_end_allocate_to_pool(0, third_id);
    assert_true(sim.call_count("cuCtxSynchronize") > waits);
    fallow_torch_release_pool(0, third_id);
    assert_int_equal(stats_of(0, FALLOW_PLUGIN_STREAM).captured_bytes, 0);
}

TEST(a_pool_without_a_capture_is_a_tag)
{
    fallow_torch_begin_allocate_to_pool(0, shared_id, &sim);
    void *ptr = take(5000, stream);
    assert_int_equal(block_of(ptr).tag, 7);
    fallow_torch_end_allocate_to_pool(0, shared_id);
    fallow_torch_release_pool(0, shared_id);
    void *plain = take(5000, stream);
    assert_int_equal(block_of(plain).tag, 0);
    give(ptr, 5000, stream);
    give(plain, 5000, stream);
}

TEST(a_capture_that_breaks_off_ends)
{
    fallow_torch_begin_allocate_to_pool(0, graph_id, &sim);
    begin_capture(stream);
    void *captured = take(5000, stream);
    end_capture(stream); /* PyTorch raises here, and calls no end */
    void *eager = take(5000, stream);
    assert_int_equal(block_of(eager).state, FALLOW_BLOCK_LIVE);
    give(eager, 5000, stream);
    give(captured, 5000, stream);
    fallow_torch_end_allocate_to_pool(0, graph_id);
    fallow_torch_release_pool(0, graph_id);
    assert_int_equal(stats_of(0, FALLOW_PLUGIN_STREAM).captured_bytes, 0);
}

/* ---- an open id without a capture */

/* Allocate more than the limit in all, so that most allocations close an epoch. */
static void use_context_order(void)
{
    for (int i = 0; i < 40; i++) {
        void *block = fallow_cupy_malloc(NULL, 64 * MIB, 0);
        assert_non_null(block);
        fallow_cupy_free(NULL, block, 0);
        assert_ok(sim.cu.cuCtxSynchronize());
    }
    assert_true(stats_of(0, FALLOW_PLUGIN_CONTEXT).reserved_bytes <= 320 * MIB);
}

/* Return the driver calls of 100 pairs. */
static uint64_t calls_of_pairs(void)
{
    give(take(5000, stream), 5000, stream);
    uint64_t before = sim.call_count(NULL);
    for (int i = 0; i < 100; i++) {
        void *ptr = fallow_torch_alloc(5000, 0, stream);
        assert_non_null(ptr);
        give(ptr, 5000, stream);
    }
    return sim.call_count(NULL) - before;
}

TEST(an_open_id_is_no_capture)
{
    const fallow_mempool_id cases[] = {tag_id, graph_id, shared_id};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t most_calls = cases[i].second == FALLOW_MEMPOOL_TAG ? 0 : 100;
        fallow_torch_begin_allocate_to_pool(0, cases[i], &sim);
        use_context_order();
        assert_in_range(calls_of_pairs(), 0, most_calls);
        uint64_t before = sim.call_count("cuStreamIsCapturing");
        use_context_order();
        assert_int_equal(sim.call_count("cuStreamIsCapturing"), before);
        fallow_torch_reset();
        fallow_torch_release_pool(0, cases[i]); /* without end_allocate_to_pool */
        assert_int_equal(calls_of_pairs(), 0);
    }
}

static void *tag_of_another_thread(void *context)
{
    (void)context;
    fallow_torch_begin_allocate_to_pool(0, tag_id, &sim);
    fallow_torch_end_allocate_to_pool(0, tag_id);
    fallow_torch_release_pool(0, tag_id);
    return NULL;
}

static void assert_tag(uint32_t tag)
{
    void *ptr = take(5000, stream);
    assert_int_equal(block_of(ptr).tag, tag);
    give(ptr, 5000, stream);
}

TEST(tags_nest_and_are_a_threads_own)
{
    pthread_t thread;
    fallow_torch_begin_allocate_to_pool(0, tag_id, &sim);
    fallow_torch_begin_allocate_to_pool(0, inner_tag_id, &sim);
    assert_tag(8);
    fallow_torch_begin_allocate_to_pool(0, tag_id, &sim);
    assert_tag(9);
    fallow_torch_end_allocate_to_pool(0, tag_id);
    fallow_torch_release_pool(0, tag_id);
    assert_tag(8);
    fallow_torch_end_allocate_to_pool(0, inner_tag_id);
    fallow_torch_release_pool(0, inner_tag_id);
    assert_int_equal(pthread_create(&thread, NULL, tag_of_another_thread, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_tag(9);
    fallow_torch_end_allocate_to_pool(0, tag_id);
    fallow_torch_release_pool(0, tag_id);
    assert_tag(0);
}

TEST(no_capture_belongs_to_a_tag)
{
    fallow_torch_begin_allocate_to_pool(0, graph_id, &sim);
    begin_capture(stream);
    fallow_torch_begin_allocate_to_pool(0, tag_id, &sim);
    void *kept = take(5000, stream);
    assert_int_equal(block_of(kept).state, FALLOW_BLOCK_CAPTURED);
    assert_int_equal(block_of(kept).tag, 9);
    give(kept, 5000, stream);
    fallow_torch_end_allocate_to_pool(0, tag_id);
    fallow_torch_release_pool(0, tag_id);
    assert_ptr_equal(take(5000, stream), kept);
    assert_int_equal(block_of(kept).tag, 0);
    give(kept, 5000, stream);
    end_capture(stream);
    fallow_torch_end_allocate_to_pool(0, graph_id);
    assert_true(stats_of(0, FALLOW_PLUGIN_STREAM).captured_bytes > 0);
    fallow_torch_release_pool(0, graph_id);
    assert_int_equal(stats_of(0, FALLOW_PLUGIN_STREAM).captured_bytes, 0);
}

/* ---- when a capture begins and ends */

TEST(a_capture_begins_before_its_id_or_after_a_warm_up)
{
    begin_capture(stream);
    fallow_torch_begin_allocate_to_pool(0, graph_id, &sim);
    void *captured = take(5000, stream);
    assert_int_equal(block_of(captured).state, FALLOW_BLOCK_CAPTURED);
    give(captured, 5000, stream);
    end_capture(stream);
    void *warm = take(5000, stream);
    assert_int_equal(block_of(warm).state, FALLOW_BLOCK_LIVE);
    give(warm, 5000, stream);
    begin_capture(stream);
    assert_ptr_equal(take(5000, stream), captured);
    give(captured, 5000, stream);
    end_capture(stream);
    fallow_torch_end_allocate_to_pool(0, graph_id);
    fallow_torch_release_pool(0, graph_id);
    assert_int_equal(stats_of(0, FALLOW_PLUGIN_STREAM).captured_bytes, 0);
}

TEST(pools_in_context_order_see_a_capture)
{
    for (int has_allocated = 0; has_allocated < 2; has_allocated++) {
        CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
        fallow_torch_begin_allocate_to_pool(0, graph_id, &sim);
        begin_capture(stream);
        if (has_allocated) {
            give(take(5000, stream), 5000, stream);
        }
        for (int i = 0; i < 300; i++) { /* enough for an epoch to be due */
            void *block = fallow_cupy_malloc(NULL, 3000, 0);
            assert_non_null(block);
            fallow_cupy_free(NULL, block, 0);
        }
        fallow_torch_reset();
        assert_ok(sim.cu.cuStreamIsCapturing(stream, &capturing));
        assert_int_equal(capturing, CU_STREAM_CAPTURE_STATUS_ACTIVE);
        end_capture(stream);
        use_context_order(); /* end_allocate_to_pool has not been called yet */
        fallow_torch_end_allocate_to_pool(0, graph_id);
        fallow_torch_release_pool(0, graph_id);
    }
}

/* Begin a capture and drop the graph, as after an exception. */
static void begin_without_end(fallow_mempool_id id)
{
    fallow_torch_begin_allocate_to_pool(0, id, &sim);
    begin_capture(stream);
    give(take(5000, stream), 5000, stream);
    end_capture(stream);
}

TEST(a_begin_without_an_end_leaves_nothing_behind)
{
    begin_without_end(third_id);
    use_context_order();
    begin_without_end(third_id);
    give(fallow_torch_alloc(64 * (ssize_t)MIB, 0, other), 64 * MIB, other);
    fallow_torch_reset();
    assert_ok(sim.cu.cuCtxSynchronize());
    fallow_torch_reset();
    assert_true(stats_of(0, FALLOW_PLUGIN_STREAM).reserved_bytes <
                32 * MIB); /* trimmed by the reset */
    begin_without_end(third_id);
    fallow_torch_begin_allocate_to_pool(0, graph_id, &sim); /* the same stream again */
    begin_capture(stream);
    void *captured = take(5000, stream);
    assert_int_equal(block_of(captured).state, FALLOW_BLOCK_CAPTURED);
    give(captured, 5000, stream);
    end_capture(stream);
    fallow_torch_end_allocate_to_pool(0, graph_id);
    uint64_t both = stats_of(0, FALLOW_PLUGIN_STREAM).captured_bytes;
    fallow_torch_release_pool(0, graph_id);
    assert_true(stats_of(0, FALLOW_PLUGIN_STREAM).captured_bytes < both); /* released immediately */
    for (int i = 0; i < 3; i++) {
        fallow_torch_release_pool(0, third_id);
    }
    assert_int_equal(stats_of(0, FALLOW_PLUGIN_STREAM).captured_bytes, 0);
    assert_int_equal(calls_of_pairs(), 0);
}

TEST(the_last_release_ends_a_capture_that_is_open)
{
    fallow_torch_begin_allocate_to_pool(0, graph_id, &sim);
    begin_capture(stream);
    give(take(5000, stream), 5000, stream);
    fallow_torch_release_pool(0, graph_id);
    end_capture(stream);
    use_context_order();
    assert_int_equal(calls_of_pairs(), 0);
    fallow_torch_end_allocate_to_pool(0, graph_id); /* too late: nothing happens */
    fallow_torch_reset();
    assert_int_equal(stats_of(0, FALLOW_PLUGIN_STREAM).captured_bytes, 0);
}

/* ---- threads */

#define THREADS 4

/* Use graphs, memory pools and tags on a stream of this thread's own. */
static void *use_ids(void *context)
{
    const uint64_t number = *(const uint64_t *)context;
    uint64_t seed = number, wrong = 0;
    CUstream own;
    CUcontext present;
    bool is_ready = sim.cu.cuDevicePrimaryCtxRetain(&present, 0) == 0 &&
                    sim.cu.cuCtxSetCurrent(present) == 0 &&
                    sim.cu.cuStreamCreate(&own, CU_STREAM_NON_BLOCKING) == 0;
    for (unsigned i = 0; is_ready && i < 150; i++) {
        bool is_captured = flw_test_random(&seed) % 2 == 0;
        const fallow_mempool_id id = {number, flw_test_random(&seed) % 3};
        const fallow_mempool_id tag = {100 + number, FALLOW_MEMPOOL_TAG};
        CUgraph graph = NULL;
        fallow_torch_begin_allocate_to_pool(0, id, &sim);
        if (is_captured) {
            wrong += sim.cu.cuStreamBeginCapture_v2(own, CU_STREAM_CAPTURE_MODE_RELAXED) != 0;
        }
        for (unsigned n = 0; n < 4; n++) {
            bool is_tagged = flw_test_random(&seed) % 2 == 0;
            if (is_tagged) {
                fallow_torch_begin_allocate_to_pool(0, tag, &sim);
            }
            void *ptr = fallow_torch_alloc((ssize_t)(1000 << n), 0, own);
            fallow_block block = {.struct_size = sizeof block};
            wrong += fallow_block_info(pool_of(0, FALLOW_PLUGIN_STREAM), ptr, &block) != FALLOW_OK;
            wrong += block.state != (is_captured ? FALLOW_BLOCK_CAPTURED : FALLOW_BLOCK_LIVE);
            wrong += block.tag != (is_tagged ? tag.first : is_captured ? 0 : number);
            if (is_tagged) {
                fallow_torch_end_allocate_to_pool(0, tag);
                fallow_torch_release_pool(0, tag);
            }
            fallow_torch_free(ptr, 0, 0, own);
        }
        if (is_captured) {
            wrong += sim.cu.cuStreamEndCapture(own, &graph) != 0 || graph == NULL ||
                     sim.cu.cuGraphDestroy(graph) != 0;
        }
        if (flw_test_random(&seed) % 4 != 0) { /* otherwise the release ends the id */
            fallow_torch_end_allocate_to_pool(0, id);
        }
        fallow_torch_release_pool(0, id);
    }
    return is_ready && wrong == 0 ? context : NULL;
}

TEST(threads_keep_to_their_ids)
{
    pthread_t threads[THREADS];
    uint64_t numbers[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        numbers[i] = i + 1;
        assert_int_equal(pthread_create(&threads[i], NULL, use_ids, &numbers[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        void *result = NULL;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_ptr_equal(result, &numbers[i]);
    }
    use_context_order();
    fallow_torch_reset();
    assert_int_equal(stats_of(0, FALLOW_PLUGIN_STREAM).captured_bytes, 0);
    assert_int_equal(calls_of_pairs(), 0);
    assert_int_equal(flw_sim_print_violations(&sim), 0);
}

TEST(an_unannounced_capture_is_told_what_to_do)
{
    begin_capture(stream);
    hold_stderr();
    void *ptr = fallow_torch_alloc(33 * (ssize_t)MIB, 0, stream);
    assert_one_line_with(release_stderr(), "call fallow.enable_torch()");
    assert_null(ptr);
    end_capture(stream);
}

static int begin_configured_world(void **state)
{
    fallow_pool_config config;
    fallow_pool_config_init(&config);
    config.driver = "sim";
    config.limit_bytes = 512 * MIB;
    return begin_world(state) != 0 || fallow_plugin_configure(&config) != FALLOW_OK ? -1 : 0;
}

static int end_world(void **state)
{
    destroy_pools();
    return 0;
}

FLW_TEST_MAIN(begin_configured_world, end_world)

/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: leases on several streams: waits of a begin, retired, destroyed and default streams; a ready
 * layout used on two streams.
 */
#include "unit/arena/test_arena.h"

#include <pthread.h>

#include "fallow/layouts.h"

TEST(a_lease_on_another_stream_waits_on_the_device_once)
{
    bed_begin();
    fallow_arena *arena = make_arena(0);
    fallow_layout *layout = make_plain_layout(64 * KIB);
    CUstream streams[2] = {api.stream, api.other};
    lease_once(arena, layout, api.other); /* both streams are known */
    for (int i = 0; i < 20; i++) {
        CUstream stream = streams[i % 2];
        uint64_t records = api.sim.call_count("cuEventRecord"),
                 waits = api.sim.call_count("cuStreamWaitEvent"),
                 seen = arena_stats(arena).wait_count;
        fallow_lease *lease = begin_lease(arena, layout, stream);
        assert_int_equal(api.sim.call_count("cuEventRecord") - records, 1);
        assert_int_equal(api.sim.call_count("cuStreamWaitEvent") - waits, 1);
        assert_int_equal(arena_stats(arena).wait_count - seen, 1);
        touch_lease(lease, layout, stream);
        end_lease(lease, stream);
    }
    assert_int_equal(api.sim.call_count("cuStreamSynchronize"), 0);
    bed_end();
}

/* Allocations and frees, which poll, do not occur: leases alone must reuse events. */
TEST(events_of_leases_serve_again)
{
    for (int streams_may_die = 0; streams_may_die < 2; streams_may_die++) {
        bed_begin_world();
        fallow_pool_config config = api_config(&api);
        config.streams_may_die = (uint8_t)streams_may_die;
        assert_ok(fallow_pool_create(&config, &api.pool));
        fallow_arena *arena = make_arena(0);
        fallow_layout *layout = make_plain_layout(64 * KIB);
        uint64_t made = 0;
        for (int i = 0; i < 300; i++) {
            CUstream stream = i % 2 == 0 || streams_may_die ? api.stream : api.other;
            if (i == 100) {
                made = api.sim.call_count("cuEventCreate");
            }
            if (i % 3 == 0) {
                assert_ok(fallow_lease_guard(arena, stream));
            } else {
                lease_once(arena, layout, stream);
            }
            assert_ok(api.sim.cu.cuStreamSynchronize(stream));
        }
        assert_int_equal(api.sim.call_count("cuEventCreate"), made);
        bed_end();
    }
}

TEST(the_stream_of_the_end_counts_not_that_of_the_begin)
{
    CUevent event;
    bed_begin();
    assert_ok(api.sim.cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    fallow_arena *arena = make_arena(0);
    fallow_layout *layout = make_plain_layout(64 * KIB);
    for (int i = 0; i < 5; i++) {
        fallow_lease *lease = begin_lease(arena, layout, api.stream);
        touch_lease(lease, layout, api.stream);
        assert_ok(api.sim.cu.cuEventRecord(event, api.stream));
        assert_ok(api.sim.cu.cuStreamWaitEvent(api.other, event, 0));
        touch_lease(lease, layout, api.other);
        end_lease(lease, api.other);
    }
    assert_int_equal(arena_stats(arena).wait_count, 4);
    destroy_arena(arena);
    destroy_layout(layout);
    assert_ok(api.sim.cu.cuEventDestroy_v2(event));
    bed_end();
}

TEST(a_retired_streams_work_is_still_waited_for)
{
    bed_begin();
    fallow_arena *arena = make_arena(0);
    fallow_layout *layout = make_plain_layout(64 * KIB);
    for (int i = 0; i < 4; i++) { /* the simulated device gives the handle out again at once */
        CUstream stream = NULL, again = NULL;
        assert_ok(api.sim.cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        use_lease(arena, layout, stream);
        if (i == 3) {
            destroy_arena(arena); /* with a mark on a stream that has gone below */
            arena = make_arena(0);
        }
        assert_ok(fallow_stream_retire(api.pool, stream));
        assert_ok(api.sim.cu.cuStreamDestroy_v2(stream));
        assert_ok(api.sim.cu.cuStreamCreate(&again, CU_STREAM_NON_BLOCKING));
        use_lease(arena, layout, i % 2 == 0 ? again : api.other);
        assert_ok(fallow_stream_retire(api.pool, again));
        assert_ok(api.sim.cu.cuStreamDestroy_v2(again));
    }
    expect_silence();
    assert_ok(fallow_arena_trim(arena)); /* freed where nobody can name the end */
    assert_int_equal(api_stats(&api).live_count, 0);
    bed_end();
}

/* The handle is the same, the stream is not: work queued in the lease must be waited for. */
TEST(a_lease_may_end_on_a_stream_that_took_over_the_handle)
{
    CUstream stream, again, first;
    bed_begin();
    fallow_arena *arena = make_arena(0);
    fallow_layout *layout = make_plain_layout(64 * KIB);
    assert_ok(api.sim.cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    first = stream;
    for (int i = 0; i < 2; i++) { /* the second one is begun in steady state */
        fallow_lease *lease = begin_lease(arena, layout, stream);
        if (i == 1) {
            assert_ok(fallow_stream_retire(api.pool, stream));
            assert_ok(api.sim.cu.cuStreamDestroy_v2(stream));
            assert_ok(api.sim.cu.cuStreamCreate(&again, CU_STREAM_NON_BLOCKING));
            assert_ptr_equal(again, first);
            touch_lease(lease, layout, again);
        }
        assert_ok(fallow_lease_end(lease, i == 0 ? stream : again));
    }
    fallow_lease *lease = begin_lease(arena, layout, api.other);
    touch_lease(lease, layout, api.other);
    assert_ok(fallow_lease_end(lease, api.other));
    destroy_arena(arena);
    destroy_layout(layout);
    assert_ok(fallow_stream_retire(api.pool, again));
    assert_ok(api.sim.cu.cuStreamDestroy_v2(again));
    bed_end();
}

TEST(a_dead_handle_without_notice_makes_the_host_wait)
{
    CUstream stream = NULL;
    bed_begin();
    fallow_arena *arena = make_arena(0);
    fallow_layout *layout = make_plain_layout(64 * KIB);
    assert_ok(api.sim.cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    use_lease(arena, layout, stream);
    assert_ok(api.sim.cu.cuStreamDestroy_v2(stream));
    use_lease(arena, layout, api.other);
    bed_end();
}

struct visitor {
    fallow_arena *arena;
    fallow_layout *layout;
    CUcontext context;
    CUstream begins_on; /* NULL: the thread's default stream, where each lease ends */
    fallow_status status;
};

static void *lease_on_own_default_stream(void *context)
{
    struct visitor *visitor = context;
    CUstream own = (CUstream)(uintptr_t)2;
    fallow_lease *lease = NULL;
    if (api.sim.cu.cuCtxSetCurrent(visitor->context) != CUDA_SUCCESS) {
        return NULL;
    }
    CUstream first = visitor->begins_on != NULL ? visitor->begins_on : own;
    visitor->status = fallow_lease_begin(visitor->arena, visitor->layout, first, &lease);
    if (visitor->status == FALLOW_OK) {
        flw_sim_range range = {(uint64_t)(uintptr_t)fallow_lease_region_at(lease, 0), 4096, 1, 0};
        visitor->status = api.sim.touch(own, &range, 1) == 0 ? FALLOW_OK : FALLOW_DRIVER;
        fallow_status ended = fallow_lease_end(lease, own);
        visitor->status = visitor->status == FALLOW_OK ? ended : visitor->status;
    }
    return NULL;
}

/* During a capture, announced or not, the host cannot wait for earlier work of the captured stream. */
TEST(a_trim_beside_a_capture_unmaps_nothing_that_is_used)
{
    fallow_capture *capture;
    bed_begin();
    fallow_arena *arena = make_arena(0);
    fallow_layout *layout = make_plain_layout(64 * KIB), *large = make_plain_layout(20 * MIB);
    lease_once(arena, layout, api.other);
    begin_capturing(api.other, &capture);
    lease_once(arena, layout, api.other);
    CUgraphExec graph = end_capturing(api.other, capture);
    use_lease(arena, large, api.stream);
    api_begin_capturing(&api, api.stream);
    assert_int_equal(fallow_arena_trim(arena), FALLOW_CAPTURING);
    assert_int_equal(arena_stats(arena).scratch_bytes, 20 * MIB);
    expect_silence();
    api_drop_captured(&api, api.stream);
    assert_int_equal(fallow_arena_trim(arena), FALLOW_BUSY); /* keeps the graph's memory */
    assert_int_equal(arena_stats(arena).scratch_bytes, 64 * KIB);
    expect_silence();
    drop_graph(graph, capture);
    bed_end();
}

TEST(nothing_is_given_up_that_a_capture_keeps_from_being_freed)
{
    fallow_lease *lease;
    fallow_capture *capture;
    bed_begin_world();
    fallow_pool_config config = api_config(&api);
    config.streams_may_die = 1;
    assert_ok(fallow_pool_create(&config, &api.pool));
    fallow_arena *arena = make_arena(0);
    fallow_region region = KEPT_REGION("x", 4 * KIB, .init = FALLOW_INIT_DIRTY);
    fallow_layout *small = make_layout(&region, 1), *layout = make_plain_layout(MIB);
    region.size_bytes *= 2;
    fallow_layout *large = make_layout(&region, 1);
    lease_once(arena, small, api.stream);
    lease_once(arena, layout, api.stream);
    assert_ok(fallow_lease_guard(arena, api.other)); /* without a fence */
    begin_capturing(api.stream, &capture);
    assert_int_equal(fallow_arena_trim(arena), FALLOW_CAPTURING);
    assert_int_equal(fallow_lease_begin(arena, large, api.other, &lease), FALLOW_CAPTURING);
    assert_int_equal(api_stats(&api).requested_bytes, MIB + 4 * KIB);
    assert_int_equal(arena_stats(arena).scratch_bytes, MIB);
    assert_int_equal(arena_stats(arena).persistent_bytes, 4 * KIB);
    api_drop_captured(&api, api.stream);
    assert_ok(fallow_capture_end(capture));
    assert_ok(fallow_capture_release(capture));
    assert_ok(fallow_arena_trim(arena));
    assert_int_equal(api_stats(&api).requested_bytes, 0);
    bed_end();
}

TEST(the_default_streams_of_two_threads_are_two_streams)
{
    pthread_t thread;
    CUstream own = (CUstream)(uintptr_t)2;
    bed_begin();
    struct visitor visitor = {.arena = make_arena(0), .layout = make_plain_layout(4096)};
    assert_ok(api.sim.cu.cuCtxGetCurrent(&visitor.context));
    lease_once(visitor.arena, visitor.layout, api.stream);
    for (int i = 0; i < 4; i++) {
        visitor.begins_on = i == 0 ? api.stream : NULL;
        assert_int_equal(pthread_create(&thread, NULL, lease_on_own_default_stream, &visitor), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_ok(visitor.status);
        use_lease(visitor.arena, visitor.layout, own);
    }
    bed_end();
}

struct prefill {
    const fallow_layout *layout;
    const fallow_lease *lease;
    fallow_step step;
};

/* Launch a kernel that reads and writes whole regions. Names are separated by commas; names that the layout
 * lacks are ignored. */
static void launch(const struct prefill *prefill, CUstream stream, const char *reads,
                   const char *writes)
{
    flw_sim_range ranges[8];
    size_t count = 0;
    for (uint32_t is_write = 0; is_write < 2; is_write++) {
        char names[128], *rest = names;
        snprintf(names, sizeof names, "%s", is_write ? writes : reads);
        for (char *name = strsep(&rest, ","); name != NULL; name = strsep(&rest, ",")) {
            fallow_region region;
            size_t index = fallow_layout_find(prefill->layout, name);
            if (fallow_layout_region(prefill->layout, index, &region, NULL) == FALLOW_OK) {
                void *address = fallow_lease_region_at(prefill->lease, index);
                ranges[count++] = (flw_sim_range){.address = (uint64_t)(uintptr_t)address,
                                                  .bytes = region.size_bytes,
                                                  .is_write = is_write};
            }
        }
    }
    assert_int_equal(api.sim.touch(stream, ranges, count), 0);
}

/* Return the name of the region with the gathered rows of a chunk. */
static const char *gathered(const struct prefill *prefill, int chunk)
{
    static const char *const names[] = {"gathered 0", "gathered 1"};
    return prefill->step.overlaps ? names[chunk % 2] : "gathered";
}

/* Process a chunk while the other stream gathers the next one. */
static void work_on_chunk(const struct prefill *prefill, int chunk, bool is_last)
{
    char both[32];
    wait_for(api.stream, api.other);
    if (!is_last) {
        launch(prefill, api.other, "chunk_starts,cu_chunk", gathered(prefill, chunk + 1));
    }
    launch(prefill, api.stream, gathered(prefill, chunk), "kv_nope");
    snprintf(both, sizeof both, "kv_nope,%s", gathered(prefill, chunk));
    launch(prefill, api.stream, both, "k,v_padded");
    wait_for(api.other, api.stream); /* before the gather of chunk + 2 */
    launch(prefill, api.stream, prefill->step.pads_values ? "k,v_padded" : "k,kv_nope",
           "chunk_out,chunk_lse");
    launch(prefill, api.stream, "chunk_out,chunk_lse,out,lse", "out,lse");
}

static uint64_t races_of_eight_chunks(bool overlaps, bool pads_values)
{
    const fallow_model model = {
        .heads = 2, .kv_heads = 2, .head_dim = 16, .kv_rank = 24, .rope_dim = 8};
    struct prefill prefill = {0};
    fallow_layout *layout = NULL;
    bed_begin();
    fallow_step_init(&prefill.step);
    prefill.step.tokens = 32;
    prefill.step.chunk = 64;
    prefill.step.context = 8 * prefill.step.chunk;
    prefill.step.overlaps = overlaps;
    prefill.step.pads_values = pads_values;
    assert_ok(fallow_layout_mla_prefill(&model, &prefill.step, &layout));
    assert_int_equal(fallow_layout_region_count(layout), 10 + overlaps + pads_values);
    fallow_arena *arena = make_arena(0);
    fallow_lease *lease = begin_lease(arena, layout, api.stream);
    prefill.layout = layout;
    prefill.lease = lease;
    launch(&prefill, api.stream, "", "chunk_starts,chunk_seq_lens,cu_chunk");
    wait_for(api.other, api.stream);
    launch(&prefill, api.other, "chunk_starts,cu_chunk", gathered(&prefill, 0));
    launch(&prefill, api.stream, "", "out,lse");
    for (int i = 0; i < 8; i++) {
        work_on_chunk(&prefill, i, i == 7);
    }
    end_lease(lease, api.stream);
    destroy_arena(arena);
    destroy_layout(layout);
    return bed_end_with_violations();
}

TEST(a_chunk_is_gathered_while_the_one_before_is_worked_on)
{
    for (int pads_values = 0; pads_values < 2; pads_values++) {
        assert_int_equal(races_of_eight_chunks(true, pads_values == 1), 0);
        assert_true(races_of_eight_chunks(false, pads_values == 1) >= 7);
    }
}

FLW_TEST_MAIN(NULL, NULL)

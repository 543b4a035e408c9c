/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the public header's promises about leases inside captures, and about the resulting graphs. */
#include "unit/arena/test_arena.h"

#include "fallow/extend.h"

static fallow_layout *make_kept_layout(void)
{
    const fallow_region regions[] = {{.name = "x", .size_bytes = 20000},
                                     KEPT_REGION("counter", 512, .init = FALLOW_INIT_COUNTER)};
    return make_layout(regions, 2);
}

TEST(growth_and_initialisation_are_refused_inside)
{
    fallow_capture *capture = NULL;
    bed_begin();
    fallow_arena *arena = make_arena(0);
    fallow_layout *small = make_plain_layout(5000), *kept = make_kept_layout();
    begin_capturing(api.stream, &capture);
    char sentence[160];
    snprintf(
        sentence, sizeof sentence,
        "holds 0 bytes and cannot grow inside a capture; layout 'unnamed' needs %zu aligned to 256 "
        "(largest region 'x', 20000 bytes): lease the layout once before",
        fallow_layout_bytes(kept));
    uint64_t calls = api.sim.call_count("cuMemCreate");
    refuse_lease(arena, kept, api.stream, FALLOW_CAPTURING, sentence);
    assert_int_equal(api.sim.call_count("cuMemCreate"), calls);
    assert_int_equal(arena_stats(arena).is_pinned, 0);
    drop_graph(end_capturing(api.stream, capture), capture);

    fallow_layout *plain = make_plain_layout(30000);
    lease_once(arena, plain, api.stream);
    begin_capturing(api.stream, &capture);
    refuse_lease(arena, kept, api.stream, FALLOW_CAPTURING,
                 "persistent region 'counter' needs 512 bytes aligned to 256, has 0, and cannot "
                 "move inside a capture: lease the layout once before");
    drop_graph(end_capturing(api.stream, capture), capture);

    lease_once(arena, kept, api.stream);
    assert_ok(fallow_arena_lose_contents(arena));
    begin_capturing(api.stream, &capture);
    refuse_lease(arena, kept, api.stream, FALLOW_CAPTURING,
                 "persistent region 'counter' must be initialised and cannot be inside a capture");
    lease_once(arena, small, api.stream); /* fits, nothing to initialise */
    drop_graph(end_capturing(api.stream, capture), capture);
    bed_end();
}

/* Lease and use the arena. Fails unless the first region is at `address`. */
static void lease_at(fallow_arena *arena, const fallow_layout *layout, CUstream stream,
                     const void *address)
{
    fallow_lease *lease = begin_lease(arena, layout, stream);
    assert_ptr_equal(fallow_lease_region_at(lease, 0), address);
    touch_lease(lease, layout, stream);
    end_lease(lease, stream);
}

static void share_with_graphs(bool grows_in_place)
{
    fallow_capture *capture = NULL;
    bed_begin_world();
    fallow_pool_config config = api_config(&api);
    config.page_source = grows_in_place ? FALLOW_PAGES_HANDLES : FALLOW_PAGES_SEGMENTS;
    assert_ok(fallow_pool_create(&config, &api.pool));
    fallow_arena *arena = make_arena(0);
    fallow_layout *layout = make_kept_layout(), *larger = make_plain_layout(5 * MIB);
    fallow_layout *small = make_plain_layout(5000);
    fallow_region region = KEPT_REGION("counter", 4096, .init = FALLOW_INIT_COUNTER);
    fallow_layout *longer = make_layout(&region, 1);
    fallow_lease *lease = begin_lease(arena, layout, api.stream);
    void *address = fallow_lease_region_at(lease, 0);
    end_lease(lease, api.stream);
    begin_capturing(api.stream, &capture);
    lease = begin_lease(arena, layout, api.stream);
    assert_ptr_equal(fallow_lease_region_at(lease, 0), address);
    assert_int_equal(arena_stats(arena).is_pinned, 1);
    touch_lease(lease, layout, api.stream);
    end_lease(lease, api.stream);
    lease_at(arena, layout, api.other, address);
    CUgraphExec executable = end_capturing(api.stream, capture);
    size_t held = fallow_layout_bytes(layout);
    for (int i = 0; i < 4; i++) { /* twice on each stream */
        CUstream stream = i < 2 ? api.stream : api.other;
        lease_at(arena, layout, stream, address);
        if (grows_in_place) {
            lease_at(arena, larger, stream, address);
            assert_int_equal(arena_stats(arena).scratch_bytes, 5 * MIB);
        } else {
            refuse_lease(
                arena, larger, stream, FALLOW_BUSY,
                "cannot move while graphs of 1 captures hold its addresses; layout 'unnamed' needs "
                "5242880 aligned to 256");
        }
        assert_int_equal(fallow_arena_trim(arena), FALLOW_BUSY); /* keeps the memory of graphs */
        assert_int_equal(arena_stats(arena).scratch_bytes, held);
        assert_int_equal(arena_stats(arena).generation, 1);
        assert_ok(fallow_pool_trim(api.pool, 0, 0, NULL));
        /* One page of scratch and one with the counter. */
        assert_true(flw_sim_read_ledger(&api.sim).given_bytes <= 4 * MIB);
        refuse_lease(arena, longer, stream, FALLOW_BUSY,
                     "'counter' needs 4096 bytes aligned to 256, has 512, and cannot move while "
                     "graphs of 1 captures");
        launch_guarded(arena, executable, api.stream);
        lease_at(arena, small, stream, address);
        launch_guarded(arena, executable, stream);
    }
    drop_graph(executable, capture);
    lease_at(arena, layout, api.other, address); /* ordered after the graph */
    assert_int_equal(arena_stats(arena).is_pinned, 0);
    lease_once(arena, longer, api.other);
    use_lease(arena, larger, api.stream);
    bed_end();
}

TEST(eager_leases_share_the_arena_with_graphs)
{
    share_with_graphs(true);
    share_with_graphs(false);
}

/* Released without a guard: a release means that the last launch precedes the stream's end. */
TEST(a_lease_after_a_release_comes_after_the_captures_stream)
{
    fallow_capture *capture = NULL;
    for (int kind = 0; kind < 3; kind++) {
        bed_begin();
        fallow_arena *arena = make_arena(0);
        fallow_layout *layout = make_plain_layout(20000);
        lease_once(arena, layout, api.stream);
        begin_capturing(api.stream, &capture);
        use_lease(arena, layout, api.stream);
        CUgraphExec executable = end_capturing(api.stream, capture);
        assert_ok(api.sim.cu.cuGraphLaunch(executable, api.stream));
        drop_graph(executable, capture);
        if (kind == 0) {
            use_lease(arena, layout, api.other);
        } else if (kind == 1) { /* back to the pool, and to another owner */
            assert_ok(fallow_arena_trim(arena));
        }
        destroy_arena(arena);
        void *next = api_alloc(&api, 20000, api.other);
        api_use(&api, next, 20000, api.other);
        bed_end();
    }
}

TEST(an_arena_destroyed_while_pinned_gives_back_after_the_graphs)
{
    fallow_capture *capture = NULL;
    bed_begin();
    fallow_arena *arena = make_arena(0);
    fallow_layout *layout = make_plain_layout(20000);
    lease_once(arena, layout, api.other);
    begin_capturing(api.stream, &capture);
    use_lease(arena, layout, api.stream);
    CUgraphExec executable = end_capturing(api.stream, capture);
    launch_guarded(arena, executable, api.stream);
    destroy_arena(arena);
    for (int i = 0; i < 8; i++) {
        void *next = api_alloc(&api, 20000, api.other);
        api_use(&api, next, 20000, api.other);
    }
    expect_silence();
    drop_graph(executable, capture);
    bed_end();
}

TEST(graphs_of_several_captures_find_one_arena)
{
    fallow_capture *captures[3];
    CUgraphExec executables[3];
    unsigned char byte = 0;
    bed_begin();
    fallow_arena *arena = make_arena(0);
    fallow_region region = KEPT_REGION("counter", 4096, .init = FALLOW_INIT_COUNTER);
    fallow_layout *layout = make_kept_layout(), *longer = make_layout(&region, 1);
    fallow_lease *lease = begin_lease(arena, layout, api.stream);
    unsigned char *address = fallow_lease_region_at(lease, 0);
    end_lease(lease, api.stream);
    for (int i = 0; i < 3; i++) {
        begin_capturing(api.stream, &captures[i]);
        lease = begin_lease(arena, layout, api.stream);
        assert_ptr_equal(fallow_lease_region_at(lease, 0), address);
        fill_bytes(address, 10 + i, 20000, api.stream);
        end_lease(lease, api.stream);
        lease = begin_lease(arena, layout, api.stream); /* twice in one capture: one pin */
        end_lease(lease, api.stream);
        executables[i] = end_capturing(api.stream, captures[i]);
    }
    for (int i = 0; i < 12; i++) { /* alternately on two streams: the guard orders them */
        CUstream stream = i % 3 == 0 ? api.stream : api.other;
        launch_guarded(arena, executables[i % 3], stream);
        if (i % 3 == 2) {
            read_bytes(&byte, address + 19999, 1, stream);
            assert_int_equal(byte, 12);
        }
    }
    expect_silence();
    for (int i = 0; i < 3; i++) {
        char sentence[64];
        snprintf(sentence, sizeof sentence, "graphs of %d captures hold its address", 3 - i);
        refuse_lease(arena, longer, api.stream, FALLOW_BUSY, sentence);
        drop_graph(executables[i], captures[i]);
    }
    use_lease(arena, layout, api.other);
    bed_end();
}

TEST(leases_on_two_streams_of_one_capture_are_ordered_in_its_graph)
{
    fallow_capture *capture = NULL;
    CUevent event = NULL;
    bed_begin();
    assert_ok(api.sim.cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    fallow_arena *arena = make_arena(0);
    fallow_layout *layout = make_plain_layout(20000);
    lease_once(arena, layout, api.stream);
    begin_capturing(api.stream, &capture);
    assert_ok(api.sim.cu.cuEventRecord(event, api.stream));
    assert_ok(api.sim.cu.cuStreamWaitEvent(api.other, event, 0));
    assert_ok(fallow_capture_join(capture, api.other));
    for (int i = 0; i < 4; i++) {
        CUstream stream = i % 2 == 0 ? api.stream : api.other;
        use_lease(arena, layout, stream);
    }
    assert_ok(api.sim.cu.cuEventRecord(event, api.other));
    assert_ok(api.sim.cu.cuStreamWaitEvent(api.stream, event, 0));
    CUgraphExec executable = end_capturing(api.stream, capture);
    assert_int_equal(arena_stats(arena).wait_count, 3);
    for (int i = 0; i < 3; i++) {
        launch_guarded(arena, executable, api.stream);
    }
    expect_silence();
    drop_graph(executable, capture);
    assert_ok(api.sim.cu.cuEventDestroy_v2(event));
    bed_end();
}

TEST(the_guard_restores_what_a_sleep_lost_before_a_graph_runs)
{
    fallow_capture *capture = NULL;
    unsigned char bytes[512];
    bed_begin();
    fallow_arena *arena = make_arena(0);
    fallow_layout *layout = make_kept_layout();
    fallow_lease *lease = begin_lease(arena, layout, api.stream);
    void *counter = fallow_lease_region(lease, "counter");
    end_lease(lease, api.stream);
    begin_capturing(api.stream, &capture);
    lease_once(arena, layout, api.stream);
    CUgraphExec executable = end_capturing(api.stream, capture);
    fill_bytes(counter, 0x77, 512, api.stream);
    assert_ok(fallow_arena_lose_contents(arena));
    assert_ok(fallow_lease_guard(arena, api.stream));
    read_bytes(bytes, counter, 512, api.stream);
    for (size_t i = 0; i < 512; i++) {
        assert_int_equal(bytes[i], 0);
    }
    assert_int_equal(arena_stats(arena).init_count, 2);
    assert_ok(fallow_lease_guard(arena, api.stream));
    assert_int_equal(arena_stats(arena).init_count, 2);
    drop_graph(executable, capture);
    bed_end();
}

TEST(a_lease_is_not_carried_into_a_capture_but_may_outlast_one)
{
    fallow_capture *capture = NULL;
    bed_begin();
    fallow_arena *arena = make_arena(0);
    fallow_layout *layout = make_plain_layout(20000);
    fallow_lease *lease = begin_lease(arena, layout, api.stream);
    begin_capturing(api.stream, &capture);
    assert_int_equal(fallow_lease_end(lease, api.stream), FALLOW_CAPTURING);
    assert_non_null(fallow_lease_region_at(lease, 0)); /* open still */
    end_lease(lease, api.other);                       /* no part of the capture */
    lease = begin_lease(arena, layout, api.stream);
    assert_int_equal(fallow_lease_guard(arena, api.stream), FALLOW_BUSY);
    touch_lease(lease, layout, api.stream);
    CUgraphExec executable = end_capturing(api.stream, capture);
    end_lease(lease, api.stream);
    assert_int_equal(arena_stats(arena).is_pinned, 1);
    drop_graph(executable, capture);
    lease_once(arena, layout, api.other);
    bed_end();
}

enum change {
    ANNOUNCED,
    ASKED,      /* an unannounced capture begins; the arena queries captures */
    RECAPTURED, /* the capture of the begin has ended and another has begun */
    DESTROYED,
    CHANGES
};

/* If the stream of a lease enters a capture or is destroyed, an end on that stream is refused, and an end on
 * FALLOW_LEASE_STREAM succeeds. */
TEST(a_lease_ends_on_its_own_stream_as_that_was)
{
    for (enum change change = 0; change < CHANGES; change++) {
        fallow_arena_config config;
        fallow_arena *arena = NULL;
        fallow_capture *first = NULL, *capture = NULL;
        CUstream stream = NULL;
        bed_begin();
        assert_ok(api.sim.cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        fallow_arena_config_init(&config);
        config.asks_captures = change == ASKED;
        assert_ok(fallow_arena_create(api.pool, &config, &arena));
        fallow_layout *layout = make_plain_layout(20000);
        lease_once(arena, layout, stream);
        if (change == RECAPTURED) {
            begin_capturing(stream, &first);
        }
        fallow_lease *lease = begin_lease(arena, layout, stream);
        touch_lease(lease, layout, stream);
        CUgraphExec executable = first != NULL ? end_capturing(stream, first) : NULL;
        if (change == ASKED) {
            api_begin_capturing(&api, stream);
        } else if (change == DESTROYED) {
            assert_ok(fallow_stream_retire(api.pool, stream));
            assert_ok(api.sim.cu.cuStreamDestroy_v2(stream));
        } else {
            begin_capturing(stream, &capture);
        }
        assert_int_equal(fallow_lease_end(lease, stream),
                         change == DESTROYED ? FALLOW_INVALID_STREAM : FALLOW_CAPTURING);
        uint64_t refused = arena_stats(arena).refuse_count;
        end_lease(lease, FALLOW_LEASE_STREAM);
        assert_int_equal(arena_stats(arena).refuse_count, refused);
        assert_int_equal(fallow_lease_end(lease, FALLOW_LEASE_STREAM), FALLOW_INVALID_ARGUMENT);
        if (capture != NULL) {
            end_lease(begin_lease(arena, layout, stream), FALLOW_LEASE_STREAM);
            drop_graph(end_capturing(stream, capture), capture);
        } else if (change == ASKED) {
            api_drop_captured(&api, stream);
        }
        lease = begin_lease(arena, layout, api.other);
        touch_lease(lease, layout, api.other);
        end_lease(lease, FALLOW_LEASE_STREAM);
        if (executable != NULL) {
            drop_graph(executable, first);
        }
        bed_end();
    }
}

TEST(a_capture_of_the_last_stream_is_not_drawn_into_the_order)
{
    fallow_capture *capture = NULL;
    bed_begin();
    fallow_arena *arena = make_arena(0);
    fallow_layout *layout = make_plain_layout(20000);
    use_lease(arena, layout, api.stream);
    begin_capturing(api.stream, &capture);
    assert_int_equal(fallow_lease_guard(arena, api.stream), FALLOW_CAPTURING);
    use_lease(arena, layout, api.other); /* waits for the fence before the capture */
    CUgraphExec executable = end_capturing(api.stream, capture);
    expect_silence();
    drop_graph(executable, capture);
    bed_end();
}

TEST(an_unannounced_capture_is_found_when_order_is_to_be_made)
{
    bed_begin();
    fallow_arena *arena = make_arena(0);
    fallow_layout *layout = make_plain_layout(20000);
    lease_once(arena, layout, api.stream);
    api_begin_capturing(&api, api.other);
    refuse_lease(arena, layout, api.other, FALLOW_CAPTURING,
                 "the stream is being captured: announce that with fallow_capture_begin");
    api_drop_captured(&api, api.other);
    lease_once(arena, layout, api.other);
    bed_end();
}

/* The capture is unannounced, so only a query of the driver finds it. */
TEST(an_arena_that_asks_refuses_what_a_capture_would_keep_unseen)
{
    for (int is_hinted = 0; is_hinted < 2; is_hinted++) {
        fallow_arena_config config;
        fallow_arena *arena = NULL;
        bed_begin();
        fallow_arena_config_init(&config);
        config.asks_captures = !is_hinted;
        assert_ok(fallow_arena_create(api.pool, &config, &arena));
        fallow_layout *layouts[] = {make_plain_layout(20000), make_plain_layout(5000)};
        for (int i = 0; i < 2; i++) {
            lease_once(arena, layouts[i], api.stream);
        }
        if (is_hinted) { /* a capture of an unknown stream */
            fallow_context_capture_begin();
        }
        uint64_t calls = flw_sim_read_ledger(&api.sim).call_count;
        fallow_lease *lease = begin_lease(arena, layouts[0], api.stream);
        assert_true(is_hinted || flw_sim_read_ledger(&api.sim).call_count == calls + 1);
        api_begin_capturing(&api, api.stream);
        assert_int_equal(fallow_lease_end(lease, api.stream), FALLOW_CAPTURING);
        end_lease(lease, api.other);
        lease_once(arena, layouts[0], api.other);
        for (int i = 0; i < 2; i++) {
            refuse_lease(arena, layouts[i], api.stream, FALLOW_CAPTURING,
                         "announce that with fallow_capture_begin");
        }
        assert_int_equal(fallow_lease_guard(arena, api.stream), FALLOW_CAPTURING);
        api_drop_captured(&api, api.stream);
        if (is_hinted) {
            fallow_context_capture_end();
        }
        lease_once(arena, layouts[0], api.stream);
        bed_end();
    }
}

/* Use blocks of the arena's sizes: they would reuse memory that the arena freed too early. */
static void use_blocks_like(const fallow_layout *layout, CUstream stream)
{
    void *blocks[8];
    for (int i = 0; i < 8; i++) {
        blocks[i] = api_alloc(&api, fallow_layout_bytes(layout), stream);
        api_use(&api, blocks[i], fallow_layout_bytes(layout), stream);
    }
    for (int i = 0; i < 8; i++) {
        assert_ok(fallow_free(api.pool, blocks[i], stream));
    }
}

TEST(a_capture_of_the_last_stream_that_is_not_announced_before_survives)
{
    for (int is_late = 0; is_late < 2; is_late++) {
        fallow_capture *capture = NULL;
        bed_begin();
        fallow_arena *arena = make_arena(0);
        fallow_layout *layout = make_plain_layout(20000);
        use_lease(arena, layout, api.stream);
        api_begin_capturing(&api, api.stream);
        if (is_late) {
            assert_ok(fallow_capture_begin(api.pool, api.stream, &capture));
        }
        use_lease(arena, layout, api.other); /* in other memory */
        use_blocks_like(layout, api.other);
        if (is_late) {
            CUgraphExec executable = end_capturing(api.stream, capture);
            drop_graph(executable, capture);
        } else {
            api_drop_captured(&api, api.stream);
        }
        use_blocks_like(layout, api.other);
        lease_once(arena, layout, api.other);
        expect_silence();
        assert_ok(fallow_pool_validate(api.pool));
        bed_end();
    }
}

/* Only a wait for the whole context covers work of an ended stream: it would end any capture in
 * the context. */
static void leave_work_on_a_stream_that_is_gone(fallow_arena *arena, const fallow_layout *layout)
{
    CUstream gone = NULL;
    assert_ok(api.sim.cu.cuStreamCreate(&gone, CU_STREAM_NON_BLOCKING));
    use_lease(arena, layout, gone);
    assert_ok(api.sim.cu.cuStreamDestroy_v2(gone));
}

/* An arena that keeps no values abandons the memory to that work and allocates other memory. */
TEST(another_streams_capture_stands_in_the_way_of_values_alone)
{
    for (int way = 0; way < 4; way++) {
        fallow_capture *capture = NULL;
        CUgraphExec executable = NULL;
        bool is_announced = way % 2 != 0, holds_values = way / 2 != 0;
        bed_begin();
        fallow_arena *arena = make_arena(0);
        fallow_layout *layout = holds_values ? make_kept_layout() : make_plain_layout(20000);
        (void)api_alloc(&api, 5000, api.other); /* the pool has seen it */
        leave_work_on_a_stream_that_is_gone(arena, layout);
        if (is_announced) {
            begin_capturing(api.other, &capture);
        } else {
            api_begin_capturing(&api, api.other);
        }
        assert_int_equal(fallow_lease_guard(arena, api.stream), FALLOW_CAPTURING);
        if (holds_values) {
            refuse_lease(arena, layout, api.stream, FALLOW_CAPTURING,
                         "while another stream is being captured");
        } else {
            use_lease(arena, layout, api.stream);
        }
        use_blocks_like(layout, api.stream);
        if (is_announced) {
            lease_once(arena, layout, api.other); /* inside the capture */
            executable = end_capturing(api.other, capture);
            drop_graph(executable, capture);
        } else {
            api_drop_captured(&api, api.other); /* has survived */
        }
        use_blocks_like(layout, api.other);
        use_lease(arena, layout, api.stream);
        expect_silence();
        assert_ok(fallow_pool_validate(api.pool));
        bed_end();
    }
}

TEST(the_legacy_stream_is_refused_beside_a_blocking_streams_capture)
{
    fallow_capture *capture = NULL;
    CUstream blocking = NULL;
    bed_begin();
    fallow_arena *arena = make_arena(0);
    fallow_layout *layout = make_plain_layout(20000);
    assert_ok(api.sim.cu.cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    lease_once(arena, layout, api.stream);
    begin_capturing(blocking, &capture);
    refuse_lease(arena, layout, NULL, FALLOW_CAPTURING,
                 "the legacy stream cannot be used while a blocking stream is being captured");
    CUgraphExec executable = end_capturing(blocking, capture);
    lease_once(arena, layout, NULL);
    expect_silence();
    drop_graph(executable, capture);
    destroy_arena(arena);
    destroy_layout(layout);
    assert_ok(fallow_stream_retire(api.pool, blocking));
    assert_ok(api.sim.cu.cuStreamDestroy_v2(blocking));
    bed_end();
}

/* Destroy the stream while the last work is running; another stream has the same handle, which the
 * pool has noticed or not. Neither a lease by another stream nor a release by a trim or by the end
 * of the arena may precede that work. */
static void after_the_death_of(bool leases_in_graph, bool is_noticed)
{
    for (int kind = 0; kind < 3; kind++) {
        fallow_capture *capture = NULL;
        bed_begin_world();
        fallow_pool_config config = api_config(&api);
        config.streams_may_die = 1;
        assert_ok(fallow_pool_create(&config, &api.pool));
        fallow_arena *arena = make_arena(0);
        fallow_layout *layout = make_plain_layout(3 * MIB);
        CUstream dying = NULL;
        assert_ok(api.sim.cu.cuStreamCreate(&dying, CU_STREAM_NON_BLOCKING));
        use_lease(arena, layout, leases_in_graph ? api.stream : dying);
        if (leases_in_graph) {
            begin_capturing(dying, &capture);
            use_lease(arena, layout, dying);
            CUgraphExec executable = end_capturing(dying, capture);
            launch_guarded(arena, executable, dying);
            assert_ok(api.sim.cu.cuGraphExecDestroy(executable));
        }
        CUstream again = NULL;
        assert_ok(api.sim.cu.cuStreamDestroy_v2(dying));
        assert_ok(api.sim.cu.cuStreamCreate(&again, CU_STREAM_NON_BLOCKING));
        assert_ptr_equal(again, dying);
        if (is_noticed) {
            assert_ok(fallow_free(api.pool, api_alloc(&api, 300, again), again));
        }
        if (leases_in_graph) {
            assert_ok(fallow_capture_release(capture));
        }
        if (kind == 0) {
            use_lease(arena, layout, api.other);
        } else if (kind == 1) {
            assert_ok(fallow_arena_trim(arena));
        } else {
            destroy_arena(arena);
        }
        for (int i = 0; i < 2; i++) {
            CUstream stream = i == 0 ? again : api.other;
            void *next = api_alloc(&api, 3 * MIB, stream);
            api_use(&api, next, 3 * MIB, stream);
            assert_ok(fallow_free(api.pool, next, stream));
        }
        expect_silence();
        if (kind != 2) {
            destroy_arena(arena);
        }
        assert_ok(fallow_pool_validate(api.pool));
        bed_end();
    }
}

TEST(an_arena_comes_after_the_work_of_a_dead_stream)
{
    for (int way = 0; way < 4; way++) {
        after_the_death_of(way % 2 != 0, way / 2 != 0);
    }
}

FLW_TEST_MAIN(NULL, NULL)

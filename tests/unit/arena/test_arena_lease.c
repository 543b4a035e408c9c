/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the public header's promises about leases outside of captures: all or nothing, one at a
 * time, growth, lock, trim, errors. */
#include "unit/arena/test_arena.h"

#include <pthread.h>

TEST(a_lease_has_all_regions_or_none)
{
    const fallow_region regions[] = {
        {.name = "a", .size_bytes = 3000},
        {.name = "b", .size_bytes = 5000, .align_bytes = 4096},
        {.name = "c", .size_bytes = 70000, .first_phase = 1, .last_phase = 1}};
    bed_begin();
    fallow_arena *arena = make_arena(0);
    fallow_layout *layout = make_layout(regions, 3);
    fallow_lease *lease = begin_lease(arena, layout, api.stream);
    for (size_t i = 0; i < 3; i++) {
        size_t offset, first;
        assert_ok(fallow_layout_region(layout, i, NULL, &offset));
        assert_ok(fallow_layout_region(layout, 0, NULL, &first));
        assert_ptr_equal(fallow_lease_region_at(lease, i),
                         fallow_lease_region(lease, regions[i].name));
        assert_ptr_equal((char *)fallow_lease_region_at(lease, i) - offset,
                         (char *)fallow_lease_region_at(lease, 0) - first);
    }
    assert_int_equal((uintptr_t)fallow_lease_region(lease, "b") % 4096, 0);
    assert_null(fallow_lease_region(lease, "none"));
    assert_null(fallow_lease_region(lease, NULL));
    assert_null(fallow_lease_region_at(lease, 3));
    touch_lease(lease, layout, api.stream);
    end_lease(lease, api.stream);
    assert_null(fallow_lease_region(lease, "a"));
    assert_null(fallow_lease_region_at(lease, 0));
    bed_end();
}

struct thief {
    fallow_arena *arena;
    const fallow_layout *layout;
    CUstream stream;
    fallow_status status;
};

static void *begin_elsewhere(void *context)
{
    struct thief *thief = context;
    fallow_lease *lease;
    thief->status = fallow_lease_begin(thief->arena, thief->layout, thief->stream, &lease);
    return NULL;
}

TEST(a_second_begin_is_busy_from_any_thread)
{
    pthread_t thread;
    bed_begin();
    fallow_arena *arena = make_arena(0);
    fallow_layout *layout = make_plain_layout(4096);
    fallow_lease *lease = begin_lease(arena, layout, api.stream);
    refuse_lease(arena, layout, api.stream, FALLOW_BUSY, "arena 'decode': a lease is open");
    struct thief thief = {.arena = arena, .layout = layout, .stream = api.other};
    assert_int_equal(pthread_create(&thread, NULL, begin_elsewhere, &thief), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(thief.status, FALLOW_BUSY);
    assert_int_equal(arena_stats(arena).refuse_count, 2);
    assert_int_equal(arena_stats(arena).is_leased, 1);
    assert_int_equal(fallow_arena_lock(arena), FALLOW_BUSY);
    assert_int_equal(fallow_arena_unlock(arena), FALLOW_BUSY);
    assert_int_equal(fallow_arena_trim(arena), FALLOW_BUSY);
    assert_int_equal(fallow_arena_on_wake(arena, NULL, NULL), FALLOW_BUSY);
    assert_int_equal(fallow_arena_lose_contents(arena), FALLOW_BUSY);
    assert_int_equal(fallow_lease_guard(arena, api.stream), FALLOW_BUSY);
    end_lease(lease, api.stream);
    lease_once(arena, layout, api.stream);
    assert_int_equal(arena_stats(arena).lease_count, 2);
    bed_end();
}

TEST(steady_state_makes_no_driver_call_and_no_pool_call)
{
    fallow_region regions[12];
    char names[12][24];
    bed_begin();
    for (size_t i = 0; i < 12; i++) {
        snprintf(names[i], sizeof names[i], "r%zu", i);
        regions[i] = (fallow_region){.name = names[i],
                                     .size_bytes = 1000 * (i + 1),
                                     .first_phase = (uint32_t)i / 2,
                                     .last_phase = (uint32_t)i / 2 + 1,
                                     .flags = i == 11 ? FALLOW_REGION_PERSISTENT : 0,
                                     .init = i == 11 ? FALLOW_INIT_COUNTER : FALLOW_INIT_DIRTY};
    }
    fallow_arena *arena = make_arena(0);
    fallow_layout *layout = make_layout(regions, 12);
    lease_once(arena, layout, api.stream);
    fallow_arena_stats first = arena_stats(arena);
    fallow_stats before = api_stats(&api);
    uint64_t calls = flw_sim_read_ledger(&api.sim).call_count;
    for (int i = 0; i < 1000; i++) {
        fallow_lease *lease = begin_lease(arena, layout, api.stream);
        assert_non_null(fallow_lease_region_at(lease, (size_t)i % 12));
        end_lease(lease, api.stream);
    }
    assert_int_equal(flw_sim_read_ledger(&api.sim).call_count, calls);
    fallow_stats after = api_stats(&api);
    before.host_bytes = after.host_bytes; /* nothing of an arena's */
    assert_memory_equal(&before, &after, sizeof before);
    fallow_arena_stats last = arena_stats(arena);
    assert_int_equal(last.lease_count - first.lease_count, 1000);
    assert_int_equal(last.grow_count, 1);
    assert_int_equal(last.wait_count, 0);
    assert_int_equal(last.init_count, 1);
    assert_int_equal(last.refuse_count, 0);
    bed_end();
}

/* A step of 61 layers leases for attention and for experts in turn, while a graph has addresses of the arena. */
TEST(layouts_in_turn_and_guards_make_no_driver_call)
{
    fallow_capture *capture = NULL;
    const fallow_region regions[] = {{.name = "scores", .size_bytes = 70000},
                                     KEPT_REGION("counters", 512, .init = FALLOW_INIT_COUNTER),
                                     {.name = "rows", .size_bytes = 30000},
                                     KEPT_REGION("counts", 512, .init = FALLOW_INIT_COUNTER)};
    bed_begin();
    fallow_arena *arena = make_arena(0);
    fallow_layout *layouts[] = {make_layout(regions, 2), make_layout(regions + 2, 2),
                                make_layout(regions + 1, 3)};
    for (int i = 0; i < 2; i++) {
        lease_once(arena, layouts[i], api.stream);
    }
    begin_capturing(api.other, &capture);
    lease_once(arena, layouts[0], api.other);
    CUgraphExec executable = end_capturing(api.other, capture);
    launch_guarded(arena, executable, api.other);
    assert_ok(fallow_lease_guard(arena, api.stream));
    for (int i = 0; i < 2; i++) { /* each layout once after the guard */
        lease_once(arena, layouts[i], api.stream);
    }
    uint64_t calls = flw_sim_read_ledger(&api.sim).call_count;
    for (int i = 0; i < 122; i++) {
        fallow_lease *lease = begin_lease(arena, layouts[i % 2], api.stream);
        assert_non_null(fallow_lease_region_at(lease, 1));
        end_lease(lease, api.stream);
        if (i % 3 == 0) {
            assert_ok(fallow_lease_guard(arena, api.stream));
        }
    }
    lease_once(arena, layouts[2], api.stream); /* existing regions */
    assert_int_equal(flw_sim_read_ledger(&api.sim).call_count, calls);
    assert_ok(fallow_arena_lose_contents(arena));
    for (int i = 0; i < 4; i++) { /* each layout initialises the counter once more */
        lease_once(arena, layouts[i % 2], api.stream);
    }
    assert_int_equal(arena_stats(arena).init_count, 4);
    drop_graph(executable, capture);
    destroy_arena(arena);
    bed_end();
}

TEST(an_arena_grows_and_keeps_its_largest_block)
{
    bed_begin();
    fallow_arena *arena = make_arena(0);
    fallow_layout *small = make_plain_layout(10000), *large = make_plain_layout(5 * MIB);
    use_lease(arena, small, api.stream);
    assert_int_equal(arena_stats(arena).scratch_bytes, 10000);
    assert_int_equal(arena_stats(arena).generation, 1);
    use_lease(arena, large, api.other); /* moves to another stream and grows at once */
    assert_int_equal(arena_stats(arena).scratch_bytes, 5 * MIB);
    assert_int_equal(arena_stats(arena).generation, 1); /* grown in place */
    for (int i = 0; i < 4; i++) {
        const fallow_layout *layout = i % 2 == 0 ? small : large;
        use_lease(arena, layout, api.stream);
    }
    assert_int_equal(arena_stats(arena).grow_count, 2);
    assert_int_equal(api_stats(&api).live_count, 1);
    assert_ok(fallow_arena_trim(arena));
    assert_int_equal(arena_stats(arena).scratch_bytes, 0);
    assert_int_equal(api_stats(&api).live_count, 0);
    use_lease(arena, small, api.other);
    assert_int_equal(arena_stats(arena).scratch_bytes, 10000);
    bed_end();
}

/* Growth never holds the old block and the new one at once: the block grows in place, or without virtual memory
 * the old block is freed first. */
TEST(growth_takes_no_more_than_it_ends_with)
{
    for (int with_handles = 1; with_handles >= 0; with_handles--) {
        flw_sim_config world = flw_sim_config_default(11);
        world.check = 1;
        world.device_bytes = 3000 * MIB;
        api_begin(&api, &world);
        fallow_pool_config config = api_config(&api);
        config.page_source = with_handles ? FALLOW_PAGES_HANDLES : FALLOW_PAGES_SEGMENTS;
        assert_ok(fallow_pool_create(&config, &api.pool));
        fallow_arena *arena = make_arena(0);
        const size_t sizes[] = {100, 700, 701, 1600, 2300, 2400, 2200};
        void *address = NULL;
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            fallow_layout *layout = make_plain_layout(sizes[i] * MIB);
            CUstream stream = i % 2 == 0 ? api.stream : api.other;
            fallow_lease *lease = begin_lease(arena, layout, stream);
            touch_lease(lease, layout, stream);
            address = i == 0 ? fallow_lease_region_at(lease, 0) : address;
            assert_true(!with_handles || fallow_lease_region_at(lease, 0) == address);
            end_lease(lease, stream);
            destroy_layout(layout);
        }
        /* With segments the pool may keep the freed segment of 100 MiB. */
        uint64_t most = with_handles ? 2400 : 2500;
        assert_int_equal(flw_sim_read_ledger(&api.sim).peak_given_bytes / MIB, most);
        assert_int_equal(arena_stats(arena).scratch_bytes, 2400 * MIB);
        assert_int_equal(api_stats(&api).live_bytes, 2400 * MIB);
        assert_int_equal(api_stats(&api).requested_bytes, 2400 * MIB);
        assert_int_equal(api_stats(&api).peak_live_bytes, 2400 * MIB);
        assert_ok(fallow_pool_validate(api.pool));
        bed_end();
    }
}

TEST(a_layout_that_wants_more_alignment_moves_the_block)
{
    fallow_region region = {.name = "x", .size_bytes = 4096, .align_bytes = 2 * MIB};
    bed_begin();
    void *filler = api_alloc(&api, 4096, api.stream);
    fallow_arena *arena = make_arena(0);
    fallow_layout *plain = make_plain_layout(5000), *aligned = make_layout(&region, 1);
    lease_once(arena, plain, api.stream);
    fallow_lease *lease = begin_lease(arena, aligned, api.stream);
    assert_int_equal((uintptr_t)fallow_lease_region_at(lease, 0) % (2 * MIB), 0);
    end_lease(lease, api.stream);
    assert_int_equal(arena_stats(arena).scratch_bytes, 5000);
    assert_ok(fallow_free(api.pool, filler, api.stream));
    bed_end();
}

TEST(a_budget_is_kept_and_named_with_the_layout)
{
    const fallow_region regions[] = {{.name = "small", .size_bytes = 256},
                                     {.name = "logits", .size_bytes = 20000},
                                     {.name = "other", .size_bytes = 512}};
    bed_begin();
    fallow_arena *arena = make_arena(0);
    fallow_layout *warm = make_plain_layout(10000), *large = make_layout(regions, 3);
    assert_ok(fallow_layout_set_name(large, "prefill"));
    lease_once(arena, warm, api.stream);
    assert_ok(fallow_arena_lock(arena));
    assert_int_equal(arena_stats(arena).is_locked, 1);
    char sentence[200];
    snprintf(sentence, sizeof sentence,
             "layout 'prefill' needs %zu bytes, 0 of them persistent (largest region "
             "'logits', 20000 bytes), and the budget is 10000: raise",
             fallow_layout_bytes(large));
    refuse_lease(arena, large, api.stream, FALLOW_OVER_BUDGET, sentence);
    assert_non_null(strstr(api.log, sentence));
    assert_int_equal(arena_stats(arena).scratch_bytes, 10000);
    lease_once(arena, warm, api.stream);
    assert_ok(fallow_arena_trim(arena)); /* the budget allows the old size */
    refuse_lease(arena, large, api.stream, FALLOW_OVER_BUDGET, "the budget is 10000:");
    lease_once(arena, warm, api.stream);
    assert_int_equal(arena_stats(arena).scratch_bytes, 10000);
    assert_ok(fallow_arena_unlock(arena));
    lease_once(arena, large, api.stream);
    assert_int_equal(arena_stats(arena).is_locked, 0);
    assert_ok(fallow_arena_set_budget(arena, 30000));
    fallow_layout *fits = make_plain_layout(30000), *larger = make_plain_layout(30001);
    refuse_lease(arena, larger, api.stream, FALLOW_OVER_BUDGET, "the budget is 30000:");
    lease_once(arena, fits, api.stream);
    assert_ok(fallow_arena_set_budget(arena, 100));
    lease_once(arena, fits, api.stream); /* needs no growth */
    bed_end();
}

TEST(a_configured_first_block_is_at_least_so_large)
{
    fallow_arena_config config;
    fallow_arena *arena = NULL;
    bed_begin();
    fallow_arena_config_init(&config);
    config.scratch_bytes = 3 * MIB;
    config.tag = 77;
    fallow_layout *small = make_plain_layout(5000), *large = make_plain_layout(3 * MIB);
    assert_ok(fallow_arena_create(api.pool, &config, &arena));
    assert_int_equal(api_stats(&api).live_count, 0);
    assert_ok(fallow_arena_lock(arena));
    fallow_lease *lease = begin_lease(arena, small, api.stream);
    fallow_block block;
    fallow_block_init(&block);
    assert_ok(fallow_block_info(api.pool, fallow_lease_region_at(lease, 0), &block));
    assert_int_equal(block.tag, 77);
    assert_int_equal(block.requested_bytes, 3 * MIB);
    end_lease(lease, api.stream);
    lease_once(arena, large, api.stream);
    assert_int_equal(arena_stats(arena).grow_count, 1);
    bed_end();
}

TEST(the_pools_out_of_memory_leaves_the_arena_usable)
{
    bed_begin_with(64 * MIB);
    fallow_arena *arena = make_arena(0);
    fallow_layout *small = make_plain_layout(20 * MIB), *large = make_plain_layout(50 * MIB),
                  *absurd = make_plain_layout(500 * MIB);
    use_lease(arena, small, api.stream);
    refuse_lease(arena, absurd, api.stream, FALLOW_OUT_OF_MEMORY,
                 "the pool did not allocate 524288000 bytes");
    assert_int_equal(arena_stats(arena).scratch_bytes, 20 * MIB);
    use_lease(arena, small, api.stream);
    use_lease(arena, large, api.other); /* both do not fit: the old block is released
                                                      first */
    assert_int_equal(arena_stats(arena).scratch_bytes, 50 * MIB);
    bed_end();
}

TEST(bad_arguments_are_refused)
{
    char text[8] = "unset";
    fallow_arena *arena = (fallow_arena *)(void *)&api;
    fallow_lease *lease = NULL;
    fallow_arena_config config;
    fallow_arena_stats stats;
    bed_begin();
    fallow_arena_config_init(&config);
    fallow_arena_stats_init(&stats);
    assert_int_equal(fallow_arena_create(NULL, &config, &arena), FALLOW_INVALID_POOL);
    assert_null(arena);
    assert_int_equal(fallow_arena_create(api.pool, &config, NULL), FALLOW_INVALID_ARGUMENT);
    config.checks = 1u << 20;
    assert_int_equal(fallow_arena_create(api.pool, &config, &arena), FALLOW_INVALID_ARGUMENT);
    config.checks = 0;
    config.struct_size = 3;
    assert_int_not_equal(fallow_arena_create(api.pool, &config, &arena), FALLOW_OK);
    assert_ok(fallow_arena_create(api.pool, NULL, &arena));
    fallow_layout *layout = make_plain_layout(4096);
    assert_int_equal(fallow_lease_begin(NULL, layout, api.stream, &lease), FALLOW_INVALID_ARGUMENT);
    assert_int_equal(fallow_lease_begin(arena, NULL, api.stream, &lease), FALLOW_INVALID_ARGUMENT);
    assert_int_equal(fallow_lease_begin(arena, layout, api.stream, NULL), FALLOW_INVALID_ARGUMENT);
    refuse_lease(arena, layout, (CUstream)(uintptr_t)0xdead0, FALLOW_INVALID_STREAM, "stream");
    assert_int_equal(fallow_lease_end(NULL, api.stream), FALLOW_INVALID_ARGUMENT);
    assert_null(fallow_lease_region(NULL, "x"));
    assert_null(fallow_lease_region_at(NULL, 0));
    assert_int_equal(fallow_arena_lock(NULL), FALLOW_INVALID_ARGUMENT);
    assert_int_equal(fallow_arena_unlock(NULL), FALLOW_INVALID_ARGUMENT);
    assert_int_equal(fallow_arena_trim(NULL), FALLOW_INVALID_ARGUMENT);
    assert_int_equal(fallow_arena_on_wake(NULL, NULL, NULL), FALLOW_INVALID_ARGUMENT);
    assert_int_equal(fallow_arena_lose_contents(NULL), FALLOW_INVALID_ARGUMENT);
    assert_int_equal(fallow_lease_guard(NULL, api.stream), FALLOW_INVALID_ARGUMENT);
    assert_int_equal(fallow_arena_get_stats(NULL, &stats), FALLOW_INVALID_ARGUMENT);
    assert_int_equal(fallow_arena_get_stats(arena, NULL), FALLOW_INVALID_ARGUMENT);
    fallow_arena_last_error(NULL, text, sizeof text);
    assert_string_equal(text, "");
    fallow_arena_last_error(arena, text, 6);
    assert_string_equal(text, "arena"); /* cut */
    lease = begin_lease(arena, layout, api.stream);
    assert_int_equal(fallow_lease_end(lease, (CUstream)(uintptr_t)0xdead0), FALLOW_INVALID_STREAM);
    assert_non_null(fallow_lease_region_at(lease, 0)); /* open still */
    end_lease(lease, api.stream);
    for (int log2 = 46; log2 <= 62; log2++) { /* unit counts beyond 32 bits */
        fallow_layout *huge = make_plain_layout((size_t)1 << log2);
        lease = NULL;
        assert_int_not_equal(fallow_lease_begin(arena, huge, api.stream, &lease), FALLOW_OK);
        destroy_layout(huge);
    }
    destroy_arena(NULL);
    destroy_arena(arena);
    config.struct_size = sizeof config;
    config.scratch_bytes = SIZE_MAX;
    assert_ok(fallow_arena_create(api.pool, &config, &arena));
    refuse_lease(arena, layout, api.stream, FALLOW_INVALID_ARGUMENT, "18446744073709551615 bytes");
    bed_end();
}

#define CROWD 150

/* They share the addresses that are set aside, so that there are some for each and for a large block. */
TEST(a_crowd_of_arenas_grows_in_place_and_leaves_addresses)
{
    fallow_arena *arenas[CROWD];
    bed_begin();
    fallow_layout *small = make_plain_layout(MIB), *large = make_plain_layout(3 * MIB);
    for (size_t i = 0; i < CROWD; i++) {
        arenas[i] = make_arena(0);
        lease_once(arenas[i], small, api.stream);
    }
    void *block = api_alloc(&api, 600 * MIB, api.stream);
    assert_ok(fallow_free(api.pool, block, api.stream));
    for (size_t i = 0; i < CROWD; i++) {
        lease_once(arenas[i], large, api.stream);
        assert_int_equal(arena_stats(arenas[i]).generation, 1);
    }
    assert_ok(fallow_pool_validate(api.pool));
    for (size_t i = 0; i < CROWD; i++) {
        destroy_arena(arenas[i]);
    }
    bed_end();
}

#define LANES 3

static bool lanes_hold(fallow_arena *const *lanes, const uint64_t *bytes)
{
    bool do_hold = true;
    for (size_t i = 0; i < LANES; i++) {
        do_hold = do_hold && arena_stats(lanes[i]).scratch_bytes == bytes[i];
    }
    return do_hold;
}

TEST(lanes_grow_together_or_not_at_all)
{
    uint64_t random = flw_test_seed("lanes"), grown = 0, refused = 0;
    fallow_arena *lanes[LANES];
    bed_begin_with(64 * MIB);
    for (size_t i = 0; i < LANES; i++) {
        lanes[i] = make_arena(0);
    }
    for (int i = 0; i < 200; i++) {
        uint64_t before[LANES], after[LANES];
        CUstream stream = flw_test_random(&random) % 2 == 0 ? api.stream : api.other;
        fallow_layout *layout = make_plain_layout(1 + flw_test_random(&random) % (32 * MIB));
        fallow_layout *own = make_plain_layout(1 + flw_test_random(&random) % (8 * MIB));
        size_t one = flw_test_random(&random) % LANES;
        fallow_lease *lease = NULL;
        if (flw_test_random(&random) % 4 == 0) {
            assert_ok(fallow_arena_trim(lanes[one]));
        }
        if (fallow_lease_begin(lanes[one], own, stream, &lease) == FALLOW_OK) {
            touch_lease(lease, own, stream);
            end_lease(lease, stream);
        }
        lease = NULL;
        bool is_busy = flw_test_random(&random) % 8 == 0 &&
                       fallow_lease_begin(lanes[one], own, stream, &lease) == FALLOW_OK;
        for (size_t k = 0; k < LANES; k++) {
            before[k] = arena_stats(lanes[k]).scratch_bytes;
            after[k] =
                before[k] > fallow_layout_bytes(layout) ? before[k] : fallow_layout_bytes(layout);
        }
        fallow_status status = fallow_arenas_reserve(lanes, LANES, layout, stream);
        assert_true(lanes_hold(lanes, status == FALLOW_OK ? after : before));
        assert_int_equal(status == FALLOW_BUSY, is_busy);
        grown += status == FALLOW_OK;
        refused += status == FALLOW_OUT_OF_MEMORY;
        if (is_busy) {
            end_lease(lease, stream);
        }
        if (status == FALLOW_OK) { /* a lease does not grow the arena */
            uint64_t taken = arena_stats(lanes[one]).grow_count;
            use_lease(lanes[one], layout, stream);
            assert_int_equal(arena_stats(lanes[one]).grow_count, taken);
        } else if (fallow_lease_begin(lanes[one], layout, stream, &lease) == FALLOW_OK) {
            assert_true(arena_stats(lanes[one]).scratch_bytes >= fallow_layout_bytes(layout));
            end_lease(lease, stream);
        }
        destroy_layout(layout);
        destroy_layout(own);
    }
    assert_true(grown > 0 && refused > 0);
    fallow_layout *layout = make_plain_layout(4096);
    fallow_arena *twice[] = {lanes[1], lanes[1]};
    assert_int_equal(fallow_arenas_reserve(twice, 2, layout, api.stream), FALLOW_BUSY);
    assert_int_equal(fallow_arenas_reserve(NULL, 2, layout, api.stream), FALLOW_INVALID_ARGUMENT);
    assert_int_equal(fallow_arenas_reserve(lanes, 2, NULL, api.stream), FALLOW_INVALID_ARGUMENT);
    assert_ok(fallow_arenas_reserve(lanes, 0, layout, api.stream));
    for (size_t i = 0; i < LANES; i++) {
        destroy_arena(lanes[i]);
    }
    bed_end();
}

FLW_TEST_MAIN(NULL, NULL)

/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: an arena's debug checks: each finds the fault, and reports nothing without one. */
#include "unit/arena/test_arena.h"

#include "fallow/sleep.h"

#define POISON  FALLOW_ARENA_CHECK_POISON
#define ZONES   FALLOW_ARENA_CHECK_RED_ZONES
#define WRITTEN FALLOW_ARENA_CHECK_WRITTEN

static const fallow_region regions[] = {
    {.name = "first", .size_bytes = 1000},
    {.name = "prefix", .size_bytes = 3000, .init = FALLOW_INIT_PREFIX},
    {.name = "later", .size_bytes = 5000, .first_phase = 1, .last_phase = 1},
    KEPT_REGION("kept", 512, .init = FALLOW_INIT_COUNTER),
};
#define REGIONS (sizeof regions / sizeof *regions)

static uint64_t violations(void)
{
    return flw_sim_read_ledger(&api.sim).violation_count;
}

/* A lease in which every byte of every region is written with `byte`. */
static void write_all(fallow_arena *arena, const fallow_layout *layout, int byte)
{
    fallow_lease *lease = begin_lease(arena, layout, api.stream);
    for (size_t i = 0; i < REGIONS; i++) {
        fill_bytes(fallow_lease_region_at(lease, i), byte, regions[i].size_bytes, api.stream);
    }
    end_lease(lease, api.stream);
}

TEST(poison_takes_turns_between_two_patterns)
{
    bed_begin();
    fallow_arena *arena = make_arena(POISON);
    fallow_layout *layout = make_layout(regions, REGIONS);
    CUdeviceptr copy;
    assert_ok(api.sim.cu.cuMemAlloc_v2(&copy, 5000));
    for (int i = 0; i < 4; i++) {
        unsigned char bytes[5000];
        fallow_lease *lease = begin_lease(arena, layout, api.stream);
        for (size_t k = 0; k < 3; k++) {
            CUdeviceptr from = (CUdeviceptr)(uintptr_t)fallow_lease_region_at(lease, k);
            uint64_t seen = violations();
            assert_ok(
                api.sim.cu.cuMemcpyDtoHAsync_v2(bytes, from, regions[k].size_bytes, api.stream));
            assert_ok(api.sim.cu.cuStreamSynchronize(api.stream));
            assert_int_equal(bytes[0], i % 2 == 0 ? 0xff : 0x7f);
            assert_int_equal(bytes[regions[k].size_bytes - 1], i % 2 == 0 ? 0xff : 0x7f);
            assert_int_equal(violations(), seen + 1); /* the poison is nobody's writing */
        }
        end_lease(lease, api.stream);
    }
    char part[64];
    snprintf(part, sizeof part, "region 'first' of arena 'decode'");
    assert_non_null(strstr(api.sim.violation(0), part));
    assert_ok(api.sim.cu.cuMemFree_v2(copy));
    (void)bed_end_with_violations(); /* the violations are intended */
}

TEST(a_write_behind_a_region_is_found)
{
    bed_begin();
    fallow_arena *arena = make_arena(ZONES);
    fallow_layout *layout = make_layout(regions, REGIONS);
    write_all(arena, layout, 0x11);
    assert_int_equal(arena_stats(arena).damage_count, 0);
    for (size_t i = 0; i < 3; i++) { /* the first byte behind, one in the middle, the last */
        static const size_t behind[] = {0, 100, 255};
        char sentence[160];
        fallow_lease *lease = begin_lease(arena, layout, api.stream);
        unsigned char *end =
            (unsigned char *)fallow_lease_region_at(lease, i) + regions[i].size_bytes;
        fill_bytes(end + behind[i], 0x42, 1, api.stream);
        end_lease(lease, api.stream);
        assert_int_equal(arena_stats(arena).damage_count, i + 1);
        snprintf(sentence, sizeof sentence,
                 "arena 'decode': red zone: 0x42 was written %zu bytes behind region '%s' of %zu "
                 "bytes",
                 behind[i], regions[i].name, regions[i].size_bytes);
        assert_string_equal(api.log, sentence);
        write_all(arena, layout, 0x12);
        assert_int_equal(arena_stats(arena).damage_count, i + 1);
    }
    assert_int_equal(arena_stats(arena).refuse_count, 0);
    bed_end();
}

TEST(a_write_to_an_empty_region_is_found)
{
    const fallow_region empty = {.name = "routed", .align_bytes = 1024};
    bed_begin();
    fallow_arena *plain = make_arena(0), *guarded = make_arena(ZONES);
    fallow_layout *layout = make_layout(&empty, 1);
    fallow_lease *lease = begin_lease(plain, layout, api.stream);
    assert_non_null(fallow_lease_region(lease, "routed"));
    end_lease(lease, api.stream);
    lease = begin_lease(guarded, layout, api.stream);
    assert_int_equal((uintptr_t)fallow_lease_region(lease, "routed") % 1024, 0);
    fill_bytes(fallow_lease_region(lease, "routed"), 0x42, 1, api.stream);
    end_lease(lease, api.stream);
    assert_int_equal(arena_stats(guarded).damage_count, 1);
    bed_end();
}

TEST(zones_hold_regions_apart_that_else_share_bytes)
{
    bed_begin();
    fallow_arena *plain = make_arena(0), *guarded = make_arena(ZONES);
    fallow_layout *layout = make_layout(regions, REGIONS);
    fallow_lease *lease = begin_lease(plain, layout, api.stream);
    char *first = fallow_lease_region(lease, "first"), *later = fallow_lease_region(lease, "later");
    assert_true(later < first + 4096 && first < later + 5000);
    end_lease(lease, api.stream);
    lease = begin_lease(guarded, layout, api.stream);
    for (size_t i = 0; i < 3; i++) {
        char *a = fallow_lease_region_at(lease, i);
        assert_int_equal((uintptr_t)a % 256, 0);
        for (size_t j = 0; j < i; j++) {
            char *b = fallow_lease_region_at(lease, j);
            assert_true(a >= b + regions[j].size_bytes + 256 ||
                        b >= a + regions[i].size_bytes + 256);
        }
    }
    end_lease(lease, api.stream);
    bed_end();
}

/* All but the last 10 bytes of one region. */
static void write_but_ten(fallow_arena *arena, const fallow_layout *layout, size_t short_one,
                          int byte)
{
    fallow_lease *lease = begin_lease(arena, layout, api.stream);
    for (size_t i = 0; i < REGIONS; i++) {
        fill_bytes(fallow_lease_region_at(lease, i), byte,
                   regions[i].size_bytes - (i == short_one ? 10 : 0), api.stream);
    }
    end_lease(lease, api.stream);
}

TEST(a_region_left_unwritten_is_found_after_two_leases)
{
    bed_begin();
    fallow_arena *arena = make_arena(WRITTEN | ZONES);
    fallow_layout *layout = make_layout(regions, REGIONS);
    for (int i = 0; i < 9; i++) { /* either poison's value is legal contents, lease after lease */
        write_all(arena, layout, i < 4 ? 0xff : i == 4 ? 0 : 0x7f);
    }
    assert_int_equal(arena_stats(arena).unwritten_count, 0);
    write_but_ten(arena, layout, 0, 1);
    assert_int_equal(arena_stats(arena).unwritten_count, 0); /* intended once */
    write_but_ten(arena, layout, 0, 2);
    assert_int_equal(arena_stats(arena).unwritten_count, 10);
    assert_string_equal(api.log,
                        "arena 'decode': unwritten: 10 bytes of region 'first' (1000 bytes, "
                        "1000 used), the first at 990, were written by neither of two leases");
    write_but_ten(arena, layout, 1, 3); /* a prefix need not be whole */
    write_but_ten(arena, layout, 1, 4);
    assert_int_equal(arena_stats(arena).unwritten_count, 10);
    write_but_ten(arena, layout, 2, 5);
    write_but_ten(arena, layout, 2, 6);
    assert_int_equal(arena_stats(arena).unwritten_count, 20);
    expect_silence(); /* the check's own reads are no violation */
    bed_end();
}

/* Lease and write the first 1/divisor of each region. With `told`, report that size by fallow_lease_set_used. */
static void write_part(fallow_arena *arena, const fallow_layout *layout, size_t divisor, bool told,
                       int byte)
{
    fallow_lease *lease = begin_lease(arena, layout, api.stream);
    for (size_t i = 0; i < REGIONS; i++) {
        size_t bytes = regions[i].size_bytes / divisor;
        fill_bytes(fallow_lease_region_at(lease, i), byte, bytes, api.stream);
        if (told) {
            assert_ok(fallow_lease_set_used(lease, i, bytes));
        }
    }
    end_lease(lease, api.stream);
}

TEST(only_what_a_lease_uses_must_be_written)
{
    bed_begin();
    fallow_arena *arena = make_arena(WRITTEN | ZONES), *plain = make_arena(0);
    fallow_layout *layout = make_layout(regions, REGIONS);
    static const size_t divisors[] = {4, 4, 1, 4, 10, 2, 2};
    for (size_t i = 0; i < sizeof divisors / sizeof *divisors; i++) {
        write_part(arena, layout, divisors[i], true, (int)i);
        assert_int_equal(arena_stats(arena).unwritten_count, 0);
    }
    write_part(arena, layout, 2, false, 9); /* the previous lease used only half */
    assert_int_equal(arena_stats(arena).unwritten_count, 0);
    write_part(arena, layout, 2, false, 10);
    assert_int_equal(arena_stats(arena).unwritten_count, 500 + 2500);
    fallow_lease *lease = begin_lease(arena, layout, api.stream);
    assert_ok(fallow_lease_set_used(lease, 0, 900));
    fill_bytes(fallow_lease_region_at(lease, 0), 11, 890, api.stream);
    fill_bytes(fallow_lease_region_at(lease, 2), 11, 5000, api.stream);
    end_lease(lease, api.stream); /* ten bytes short */
    assert_int_equal(arena_stats(arena).unwritten_count, 3000 + 10);
    assert_string_equal(
        api.log, "arena 'decode': unwritten: 10 bytes of region 'first' (1000 bytes, 900 used), "
                 "the first at 890, were written by neither of two leases");
    assert_int_equal(fallow_lease_set_used(lease, 0, 1), FALLOW_INVALID_ARGUMENT);
    assert_int_equal(fallow_lease_set_used(NULL, 0, 1), FALLOW_INVALID_ARGUMENT);
    lease = begin_lease(plain, layout, api.stream);
    assert_ok(fallow_lease_set_used(lease, 0, 1000));
    assert_int_equal(fallow_lease_set_used(lease, 0, 1001), FALLOW_INVALID_ARGUMENT);
    assert_int_equal(fallow_lease_set_used(lease, REGIONS, 0), FALLOW_INVALID_ARGUMENT);
    end_lease(lease, api.stream);
    bed_end();
}

TEST(checks_need_memory_with_contents)
{
    fallow_arena_config config;
    fallow_arena *arena = NULL;
    flw_sim_config world = flw_sim_config_default(12); /* addresses only */
    api_begin(&api, &world);
    fallow_pool_config pool_config = api_config(&api);
    assert_ok(fallow_pool_create(&pool_config, &api.pool));
    fallow_arena_config_init(&config);
    static const uint32_t checks[] = {POISON, ZONES, WRITTEN, ZONES | WRITTEN};
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        config.checks = checks[i];
        assert_int_equal(fallow_arena_create(api.pool, &config, &arena), FALLOW_NOT_SUPPORTED);
        assert_null(arena);
    }
    assert_non_null(strstr(api.log, "need memory with contents"));
    assert_int_equal(flw_sim_read_ledger(&api.sim).allocation_count, 0);
    bed_end();
}

static void read_twin(flw_sim_launch *launch, void **parameters)
{
    unsigned char bytes[64];
    uint64_t at;
    memcpy(&at, parameters[0], sizeof at);
    api.sim.load(launch, "lengths", bytes, at, sizeof bytes);
}

TEST(a_read_of_unwritten_bytes_names_kernel_region_and_arena)
{
    CUmodule module;
    CUfunction function;
    const size_t bytes[] = {8};
    bed_begin();
    fallow_arena *arena = make_arena(POISON);
    fallow_layout *layout = make_layout(regions, REGIONS);
    write_all(arena, layout, 9); /* the previous step's write does not count */
    api.sim.register_twin("read_lengths", read_twin);
    assert_int_equal(api.sim.parameters("read_lengths", 1, bytes), 1);
    assert_ok(api.sim.cu.cuModuleLoadData(&module, "any image"));
    assert_ok(api.sim.cu.cuModuleGetFunction(&function, module, "read_lengths"));
    fallow_lease *lease = begin_lease(arena, layout, api.stream);
    uint64_t at = (uint64_t)(uintptr_t)fallow_lease_region(lease, "later") + 32;
    void *parameters[] = {&at};
    fill_bytes(fallow_lease_region(lease, "later"), 1, 48, api.stream);
    assert_ok(
        api.sim.cu.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, api.stream, parameters, NULL));
    assert_ok(api.sim.cu.cuStreamSynchronize(api.stream));
    assert_int_equal(violations(), 1);
    const char *sentence = api.sim.violation(0);
    assert_non_null(strstr(sentence, "kernel read_lengths, argument 'lengths'"));
    assert_non_null(strstr(sentence, "region '"));
    assert_non_null(strstr(sentence, "of arena 'decode' + 48"));
    end_lease(lease, api.stream);
    (void)bed_end_with_violations();
}

TEST(checks_leave_captures_alone)
{
    fallow_capture *capture = NULL;
    bed_begin();
    fallow_arena *arena = make_arena(POISON | ZONES | WRITTEN);
    fallow_layout *layout = make_layout(regions, REGIONS);
    write_all(arena, layout, 3);
    begin_capturing(api.stream, &capture);
    write_all(arena, layout, 4);
    CUgraphExec executable = end_capturing(api.stream, capture);
    for (int i = 0; i < 3; i++) {
        CUstream stream = i == 1 ? api.other : api.stream;
        launch_guarded(arena, executable, stream);
        assert_ok(api.sim.cu.cuGraphLaunch(executable, stream));
        write_all(arena, layout, 5);
    }
    drop_graph(executable, capture);
    write_all(arena, layout, 5);
    assert_int_equal(arena_stats(arena).damage_count, 0);
    assert_int_equal(arena_stats(arena).unwritten_count, 0);
    bed_end();
}

static void touch_first(void *at, uint32_t is_write, uint64_t expected)
{
    flw_sim_range range = {(uint64_t)(uintptr_t)at, 16, is_write, 0};
    assert_int_equal(api.sim.touch(api.other, &range, 1), 0);
    assert_ok(api.sim.cu.cuStreamSynchronize(api.other));
    assert_int_equal(violations(), expected);
}

/* Each check alone detects a use of an address after the lease has ended. */
TEST(a_use_after_the_end_names_region_and_arena)
{
    static const uint32_t checks[] = {POISON, ZONES, WRITTEN};
    for (size_t i = 0; i < 3; i++) {
        void *block;
        bed_begin();
        fallow_arena *arena = make_arena(checks[i]);
        fallow_layout *layout = make_layout(regions, REGIONS);
        fallow_lease *lease = begin_lease(arena, layout, api.stream);
        char *first = fallow_lease_region(lease, "first");
        end_lease(lease, api.stream);
        touch_first(first + 48, 0, 1);
        touch_first(first + 48, 1, 2);
        assert_non_null(strstr(api.sim.violation(0), "reads a forbidden byte"));
        assert_non_null(strstr(api.sim.violation(0), "region 'first' of arena 'decode' + 48"));
        assert_non_null(strstr(api.sim.violation(1), "writes a forbidden byte"));
        write_all(arena, layout, 5); /* the next lease may use the address */
        assert_ok(fallow_lease_guard(arena, api.other));
        touch_first(first, 1, 2); /* a graph may use the address */
        write_all(arena, layout, 6);
        assert_ok(fallow_arena_trim(arena));
        assert_ok(fallow_alloc(api.pool, 16000, api.stream, &block));
        fill_bytes(block, 1, 16000, api.stream); /* the next owner may use the address */
        assert_ok(fallow_free(api.pool, block, api.stream));
        assert_int_equal(violations(), 2);
        (void)bed_end_with_violations(); /* the violations are intended */
    }
}

static void begin_unwatched(void)
{
    flw_sim_config world = flw_sim_config_default(11);
    world.backed = 1;
    api_begin(&api, &world);
    fallow_pool_config config = api_config(&api);
    assert_ok(fallow_pool_create(&config, &api.pool));
}

/* Without a rule checker, as on a real device, a read after the end returns poison. */
TEST(scratch_is_poisoned_at_the_end)
{
    begin_unwatched();
    fallow_arena *arena = make_arena(POISON);
    fallow_layout *layout = make_layout(regions, REGIONS);
    for (int i = 0; i < 3; i++) {
        unsigned char bytes[1000];
        fallow_lease *lease = begin_lease(arena, layout, api.stream);
        void *first = fallow_lease_region(lease, "first");
        fill_bytes(first, 0x11, sizeof bytes, api.stream);
        end_lease(lease, api.stream);
        read_bytes(bytes, first, sizeof bytes, api.stream);
        assert_int_equal(bytes[0], i % 2 == 0 ? 0xff : 0x7f);
        assert_int_equal(bytes[999], i % 2 == 0 ? 0xff : 0x7f);
    }
    bed_end();
}

static void expect_finding(fallow_arena *arena, const char *first, const char *second)
{
    char text[512];
    fallow_arena_last_error(arena, text, sizeof text);
    if (strstr(text, first) == NULL || strstr(text, second) == NULL) {
        fail_msg("'%s' does not say '%s' and '%s'", text, first, second);
    }
    assert_string_equal(text, api.log);
}

static const uint32_t each_check[] = {POISON, ZONES, WRITTEN};
#define CHECKS (sizeof each_check / sizeof *each_check)

/* Sleep and wake twice, first with scratch saved, then without. */
static void sleep_and_wake(void)
{
    fallow_sleep_request request;
    fallow_sleep_request_init(&request);
    for (uint32_t i = 0; i < 2; i++) {
        request.flags = i == 0 ? FALLOW_SLEEP_SAVE_ALL : 0;
        assert_ok(fallow_pool_sleep(api.pool, &request));
        assert_ok(fallow_pool_wake(api.pool));
    }
}

static CUgraphExec capture_write(fallow_arena *arena, const fallow_layout *layout,
                                 fallow_capture **capture)
{
    begin_capturing(api.stream, capture);
    fallow_lease *lease = begin_lease(arena, layout, api.stream);
    fill_bytes(fallow_lease_region(lease, "first"), 0x33, 1000, api.stream);
    end_lease(lease, api.stream);
    return end_capturing(api.stream, *capture);
}

TEST(a_graph_launched_without_its_guard_is_reported)
{
    for (size_t i = 0; i < CHECKS; i++) {
        fallow_capture *capture = NULL;
        bed_begin();
        fallow_arena *arena = make_arena(each_check[i]);
        fallow_layout *layout = make_layout(regions, REGIONS);
        write_all(arena, layout, 1);
        CUgraphExec graph = capture_write(arena, layout, &capture);
        for (int k = 0; k < 3; k++) {
            CUstream stream = k == 1 ? api.other : api.stream;
            launch_guarded(arena, graph, stream);
            write_all(arena, layout, 2);
        }
        sleep_and_wake();
        write_all(arena, layout, 2);
        assert_int_equal(arena_stats(arena).damage_count, 0);
        expect_silence();
        assert_ok(api.sim.cu.cuGraphLaunch(graph, api.other));
        assert_ok(api.sim.cu.cuStreamSynchronize(api.other));
        write_all(arena, layout, 3);
        assert_true(arena_stats(arena).damage_count > 0);
        assert_non_null(strstr(api.sim.violation(0), "region 'first' of arena 'decode'"));
        expect_finding(arena, "region 'first'", "a graph launched without fallow_lease_guard");
        drop_graph(graph, capture);
        (void)bed_end_with_violations();
    }
}

/* Two graphs use the arena, and no eager lease. Unordered launches of both are the only fault. */
TEST(two_graphs_launched_without_a_guard_are_reported)
{
    fallow_capture *captures[2] = {NULL, NULL};
    CUgraphExec graphs[2];
    bed_begin();
    fallow_arena *arena = make_arena(ZONES);
    fallow_layout *layout = make_layout(regions, REGIONS);
    assert_ok(fallow_arenas_reserve(&arena, 1, layout, api.stream));
    for (int i = 0; i < 2; i++) {
        graphs[i] = capture_write(arena, layout, &captures[i]);
    }
    for (int i = 0; i < 3; i++) {
        CUstream stream = i == 1 ? api.other : api.stream;
        launch_guarded(arena, graphs[i % 2], stream);
    }
    assert_ok(fallow_lease_guard(arena, api.stream));
    assert_int_equal(arena_stats(arena).damage_count, 0);
    assert_ok(api.sim.cu.cuGraphLaunch(graphs[0], api.stream));
    assert_ok(api.sim.cu.cuGraphLaunch(graphs[1], api.other));
    assert_ok(api.sim.cu.cuStreamSynchronize(api.other));
    assert_ok(api.sim.cu.cuStreamSynchronize(api.stream));
    assert_ok(fallow_lease_guard(arena, api.stream));
    assert_int_equal(arena_stats(arena).damage_count, 1);
    expect_finding(arena, "race: ", "region 'first' of arena 'decode' + 0)");
    for (int i = 0; i < 2; i++) {
        drop_graph(graphs[i], captures[i]);
    }
    (void)bed_end_with_violations();
}

/* Use a lease on a second stream: complete before the end of the lease or after, joined or not. */
TEST(a_stream_that_was_not_joined_is_reported)
{
    for (size_t i = 0; i < 4 * CHECKS; i++) {
        bool is_joined = i % 2 == 1, is_early = i / 2 % 2 == 1;
        CUevent event;
        bed_begin();
        fallow_arena *arena = make_arena(each_check[i / 4]);
        fallow_layout *layout = make_layout(regions, REGIONS);
        write_all(arena, layout, 1);
        assert_ok(api.sim.cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
        fallow_lease *lease = begin_lease(arena, layout, api.stream);
        fill_bytes(fallow_lease_region(lease, "first"), 2, 1000, api.other);
        while (is_early && api.sim.step(1) > 0) {
        }
        if (is_joined) {
            assert_ok(api.sim.cu.cuEventRecord(event, api.other));
            assert_ok(api.sim.cu.cuStreamWaitEvent(api.stream, event, 0));
        }
        end_lease(lease, api.stream);
        assert_ok(api.sim.cu.cuStreamSynchronize(api.other));
        if (is_joined) {
            write_all(arena, layout, 3);
            assert_int_equal(arena_stats(arena).damage_count, 0);
            expect_silence();
        } else {
            if (!is_early) {
                lease = begin_lease(arena, layout, api.stream);
            }
            assert_true(arena_stats(arena).damage_count > 0);
            expect_finding(arena, "region 'first'", "a stream not joined before");
        }
        assert_ok(api.sim.cu.cuEventDestroy_v2(event));
        (void)bed_end_with_violations();
    }
}

/* Without a rule checker, as on a real device, late writes are found by their bytes. */
TEST(a_late_write_is_found_where_nothing_is_forbidden)
{
    fallow_capture *capture = NULL;
    begin_unwatched();
    fallow_arena *arena = make_arena(WRITTEN);
    fallow_layout *layout = make_layout(regions, REGIONS);
    write_all(arena, layout, 1);
    CUgraphExec graph = capture_write(arena, layout, &capture);
    launch_guarded(arena, graph, api.stream);
    fallow_lease *lease = begin_lease(arena, layout, api.stream);
    char *first = fallow_lease_region(lease, "first");
    end_lease(lease, api.stream);
    write_all(arena, layout, 2);
    sleep_and_wake();
    write_all(arena, layout, 3);
    assert_int_equal(arena_stats(arena).damage_count, 0);
    fill_bytes(first + 400, 4, 70, api.other);
    assert_ok(api.sim.cu.cuStreamSynchronize(api.other));
    write_all(arena, layout, 5);
    assert_int_equal(arena_stats(arena).damage_count, 1);
    expect_finding(arena, "late: 70 bytes", "region 'first' at 400: an address was used");
    assert_ok(api.sim.cu.cuGraphLaunch(graph, api.other));
    assert_ok(api.sim.cu.cuStreamSynchronize(api.other));
    assert_ok(fallow_lease_guard(arena, api.stream)); /* after the launch */
    assert_int_equal(arena_stats(arena).damage_count, 2);
    expect_finding(arena, "late: 1000 bytes", "a graph launched without fallow_lease_guard");
    drop_graph(graph, capture);
    bed_end();
}

FLW_TEST_MAIN(NULL, NULL)

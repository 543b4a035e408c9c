/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: when fences for other streams are recorded: by the free, or, on an idle device, by the
 * search for memory; and on which streams: those of announced uses, or those that freed memory. */
#include "unit/pool/test_api.h"

#define GIB          ((size_t)1 << 30)
#define LONG_NS      1000000000ull
#define BLOCK_BYTES  (40 * MIB) /* enough for an event of its own */
#define SMALL_BYTES  (10 * MIB) /* too little for one: recorded by the search */
#define TURNS        200
#define STREAMS_MOST 200

static struct api api;
static CUstream streams[STREAMS_MOST];
static CUevent handed_over;
static uint32_t economy = FALLOW_BALANCED;

static void begin(unsigned stream_count, size_t limit_bytes)
{
    flw_sim_config world = flw_sim_config_default(11);
    world.schedule = FLW_SIM_CLOCK;
    world.check = 1;
    world.device_bytes = 8 * GIB;
    world.lag_ns = LONG_NS;
    api_begin(&api, &world);
    for (unsigned i = 0; i < stream_count; i++) {
        assert_int_equal(api.sim.cu.cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING), 0);
    }
    assert_int_equal(api.sim.cu.cuEventCreate(&handed_over, CU_EVENT_DISABLE_TIMING), 0);
    fallow_pool_config config = api_config(&api);
    config.limit_bytes = limit_bytes;
    config.economy = economy;
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
}

static void end(void)
{
    assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
    api.sim.step(UINT64_MAX);
    assert_int_equal(api.sim.cu.cuEventDestroy_v2(handed_over), 0);
    assert_int_equal(flw_sim_print_violations(&api.sim), 0);
    api_end(&api);
}

static uint64_t events(void)
{
    return api_stats(&api).event_count;
}

/* A block for the stream, which a use on the other one may have been announced of. */
static void *use_new(size_t bytes, unsigned stream, bool is_announced)
{
    void *ptr = api_alloc(&api, bytes, streams[stream]);
    api_use(&api, ptr, bytes, streams[stream]);
    if (is_announced) {
        assert_int_equal(api.sim.cu.cuEventRecord(handed_over, streams[stream]), 0);
        assert_int_equal(api.sim.cu.cuStreamWaitEvent(streams[1 - stream], handed_over, 0), 0);
        api_use(&api, ptr, bytes, streams[1 - stream]);
        assert_int_equal(fallow_record_use(api.pool, ptr, streams[1 - stream]), FALLOW_OK);
    }
    return ptr;
}

/* How many events the free records. */
static uint64_t free_of(void *ptr, unsigned stream)
{
    uint64_t before = events();
    assert_int_equal(fallow_free(api.pool, ptr, streams[stream]), FALLOW_OK);
    return events() - before;
}

/* Two streams take turns; the device is done with one before the next. */
static void take_turns(size_t bytes, bool is_announced, uint64_t *events_of_frees)
{
    *events_of_frees = 0;
    for (unsigned turn = 0; turn < TURNS; turn++) {
        *events_of_frees += free_of(use_new(bytes, turn % 2, is_announced), turn % 2);
        api.sim.advance(2 * LONG_NS);
    }
}

/* Let them share room for one block: first a large one, then, beside one that stays, a small one
 * that requires a search, then a large one again. */
static void make_prompt(void)
{
    uint64_t of_frees;
    begin(2, BLOCK_BYTES + 8 * MIB);
    take_turns(BLOCK_BYTES, false, &of_frees);
    assert_true(of_frees > 0); /* the device's speed is unknown */
    void *rest = use_new(BLOCK_BYTES - SMALL_BYTES, 0, false);
    take_turns(SMALL_BYTES, false, &of_frees);
    (void)free_of(rest, 0);
    api.sim.advance(2 * LONG_NS);
}

static void who_looks_records_where_the_device_keeps_pace(void **state)
{
    for (unsigned is_announced = 0; is_announced < 2; is_announced++) {
        uint64_t of_frees;
        make_prompt();
        uint64_t before = events(), waits = api_stats(&api).wait_count;
        take_turns(BLOCK_BYTES, is_announced, &of_frees);
        assert_int_equal(of_frees, 0);
        assert_true(events() - before <= (1u + is_announced) * TURNS + 1);
        assert_int_equal(api_stats(&api).wait_count, waits);
        end();
    }
}

static void a_look_that_finds_work_under_way_has_frees_record_again(void **state)
{
    make_prompt();
    assert_int_equal(free_of(use_new(BLOCK_BYTES, 0, false), 0), 0);
    void *ptr = use_new(BLOCK_BYTES, 1, false); /* behind a wait: the first is not done */
    assert_int_equal(free_of(ptr, 1), 1);
    end();
}

/* Alternately, with room for two blocks, a stream frees one of its own and the other stream one
 * used by the first: an event of the first covers both. */
static void a_fence_for_a_use_covers_what_the_stream_has_just_freed(void **state)
{
    uint64_t of_frees = 0;
    begin(2, 2 * BLOCK_BYTES + 8 * MIB);
    for (unsigned turn = 0; turn < TURNS; turn++) {
        unsigned stream = turn % 2, other = 1 - stream;
        void *own = use_new(BLOCK_BYTES, stream, false), *used = use_new(BLOCK_BYTES, other, true);
        of_frees += free_of(own, stream);
        of_frees += free_of(used, other);
    }
    assert_in_range(of_frees, TURNS,
                    TURNS + 4); /* the first turns' streams have used nothing yet */
    end();
}

/* Without such a use the next free records both, and a poll or a capture records the rest. */
static void a_fence_that_was_left_is_recorded_by_the_next_who_comes(void **state)
{
    for (unsigned way = 0; way < 3; way++) {
        begin(2, 8 * BLOCK_BYTES);
        void *used = use_new(BLOCK_BYTES, 1, true), *own = use_new(BLOCK_BYTES, 0, false),
             *of_other = use_new(BLOCK_BYTES, 1, false);
        assert_true(free_of(used, 1) > 0);
        assert_int_equal(free_of(own, 0), 0);
        uint64_t before = events();
        if (way == 0) {
            assert_int_equal(free_of(of_other, 1), 2);
        } else if (way == 1) {
            assert_int_equal(fallow_pool_poll(api.pool), FALLOW_OK);
            assert_int_equal(events() - before, 1);
        } else {
            fallow_capture *capture;
            assert_int_equal(fallow_capture_begin(api.pool, streams[0], &capture), FALLOW_OK);
            assert_int_equal(events() - before, 1);
            assert_int_equal(fallow_capture_end(capture), FALLOW_OK);
            assert_int_equal(fallow_capture_release(capture), FALLOW_OK);
        }
        end();
    }
}

/* An unannounced capture: the event becomes part of the graph, and each searching stage records
 * about once. */
static void a_look_records_once_into_a_capture(void **state)
{
    void *ptr = NULL;
    make_prompt();
    assert_int_equal(free_of(use_new(BLOCK_BYTES, 0, false), 0), 0);
    uint64_t before = events();
    api_begin_capturing(&api, streams[0]);
    fallow_status status = fallow_alloc(api.pool, BLOCK_BYTES, streams[1], &ptr);
    assert_int_equal(status == FALLOW_OK, ptr != NULL);
    assert_in_range(events() - before, 1, 16);
    api_drop_captured(&api, streams[0]);
    assert_int_equal(fallow_free(api.pool, ptr, streams[1]), FALLOW_OK);
    end();
}

/* Each block is most of the pool's memory. */
static void speed_first_leaves_little_to_who_looks(void **state)
{
    uint64_t of_frees;
    economy = FALLOW_SPEED_FIRST;
    make_prompt();
    take_turns(BLOCK_BYTES, false, &of_frees);
    assert_int_equal(of_frees, 0);
    take_turns(BLOCK_BYTES, true, &of_frees);
    assert_true(of_frees >= TURNS);
    end();
    economy = FALLOW_BALANCED;
}

/* Balanced, 1.17 times the peak do not hold the block that stays and two others. */
static void one_late_look_is_no_need_for_more_memory(void **state)
{
    begin(2, 0);
    void *base = api_alloc(&api, 400 * MIB, streams[0]);
    (void)free_of(use_new(100 * MIB, 0, false), 0); /* under way for as long as the test */
    uint64_t reserved = api_stats(&api).reserved_bytes, steals = api_stats(&api).steal_count;
    (void)free_of(use_new(100 * MIB, 1, false), 1);
    assert_true(api_stats(&api).reserved_bytes == reserved);
    assert_true(api_stats(&api).steal_count > steals);
    (void)free_of(use_new(100 * MIB, 0, false), 0);
    assert_true(api_stats(&api).reserved_bytes > reserved);
    assert_int_equal(fallow_free(api.pool, base, streams[0]), FALLOW_OK);
    end();
}

/* After a growth the free may record a fence on its own stream too. */
static void expect_fences(uint64_t count, unsigned users)
{
    assert_true(count == users || count == users + 1);
}

static void fences_for_uses_go_to_the_users(void **state)
{
    static const unsigned users[] = {3, 63, 64, 199};
    enum {
        USERS = sizeof users / sizeof *users
    };
    begin(STREAMS_MOST, 0);
    for (unsigned i = 0; i < STREAMS_MOST; i++) {
        void *ptr = api_alloc(&api, MIB, streams[i]);
        api_use(&api, ptr, MIB, streams[i]); /* under way for as long as the test */
        assert_int_equal(fallow_free(api.pool, ptr, streams[i]), FALLOW_OK);
    }
    void *ptr = api_alloc(&api, BLOCK_BYTES, streams[1]);
    for (unsigned i = 0; i < USERS; i++) {
        assert_int_equal(fallow_record_use(api.pool, ptr, streams[users[i]]), FALLOW_OK);
    }
    expect_fences(free_of(ptr, 1), USERS);
    ptr = api_alloc(&api, BLOCK_BYTES, streams[2]); /* the others have had none since */
    assert_int_equal(fallow_record_use(api.pool, ptr, streams[users[2]]), FALLOW_OK);
    expect_fences(free_of(ptr, 2), 1);
    end();
}

/* A look has fences recorded on streams that have freed something, and on no others. */
static void a_stream_that_has_freed_nothing_has_no_fence_recorded(void **state)
{
    begin(3, 0);
    void *blocks[3];
    for (unsigned i = 0; i < 3; i++) {
        blocks[i] = use_new(SMALL_BYTES, i, false);
        api.sim.advance(2 * LONG_NS);
    }
    assert_int_equal(events(), 0);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(fallow_free(api.pool, blocks[i], streams[i]), FALLOW_OK);
    }
    end();
}

/* Beside a block that stays, a stream's block is freed, which records a fence after a growth,
 * reused by a hit, and freed again. The other stream, without room, finds it complete. */
static void what_is_freed_behind_a_fence_is_found(void **state)
{
    begin(2, 24 * MIB);
    void *rest = use_new(SMALL_BYTES + 2 * MIB, 0, false);
    void *one = use_new(MIB, 1, false);
    assert_int_equal(free_of(use_new(SMALL_BYTES, 0, false), 0), 1);
    assert_int_equal(free_of(use_new(SMALL_BYTES, 0, false), 0), 0);
    api.sim.advance(2 * LONG_NS);
    (void)free_of(use_new(SMALL_BYTES, 1, false), 1);
    assert_int_equal(api_stats(&api).steal_count, 0);
    assert_int_equal(fallow_free(api.pool, rest, streams[0]), FALLOW_OK);
    assert_int_equal(fallow_free(api.pool, one, streams[1]), FALLOW_OK);
    end();
}

/* This many streams share room for a few blocks, one of which is allocated on any of them and
 * freed again. */
#define FEW_BYTES    (3 * MIB)
#define MANY_STREAMS 128
#define PAIRS        2000

static void take_pairs(uint32_t *draw)
{
    for (unsigned pair = 0; pair < PAIRS; pair++) {
        *draw = *draw * 1664525u + 1013904223u;
        unsigned stream = (*draw >> 16) % MANY_STREAMS;
        (void)free_of(use_new(FEW_BYTES, stream, false), stream);
        api.sim.advance(2 * LONG_NS);
    }
}

static void one_look_serves_several_misses_among_many_streams(void **state)
{
    uint32_t draw = 1;
    begin(MANY_STREAMS, 0);
    take_pairs(&draw);
    uint64_t calls = api_stats(&api).driver_call_count, growths = api_stats(&api).grow_count;
    take_pairs(&draw);
    assert_int_equal(api_stats(&api).grow_count, growths);
    assert_true(api_stats(&api).driver_call_count - calls <= 4 * PAIRS);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_looks_records_where_the_device_keeps_pace),
        cmocka_unit_test(a_look_that_finds_work_under_way_has_frees_record_again),
        cmocka_unit_test(a_fence_for_a_use_covers_what_the_stream_has_just_freed),
        cmocka_unit_test(a_fence_that_was_left_is_recorded_by_the_next_who_comes),
        cmocka_unit_test(a_look_records_once_into_a_capture),
        cmocka_unit_test(speed_first_leaves_little_to_who_looks),
        cmocka_unit_test(one_late_look_is_no_need_for_more_memory),
        cmocka_unit_test(fences_for_uses_go_to_the_users),
        cmocka_unit_test(a_stream_that_has_freed_nothing_has_no_fence_recorded),
        cmocka_unit_test(what_is_freed_behind_a_fence_is_found),
        cmocka_unit_test(one_look_serves_several_misses_among_many_streams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

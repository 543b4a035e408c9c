/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what the streams of one pool hold together, and on what each economy waits rather than hold more.
 */
#include "unit/pool/test_api_many.h"

/* What each has freed is too little; that it is done nobody has asked. */
static void what_streams_have_done_with_serves_before_more_is_held(void **state)
{
    enum {
        STREAMS = 16 /* each frees too little for a fence of its own */
    };
    static const fallow_economy economies[] = {FALLOW_BALANCED, FALLOW_SPEED_FIRST};
    (void)state;
    for (size_t e = 0; e < 2; e++) {
        open_world(STREAMS + 1, FLW_SIM_CLOCK, 80 * GIB);
        open_pool(economies[e], 0);
        void *base = use_new(512 * MIB, streams[STREAMS]), *ptrs[STREAMS];
        for (unsigned i = 0; i < STREAMS; i++) {
            use_once(14 * MIB, streams[i]); /* this one is fenced */
            ptrs[i] = use_new(14 * MIB, streams[i]);
        }
        for (unsigned i = 0; i < STREAMS; i++) {
            free_on(ptrs[i], streams[i]);
        }
        uint64_t reserved = api_stats(&api).reserved_bytes, waits = host_waits();
        api.sim.advance(2 * LONG_NS);
        void *ptr = use_new(200 * MIB, streams[STREAMS]);
        assert_true(api_stats(&api).reserved_bytes == reserved);
        assert_int_equal(api_stats(&api).wait_count + host_waits(), waits);
        free_on(ptr, streams[STREAMS]);
        free_on(base, streams[STREAMS]);
        close_world();
    }
}

/* All of another stream's memory that is not done, and beside it what may still be had. */
static void what_a_piece_lacks_is_grown_beside_it(void **state)
{
    (void)state;
    open_world(2, FLW_SIM_CLOCK, 8 * GIB);
    open_pool(FALLOW_BALANCED, 96 * MIB);
    void *mine = use_new(40 * MIB, streams[0]);
    use_once(40 * MIB, streams[1]);
    uint64_t stops = host_waits();
    void *ptr = use_new(50 * MIB, streams[0]);
    assert_int_equal(host_waits(), stops);
    assert_true(api_stats(&api).steal_count == 1);
    assert_true(api_stats(&api).reserved_bytes <= 96 * MIB);
    free_on(ptr, streams[0]);
    free_on(mine, streams[0]);
    close_world();
}

static void speed_first_waits_at_the_limit_only(void **state)
{
    (void)state;
    enum {
        STREAMS = 8
    };
    open_world(STREAMS, FLW_SIM_CLOCK, 8 * GIB);
    open_pool(FALLOW_SPEED_FIRST, 256 * MIB);
    uint64_t stops = host_waits();
    for (unsigned turn = 0; turn < STREAMS; turn++) {
        use_once(30 * MIB, streams[turn]);
    }
    fallow_stats stats = api_stats(&api);
    assert_true(stats.reserved_bytes >= 240 * MIB); /* each its own: all are at work */
    assert_int_equal(stats.steal_count, 0);
    assert_int_equal(stats.wait_count, 0);
    assert_int_equal(host_waits(), stops);
    void *ptr[3];
    for (unsigned i = 0; i < 3; i++) { /* more than one stream has left */
        ptr[i] = use_new(60 * MIB, streams[i]);
    }
    stats = api_stats(&api);
    assert_true(stats.steal_count + stats.wait_count > 0);
    assert_true(stats.reserved_bytes <= 256 * MIB);
    for (unsigned i = 0; i < 3; i++) {
        free_on(ptr[i], streams[i]);
    }
    close_world();
}

/* What is held after each stream of many has had one block, all of them at work. */
static uint64_t held_by(fallow_economy economy, unsigned stream_count, uint64_t device_bytes)
{
    open_world(stream_count, FLW_SIM_CLOCK, device_bytes);
    open_pool(economy, 0);
    for (unsigned turn = 0; turn < 400; turn++) {
        use_once(MIB, streams[turn % stream_count]);
    }
    uint64_t bytes = api_stats(&api).reserved_bytes;
    assert_int_equal(flw_sim_read_ledger(&api.sim).given_bytes, bytes);
    close_world();
    return bytes;
}

static void several_streams_share_at_least_a_floor_that_the_device_can_bear(void **state)
{
    (void)state;
    static const struct {
        uint64_t device_bytes;
        uint64_t floor_bytes;
    } floors[] = {
        {8 * GIB, 32 * MIB}, {32 * GIB, 128 * MIB}, {64 * GIB, 256 * MIB}, {256 * GIB, 256 * MIB}};
    for (size_t i = 0; i < sizeof floors / sizeof *floors; i++) {
        uint64_t held = held_by(FALLOW_BALANCED, 400, floors[i].device_bytes);
        if (held > floors[i].floor_bytes || held < floors[i].floor_bytes - 4 * MIB) {
            fail_msg("%llu MiB are held, the floor is %llu", (unsigned long long)(held / MIB),
                     (unsigned long long)(floors[i].floor_bytes / MIB));
        }
    }
    assert_true(held_by(FALLOW_BALANCED, 1, 256 * GIB) <= 16 * MIB);
    assert_true(held_by(FALLOW_MEMORY_FIRST, 400, 256 * GIB) <= 18 * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_streams_have_done_with_serves_before_more_is_held),
        cmocka_unit_test(what_a_piece_lacks_is_grown_beside_it),
        cmocka_unit_test(speed_first_waits_at_the_limit_only),
        cmocka_unit_test(several_streams_share_at_least_a_floor_that_the_device_can_bear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

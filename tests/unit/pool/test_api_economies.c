/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the memory held for all streams of a pool together, and the waits of each economy instead
 * of holding more. */
#include "base/bits.h"
#include "unit/pool/test_api_many.h"

/* Each stream freed too little, and the completion was never queried. */
static void what_streams_have_done_with_serves_before_more_is_held(void **state)
{
    enum {
        STREAMS = 16 /* each frees too little for a fence of its own */
    };
    static const fallow_economy economies[] = {FALLOW_BALANCED, FALLOW_SPEED_FIRST};
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

/* All incomplete memory of another stream, and beside it the remaining memory of the device. */
static void what_a_piece_lacks_is_grown_beside_it(void **state)
{
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
    assert_true(stats.reserved_bytes >= 240 * MIB); /* each has its own: all are busy */
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

/* Return the bytes held after each of many busy streams has had one block. */
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

/* ---- "a pool of one stream holds at most 1.16 P + 16 MiB ... of several at most 1.45 P and that floor" */

#define SLOTS 400

struct slot {
    void *ptr;
    CUstream stream;
};

/* Replace blocks of random sizes `turns` times, and check the bound after each replacement. */
static void expect_bound(uint64_t seed, unsigned stream_count, uint64_t device_bytes,
                         unsigned turns)
{
    static struct slot slots[SLOTS];
    uint64_t random = seed;
    uint64_t small_log2 = 9 + flw_test_random(&random) % 12; /* 512 B to 1 MiB */
    uint64_t wide_log2 = 1 + flw_test_random(&random) % 6;   /* the largest is 2 to 64 times that */
    unsigned slot_count = 40 + (unsigned)(flw_test_random(&random) % (SLOTS - 40));
    uint64_t floor_bytes =
        stream_count == 1 ? 16 * MIB : flw_min(256 * MIB, device_bytes / 256) + 16 * MIB;
    uint64_t per_cent = stream_count > 1 ? 145 : small_log2 + wide_log2 > 23 ? 116 : 130;
    open_world(stream_count, FLW_SIM_CLOCK, device_bytes);
    open_pool(FALLOW_BALANCED, 0);
    for (unsigned turn = 0; turn < turns; turn++) {
        struct slot *slot = &slots[flw_test_random(&random) % slot_count];
        if (slot->ptr != NULL) {
            free_on(slot->ptr, slot->stream);
        }
        size_t bytes = (size_t)1 << (small_log2 + flw_test_random(&random) % wide_log2);
        slot->stream = streams[flw_test_random(&random) % stream_count];
        slot->ptr = use_new(bytes + flw_test_random(&random) % bytes, slot->stream);
        api.sim.advance(LONG_NS / 64);
        fallow_stats stats = api_stats(&api);
        if (stats.reserved_bytes > stats.peak_live_bytes * per_cent / 100 + floor_bytes) {
            fail_msg("seed %llu: %llu bytes held, %llu at most were given to live blocks",
                     (unsigned long long)seed, (unsigned long long)stats.reserved_bytes,
                     (unsigned long long)stats.peak_live_bytes);
        }
    }
    for (unsigned i = 0; i < SLOTS; i++) {
        if (slots[i].ptr != NULL) {
            free_on(slots[i].ptr, slots[i].stream);
        }
        slots[i].ptr = NULL;
    }
    close_world();
}

static void balanced_keeps_the_bounds_that_fallow_h_states(void **state)
{
    for (uint64_t seed = 1; seed <= 12; seed++) {
        expect_bound(seed, 1, 80 * GIB, 3000);
        expect_bound(seed, 2 + (unsigned)seed, 80 * GIB, 3000);
        expect_bound(seed, 4, 8 * GIB, 1500);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_streams_have_done_with_serves_before_more_is_held),
        cmocka_unit_test(what_a_piece_lacks_is_grown_beside_it),
        cmocka_unit_test(speed_first_waits_at_the_limit_only),
        cmocka_unit_test(balanced_keeps_the_bounds_that_fallow_h_states),
        cmocka_unit_test(several_streams_share_at_least_a_floor_that_the_device_can_bear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

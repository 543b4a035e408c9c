/* SPDX-License-Identifier: Apache-2.0
 *
 * The policies `cub` and `bfc` in scenarios computed by hand. The device is a handful of driver
 * calls that count, with as much memory as a test says; its events are done when a test says so.
 */
#include "support/test.h"

#include <string.h>

#include "base/bits.h"

#include "common/program.h"
#include "common/replay_device.h"
#include "policies/policy.h"

#define BLOCK_COUNT  64
#define STREAM_COUNT 2
#define BASE         (1ull << 40)
#define KIB          1024ull

/* What the device was asked for. */
static uint64_t room_bytes, last_bytes;
static uint64_t alloc_count, free_count, record_count, wait_count, query_count, sync_count;
static int live_event_count;
static bool are_events_done;
static uint64_t sizes[256]; /* of the i-th allocation; its address is BASE + i GiB */

static CUresult fake_mem_alloc(CUdeviceptr *pointer, size_t bytes)
{
    if (bytes > room_bytes) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    assert_true(alloc_count < 256);
    sizes[alloc_count] = bytes;
    *pointer = (CUdeviceptr)(BASE + alloc_count * FLW_GIB);
    room_bytes -= bytes;
    last_bytes = bytes;
    alloc_count++;
    return CUDA_SUCCESS;
}

static CUresult fake_mem_free(CUdeviceptr pointer)
{
    uint64_t i = ((uint64_t)pointer - BASE) / FLW_GIB;
    assert_int_equal(((uint64_t)pointer - BASE) % FLW_GIB, 0);
    assert_true(i < alloc_count && sizes[i] != 0);
    room_bytes += sizes[i];
    sizes[i] = 0;
    free_count++;
    return CUDA_SUCCESS;
}

static CUresult fake_event_create(CUevent *event, unsigned flags)
{
    (void)flags;
    live_event_count++;
    *event = (CUevent)(uintptr_t)64;
    return CUDA_SUCCESS;
}

static CUresult fake_event_destroy(CUevent event)
{
    (void)event;
    live_event_count--;
    return CUDA_SUCCESS;
}

static CUresult fake_event_record(CUevent event, CUstream stream)
{
    (void)event;
    (void)stream;
    record_count++;
    return CUDA_SUCCESS;
}

static CUresult fake_event_query(CUevent event)
{
    (void)event;
    query_count++;
    return are_events_done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult fake_event_synchronize(CUevent event)
{
    (void)event;
    sync_count++;
    return CUDA_SUCCESS;
}

static CUresult fake_stream_wait(CUstream stream, CUevent event, unsigned flags)
{
    (void)stream;
    (void)event;
    (void)flags;
    wait_count++;
    return CUDA_SUCCESS;
}

/* --- the bed --- */

static CUstream streams[STREAM_COUNT];
static struct flw_device device;
static struct flw_program program;
static struct flw_policy_choice choice;
static void *policy_self;
static uint64_t addresses[BLOCK_COUNT], block_bytes[BLOCK_COUNT];
static uint16_t block_streams[BLOCK_COUNT];
static uint32_t next_block;

static void start(const struct flw_policy *base, const char *settings, size_t stream_count)
{
    char message[FLW_POLICY_MESSAGE_BYTES];
    alloc_count = free_count = record_count = wait_count = query_count = sync_count = 0;
    next_block = 0;
    live_event_count = 0;
    are_events_done = false;
    device = (struct flw_device){.driver = {.cuMemAlloc_v2 = fake_mem_alloc,
                                            .cuMemFree_v2 = fake_mem_free,
                                            .cuEventCreate = fake_event_create,
                                            .cuEventDestroy_v2 = fake_event_destroy,
                                            .cuEventRecord = fake_event_record,
                                            .cuEventQuery = fake_event_query,
                                            .cuEventSynchronize = fake_event_synchronize,
                                            .cuStreamWaitEvent = fake_stream_wait},
                                 .streams = streams,
                                 .stream_count = stream_count,
                                 .device_bytes = room_bytes};
    program = (struct flw_program){
        .block_count = BLOCK_COUNT, .stream_count = stream_count, .has_uses = true};
    assert_true(flw_policy_set(base, settings, strlen(settings), &choice, message));
    struct flw_policy_setup setup = {
        .policy = &choice.policy, .device = &device, .program = &program};
    policy_self = choice.policy.create(&setup, message);
    if (policy_self == NULL) {
        fail_msg("%s", message);
    }
}

static void stop(uint64_t expected_room_bytes)
{
    choice.policy.finish(policy_self);
    assert_int_equal(room_bytes, expected_room_bytes);
    assert_int_equal(live_event_count, 0);
    assert_int_equal(alloc_count, free_count);
}

static bool try_alloc(uint64_t bytes, uint16_t stream, uint32_t *out_block)
{
    struct flw_op op = {
        .kind = FLW_OP_ALLOC, .size_bytes = bytes, .stream = stream, .block = next_block};
    assert_true(next_block < BLOCK_COUNT);
    *out_block = next_block;
    if (!choice.policy.alloc(policy_self, &op, &addresses[next_block])) {
        return false;
    }
    block_bytes[next_block] = bytes;
    block_streams[next_block] = stream;
    next_block++;
    return true;
}

static uint32_t allocate(uint64_t bytes, uint16_t stream)
{
    uint32_t block = 0;
    assert_true(try_alloc(bytes, stream, &block));
    return block;
}

static void give(uint32_t block)
{
    struct flw_op op = {.kind = FLW_OP_FREE,
                        .size_bytes = block_bytes[block],
                        .stream = block_streams[block],
                        .block = block};
    assert_true(choice.policy.free(policy_self, &op, addresses[block]));
}

static void use(uint32_t block, uint16_t stream)
{
    struct flw_op op = {.kind = FLW_OP_USE, .stream = stream, .block = block};
    assert_true(choice.policy.use(policy_self, &op, addresses[block]));
}

static uint64_t held_bytes(uint32_t block)
{
    struct flw_op op = {.kind = FLW_OP_ALLOC, .size_bytes = block_bytes[block], .block = block};
    return choice.policy.block_bytes(policy_self, &op, addresses[block]);
}

/* --- cub --- */

static void cub_rounds_to_powers_of_eight_up_to_two_mebibytes(void **state)
{
    static const uint64_t cases[][2] = {{1, 512},          {512, 512},        {513, 4096},
                                        {4097, 32768},     {262145, 2097152}, {2097152, 2097152},
                                        {2097153, 2097153}};
    (void)state;
    room_bytes = FLW_GIB;
    start(&flw_policy_cub, "", 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(allocate(cases[i][0], 0), i);
        assert_int_equal(last_bytes, cases[i][1]);
        assert_int_equal(held_bytes((uint32_t)i), cases[i][1]);
        assert_int_equal(alloc_count, i + 1);
    }
    give(6); /* above the largest bin: back at once */
    assert_int_equal(free_count, 1);
    for (uint32_t i = 0; i < 6; i++) {
        give(i);
    }
    assert_int_equal(free_count, 1);
    stop(FLW_GIB);
}

static void cub_reuses_within_a_bin_and_never_across(void **state)
{
    (void)state;
    room_bytes = FLW_GIB;
    start(&flw_policy_cub, "", 1);
    uint32_t first = allocate(600, 0);
    give(first);
    uint32_t small = allocate(100, 0); /* 4,096 B lie idle, and are no 512 */
    assert_int_equal(alloc_count, 2);
    uint32_t again = allocate(4000, 0);
    assert_int_equal(alloc_count, 2);
    assert_int_equal(addresses[again], addresses[first]);
    assert_int_equal(query_count, 0);
    give(small);
    give(again);
    stop(FLW_GIB);
}

static void cub_gives_to_another_stream_when_the_event_is_done(void **state)
{
    (void)state;
    room_bytes = FLW_GIB;
    start(&flw_policy_cub, "", 2);
    uint32_t first = allocate(4096, 0);
    give(first);
    assert_int_equal(record_count, 1); /* at every free that is cached */
    uint32_t second = allocate(4096, 1);
    assert_int_not_equal(addresses[second], addresses[first]);
    assert_int_equal(query_count, 1);
    are_events_done = true;
    uint32_t third = allocate(4096, 1);
    assert_int_equal(addresses[third], addresses[first]);
    give(second);
    give(third);
    stop(FLW_GIB);
}

static void cub_takes_the_longest_cached_of_several(void **state)
{
    (void)state;
    room_bytes = FLW_GIB;
    start(&flw_policy_cub, "", 1);
    uint32_t blocks[3];
    for (size_t i = 0; i < 3; i++) {
        blocks[i] = allocate(512, 0);
    }
    give(blocks[1]);
    give(blocks[2]);
    give(blocks[0]);
    assert_int_equal(addresses[allocate(512, 0)], addresses[blocks[1]]);
    assert_int_equal(addresses[allocate(512, 0)], addresses[blocks[2]]);
    assert_int_equal(addresses[allocate(512, 0)], addresses[blocks[0]]);
    for (uint32_t i = 3; i < 6; i++) {
        give(i);
    }
    stop(FLW_GIB);
}

static void cub_caches_three_of_the_largest_bin_less_a_byte(void **state)
{
    (void)state;
    room_bytes = FLW_GIB;
    start(&flw_policy_cub, "", 1);
    for (uint32_t i = 0; i < 3; i++) {
        allocate(2 * FLW_MIB, 0);
    }
    give(0);
    give(1);
    assert_int_equal(free_count, 0);
    give(2); /* 6 MiB would be a byte too much */
    assert_int_equal(free_count, 1);
    stop(FLW_GIB);
}

static void cub_empties_its_cache_before_it_fails(void **state)
{
    uint32_t block = 0;
    (void)state;
    room_bytes = 10 * FLW_MIB;
    start(&flw_policy_cub, "bin_growth=2,max_bin=40,max_cached_bytes=max", 1);
    uint32_t first = allocate(8 * FLW_MIB, 0);
    assert_false(try_alloc(4 * FLW_MIB, 0, &block));
    give(first);
    assert_int_equal(free_count, 0);
    block = allocate(3 * FLW_MIB, 0);
    assert_int_equal(last_bytes, 4 * FLW_MIB);
    assert_int_equal(free_count, 1);
    give(block);
    stop(10 * FLW_MIB);
}

static void cub_waits_for_the_users_of_a_block_before_its_free(void **state)
{
    (void)state;
    room_bytes = FLW_GIB;
    start(&flw_policy_cub, "", 2);
    uint32_t block = allocate(512, 0);
    use(block, 0);
    give(block);
    assert_int_equal(wait_count, 0); /* its own stream */
    block = allocate(512, 0);
    use(block, 1);
    give(block);
    assert_int_equal(wait_count, 1);
    stop(FLW_GIB);
}

static void cub_refuses_bins_the_wrong_way_round(void **state)
{
    char message[FLW_POLICY_MESSAGE_BYTES];
    (void)state;
    assert_true(flw_policy_set(&flw_policy_cub, "min_bin=9", 9, &choice, message));
    struct flw_policy_setup setup = {
        .policy = &choice.policy, .device = &device, .program = &program};
    assert_null(choice.policy.create(&setup, message));
    assert_string_equal(message, "policy cub:min_bin=9: max_bin is below min_bin, which is 9");
}

/* --- bfc --- */

static void bfc_takes_regions_of_twice_the_size_each_time(void **state)
{
    (void)state;
    room_bytes = FLW_GIB;
    start(&flw_policy_bfc, "", 1);
    allocate(1, 0);
    assert_int_equal(last_bytes, 2 * FLW_MIB);
    assert_int_equal(addresses[allocate(300, 0)] - addresses[0], 256);
    assert_int_equal(addresses[allocate(1, 0)] - addresses[0], 256 + 512);
    assert_int_equal(alloc_count, 1);
    allocate(3 * FLW_MIB, 0);
    assert_int_equal(last_bytes, 4 * FLW_MIB);
    allocate(20 * FLW_MIB, 0); /* 8, 16, 32 */
    assert_int_equal(last_bytes, 32 * FLW_MIB);
    allocate(30 * FLW_MIB, 0); /* the last one was doubled for its request: as much once more */
    assert_int_equal(last_bytes, 32 * FLW_MIB);
    allocate(40 * FLW_MIB, 0);
    assert_int_equal(last_bytes, 64 * FLW_MIB);
    assert_int_equal(alloc_count, 5);
    stop(FLW_GIB);
}

static void bfc_splits_a_chunk_of_twice_the_request_and_no_less(void **state)
{
    (void)state;
    room_bytes = FLW_GIB;
    start(&flw_policy_bfc, "", 1);
    allocate(FLW_MIB + 256, 0); /* all of 2 MiB */
    assert_int_equal(held_bytes(0), 2 * FLW_MIB);
    allocate(256, 0);
    assert_int_equal(alloc_count, 2);
    allocate(FLW_MIB, 0); /* 4 MiB less 256 B are 2, 1 and a rest */
    allocate(FLW_MIB, 0);
    assert_int_equal(alloc_count, 2);
    assert_int_equal(addresses[3] - addresses[2], FLW_MIB);
    stop(FLW_GIB);
}

static void bfc_splits_where_128_mebibytes_would_be_left(void **state)
{
    (void)state;
    room_bytes = 4 * FLW_GIB;
    start(&flw_policy_bfc, "", 1);
    allocate(300 * FLW_MIB, 0); /* of 512: less than twice, and 212 are left */
    assert_int_equal(last_bytes, 512 * FLW_MIB);
    assert_int_equal(addresses[allocate(200 * FLW_MIB, 0)] - addresses[0], 300 * FLW_MIB);
    assert_int_equal(alloc_count, 1);
    stop(4 * FLW_GIB);
}

static void bfc_joins_free_neighbours_and_takes_the_best_fit(void **state)
{
    (void)state;
    room_bytes = FLW_GIB;
    start(&flw_policy_bfc, "", 1);
    uint32_t blocks[4];
    for (size_t i = 0; i < 4; i++) {
        blocks[i] = allocate(FLW_MIB / 2, 0);
    }
    assert_int_equal(alloc_count, 1);
    give(blocks[0]);
    give(blocks[2]);
    give(blocks[1]); /* 1.5 MiB in one piece */
    uint32_t joined = allocate(3 * FLW_MIB / 2, 0);
    assert_int_equal(addresses[joined], addresses[blocks[0]]);
    give(joined);
    uint32_t front = allocate(600 * KIB, 0); /* leaves 936 KiB */
    give(blocks[3]);                         /* 936 and 512 are one */
    uint32_t rest = allocate(1448 * KIB, 0);
    assert_int_equal(addresses[rest], addresses[front] + 600 * KIB);
    assert_int_equal(alloc_count, 1);
    stop(FLW_GIB);
}

static void bfc_takes_less_where_the_device_has_less(void **state)
{
    uint32_t block = 0;
    (void)state;
    room_bytes = FLW_GIB;
    start(&flw_policy_bfc, "", 1);
    room_bytes = 5 * FLW_MIB; /* somebody else's */
    allocate(3 * FLW_MIB, 0);
    assert_int_equal(last_bytes, 4 * FLW_MIB);
    allocate(FLW_MIB / 2, 0);
    assert_in_range(last_bytes, 9 * FLW_MIB / 10, FLW_MIB); /* nine tenths at a time */
    assert_false(try_alloc(FLW_MIB, 0, &block));
    stop(5 * FLW_MIB);
}

static void bfc_gives_free_regions_back_for_a_request_that_needs_them(void **state)
{
    (void)state;
    room_bytes = 16 * FLW_MIB;
    start(&flw_policy_bfc, "", 1);
    uint32_t first = allocate(2 * FLW_MIB, 0);
    uint32_t second = allocate(4 * FLW_MIB, 0);
    give(first);
    give(second);
    allocate(12 * FLW_MIB, 0); /* 10 MiB are left, 6 are free */
    assert_int_equal(free_count, 2);
    assert_int_equal(last_bytes, 16 * FLW_MIB);
    stop(16 * FLW_MIB);
}

static void bfc_defers_frees_where_there_are_several_streams(void **state)
{
    (void)state;
    room_bytes = 2 * FLW_MIB;
    start(&flw_policy_bfc, "", 2);
    uint32_t first = allocate(FLW_MIB, 0);
    use(first, 1);
    give(first);
    assert_int_equal(record_count, 2); /* the freeing stream's and the user's */
    uint32_t second = allocate(FLW_MIB, 0);
    assert_int_not_equal(addresses[second], addresses[first]);
    assert_int_equal(sync_count, 0);
    uint32_t third = allocate(FLW_MIB, 0); /* nothing else is left: it waits */
    assert_int_equal(addresses[third], addresses[first]);
    assert_int_equal(sync_count, 2);
    give(second);
    are_events_done = true;
    assert_int_equal(addresses[allocate(256, 1)], addresses[second]);
    assert_int_equal(sync_count, 2);
    stop(2 * FLW_MIB);
}

/* A trace that is replayed again gives its numbers to other chunks while frees are pending. */
static void a_pending_free_is_of_the_chunk_and_not_of_its_number(void **state)
{
    (void)state;
    room_bytes = 2 * FLW_MIB;
    start(&flw_policy_bfc, "", 2);
    uint64_t first_address = addresses[allocate(FLW_MIB / 2, 0)];
    give(0);
    next_block = 0;
    uint64_t again_address = addresses[allocate(FLW_MIB / 2, 0)];
    assert_int_not_equal(again_address, first_address);
    are_events_done = true;
    assert_int_equal(addresses[allocate(FLW_MIB / 2, 0)], first_address);
    assert_int_not_equal(addresses[allocate(FLW_MIB / 2, 0)], again_address);
    assert_int_not_equal(addresses[allocate(FLW_MIB / 2, 0)], again_address);
    stop(2 * FLW_MIB);
}

static void bfc_reuses_at_once_on_a_single_stream(void **state)
{
    (void)state;
    room_bytes = FLW_GIB;
    start(&flw_policy_bfc, "", 1);
    uint32_t first = allocate(FLW_MIB, 0);
    give(first);
    assert_int_equal(addresses[allocate(FLW_MIB, 0)], addresses[first]);
    assert_int_equal(record_count, 0);
    stop(FLW_GIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cub_rounds_to_powers_of_eight_up_to_two_mebibytes),
        cmocka_unit_test(cub_reuses_within_a_bin_and_never_across),
        cmocka_unit_test(cub_gives_to_another_stream_when_the_event_is_done),
        cmocka_unit_test(cub_takes_the_longest_cached_of_several),
        cmocka_unit_test(cub_caches_three_of_the_largest_bin_less_a_byte),
        cmocka_unit_test(cub_empties_its_cache_before_it_fails),
        cmocka_unit_test(cub_waits_for_the_users_of_a_block_before_its_free),
        cmocka_unit_test(cub_refuses_bins_the_wrong_way_round),
        cmocka_unit_test(bfc_takes_regions_of_twice_the_size_each_time),
        cmocka_unit_test(bfc_splits_a_chunk_of_twice_the_request_and_no_less),
        cmocka_unit_test(bfc_splits_where_128_mebibytes_would_be_left),
        cmocka_unit_test(bfc_joins_free_neighbours_and_takes_the_best_fit),
        cmocka_unit_test(bfc_takes_less_where_the_device_has_less),
        cmocka_unit_test(bfc_gives_free_regions_back_for_a_request_that_needs_them),
        cmocka_unit_test(bfc_defers_frees_where_there_are_several_streams),
        cmocka_unit_test(a_pending_free_is_of_the_chunk_and_not_of_its_number),
        cmocka_unit_test(bfc_reuses_at_once_on_a_single_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

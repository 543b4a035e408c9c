/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: tests of the public calls, one by one: statuses, misuse, the cost of a hit, requests,
 * limits, reports. test_api_life.c has a pool's beginning and end, test_api_capture.c the
 * captures. */
#include "unit/pool/test_api.h"
#include "support/trim.h"

static void size_zero_and_null_are_nothing(void **state)
{
    struct api api;
    void *ptr = &api;
    api_begin_with_pool(&api);
    assert_int_equal(fallow_alloc(api.pool, 0, api.stream, &ptr), FALLOW_OK);
    assert_null(ptr);
    assert_int_equal(fallow_free(api.pool, NULL, api.stream), FALLOW_OK);
    assert_int_equal(fallow_free_sized(api.pool, NULL, 5, api.stream), FALLOW_OK);
    fallow_stats stats = api_stats(&api);
    assert_int_equal(stats.zero_size_count, 1);
    assert_int_equal(stats.alloc_count, 0);
    assert_int_equal(stats.free_count, 0);
    api_end(&api);
}

static void absurd_sizes_and_missing_results_are_refused(void **state)
{
    struct api api;
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 1, SIZE_MAX - 4095, SIZE_MAX / 2 + 1};
    api_begin_with_pool(&api);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *ptr = &api;
        assert_int_equal(fallow_alloc(api.pool, sizes[i], api.stream, &ptr),
                         FALLOW_INVALID_ARGUMENT);
        assert_null(ptr);
        size_t both[2] = {100, sizes[i]};
        void *ptrs[2] = {&api, &api};
        assert_int_equal(fallow_alloc_batch(api.pool, both, 2, api.stream, ptrs),
                         FALLOW_INVALID_ARGUMENT);
        assert_null(ptrs[0]);
        assert_null(ptrs[1]);
    }
    assert_int_equal(fallow_alloc(api.pool, 100, api.stream, NULL), FALLOW_INVALID_ARGUMENT);
    size_t one = 100; /* of so many, which no array holds: none is looked at */
    void *ptr = &api;
    assert_int_equal(fallow_alloc_batch(api.pool, &one, SIZE_MAX, api.stream, &ptr),
                     FALLOW_INVALID_ARGUMENT);
    fallow_stats stats = api_stats(&api);
    assert_int_equal(stats.live_count, 0);
    api_end(&api);
}

static void a_hit_makes_no_driver_call_and_changes_no_errno(void **state)
{
    struct api api;
    api_begin_with_pool(&api);
    void *ptr = api_alloc(&api, 5000, api.stream);
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    uint64_t calls = flw_sim_read_ledger(&api.sim).call_count;
    fallow_stats before = api_stats(&api);
    errno = 4242;
    for (unsigned i = 0; i < 1000; i++) {
        ptr = api_alloc(&api, 5000, api.stream);
        assert_int_equal(fallow_free_sized(api.pool, ptr, 5000, api.stream), FALLOW_OK);
    }
    assert_int_equal(errno, 4242);
    assert_int_equal(flw_sim_read_ledger(&api.sim).call_count, calls);
    assert_int_equal(api_stats(&api).hit_count - before.hit_count, 1000);
    api_end(&api);
}

static void errno_survives_a_miss_and_a_failure(void **state)
{
    struct api api;
    void *ptr = NULL;
    api_begin_with_pool(&api);
    errno = 4242;
    ptr = api_alloc(&api, 40 * MIB, api.stream);
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    assert_int_equal(fallow_alloc(api.pool, (size_t)1 << 40, api.stream, &ptr),
                     FALLOW_OUT_OF_MEMORY);
    assert_int_equal(flw_test_trim(api.pool, 0), FALLOW_OK);
    assert_int_equal(errno, 4242);
    api_end(&api);
}

/* Play a step as a program repeats it: many sizes, all freed. */
static void play_step(struct api *api, CUstream stream)
{
    void *ptrs[40];
    for (size_t i = 0; i < 40; i++) {
        size_t size = (i % 8 + 1) * (i % 3 == 0 ? 3 * MIB : 7000);
        ptrs[i] = api_alloc(api, size, stream);
        api_use(api, ptrs[i], size, stream);
    }
    for (size_t i = 0; i < 40; i++) {
        assert_int_equal(fallow_free(api->pool, ptrs[i * 7 % 40], stream), FALLOW_OK);
    }
}

static void a_repeating_step_makes_no_driver_call_after_two(void **state)
{
    struct api api;
    flw_sim_config world = flw_sim_config_default(3);
    world.schedule = FLW_SIM_HELD;
    world.queue_depth = 100000;
    api_begin(&api, &world);
    api.pool = api_create(&api);
    play_step(&api, api.stream);
    play_step(&api, api.stream);
    fallow_stats before = api_stats(&api);
    uint64_t calls = flw_sim_read_ledger(&api.sim).call_count;
    for (unsigned i = 0; i < 10; i++) {
        play_step(&api, api.stream);
    }
    fallow_stats after = api_stats(&api);
    assert_int_equal(flw_sim_read_ledger(&api.sim).call_count, calls);
    assert_int_equal(after.event_count, before.event_count);
    assert_int_equal(after.remap_wait_count, 0);
    assert_int_equal(after.wait_count, before.wait_count);
    api_end(&api);
}

static void memory_of_another_stream_is_taken_with_a_wait_on_the_device(void **state)
{
    struct api api;
    api_begin(&api, NULL);
    fallow_pool_config config = api_config(&api);
    config.limit_bytes = 64 * MIB;
    config.wait_ms = UINT32_MAX;
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    void *ptr = api_alloc(&api, 40 * MIB, api.stream);
    api_use(&api, ptr, 40 * MIB, api.stream);
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    ptr = api_alloc(&api, 40 * MIB, api.other); /* the first stream has not even begun */
    api_use(&api, ptr, 40 * MIB, api.other);
    fallow_stats stats = api_stats(&api);
    assert_true(stats.steal_count >= 1);
    assert_int_equal(stats.wait_count, 0);
    assert_true(stats.reserved_bytes <= 64 * MIB);
    assert_int_equal(fallow_free(api.pool, ptr, api.other), FALLOW_OK);
    api_end(&api);
}

static void reuse_policies_forbid_what_they_name(void **state)
{
    static const fallow_reuse_policy policies[] = {FALLOW_REUSE_COMPLETED,
                                                   FALLOW_REUSE_SAME_STREAM};
    for (size_t i = 0; i < 2; i++) {
        struct api api;
        void *ptr = NULL;
        api_begin(&api, NULL);
        fallow_pool_config config = api_config(&api);
        config.limit_bytes = 64 * MIB;
        config.wait_ms = UINT32_MAX;
        config.reuse_policy = policies[i];
        assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
        ptr = api_alloc(&api, 40 * MIB, api.stream);
        api_use(&api, ptr, 40 * MIB, api.stream);
        assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
        assert_int_equal(fallow_alloc(api.pool, 40 * MIB, api.other, &ptr), FALLOW_OUT_OF_MEMORY);
        assert_int_equal(api_stats(&api).steal_count, 0);
        ptr = api_alloc(&api, 40 * MIB, api.stream);
        assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
        api_end(&api);
    }
}

/* Complete all freed memory and let the pool notice, without a release. */
static void complete_everything(struct api *api)
{
    assert_int_equal(fallow_pool_trim(api->pool, SIZE_MAX, 0, NULL), FALLOW_OK); /* fences */
    api->sim.step(UINT64_MAX);
    assert_int_equal(fallow_pool_trim(api->pool, SIZE_MAX, 0, NULL), FALLOW_OK);
}

#define OWNED 40

/* Let one stream free blocks, every `mix`-th on a second one; when all are complete a third
 * allocates as many. Return the number of addresses it gets from the first two. */
static unsigned reused_by_another(fallow_reuse_policy policy, size_t bytes, size_t mix,
                                  bool retires)
{
    struct api api;
    CUstream third;
    void *owned[OWNED], *taken[2 * OWNED];
    unsigned reused = 0;
    api_begin(&api, NULL);
    assert_int_equal(api.sim.cu.cuStreamCreate(&third, CU_STREAM_NON_BLOCKING), 0);
    fallow_pool_config config = api_config(&api);
    config.reuse_policy = policy;
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    /* After a peak like this the pool grows instead of moving memory. */
    void *peak = api_alloc(&api, 400 * MIB, third);
    assert_int_equal(fallow_free(api.pool, peak, third), FALLOW_OK);
    complete_everything(&api);
    assert_int_equal(fallow_pool_trim(api.pool, 0, 0, NULL), FALLOW_OK);
    uint64_t moves = api_stats(&api).remap_count;
    for (size_t i = 0; i < OWNED; i++) {
        owned[i] = api_alloc(&api, bytes, api.stream);
        api_use(&api, owned[i], bytes, api.stream);
    }
    api.sim.step(UINT64_MAX); /* so that the second stream's work follows the first's */
    for (size_t i = 0; i < OWNED; i++) {
        CUstream freeing = i % mix == mix - 1 ? api.other : api.stream;
        assert_int_equal(fallow_free(api.pool, owned[i], freeing), FALLOW_OK);
    }
    if (retires) {
        assert_int_equal(fallow_stream_retire(api.pool, api.stream), FALLOW_OK);
        assert_int_equal(fallow_stream_retire(api.pool, api.other), FALLOW_OK);
    }
    complete_everything(&api);
    for (size_t i = 0; i < 2 * OWNED; i++) {
        taken[i] = api_alloc(&api, bytes, third);
        api_use(&api, taken[i], bytes, third);
        for (size_t k = 0; k < OWNED; k++) {
            reused += taken[i] == owned[k];
        }
    }
    assert_int_equal(api_stats(&api).remap_count, moves);
    assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
    for (size_t i = 0; i < 2 * OWNED; i++) {
        assert_int_equal(fallow_free(api.pool, taken[i], third), FALLOW_OK);
    }
    complete_everything(&api);
    assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
    assert_int_equal(fallow_pool_trim(api.pool, 0, 0, NULL), FALLOW_OK);
    assert_int_equal(api_stats(&api).reserved_bytes, 0); /* kept memory is no lost memory */
    api_end(&api);
    return reused;
}

static void complete_memory_stays_with_its_stream_where_the_policy_says_so(void **state)
{
    static const size_t sizes[] = {5000, 60000, 900000, 3 * MIB};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (size_t mix = 2; mix <= OWNED + 1; mix += OWNED - 1) {
            assert_true(reused_by_another(FALLOW_REUSE_COMPLETED, sizes[i], mix, false) > 0);
            assert_int_equal(reused_by_another(FALLOW_REUSE_SAME_STREAM, sizes[i], mix, false), 0);
        }
        assert_true(reused_by_another(FALLOW_REUSE_SAME_STREAM, sizes[i], OWNED + 1, true) > 0);
    }
}

static void kept_memory_serves_its_stream_again_and_moves_at_the_limit(void **state)
{
    struct api api;
    api_begin(&api, NULL);
    fallow_pool_config config = api_config(&api);
    config.limit_bytes = 64 * MIB;
    config.reuse_policy = FALLOW_REUSE_SAME_STREAM;
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    void *first = api_alloc(&api, 40 * MIB, api.stream);
    api_use(&api, first, 40 * MIB, api.stream);
    assert_int_equal(fallow_free(api.pool, first, api.stream), FALLOW_OK);
    void *small = api_alloc(&api, 5 * MIB, api.other); /* two streams from now on */
    complete_everything(&api);
    void *again = api_alloc(&api, 40 * MIB, api.stream);
    assert_ptr_equal(again, first);
    assert_int_equal(fallow_free(api.pool, again, api.stream), FALLOW_OK);
    complete_everything(&api);
    uint64_t moves = api_stats(&api).remap_count;
    void *moved = api_alloc(&api, 40 * MIB, api.other);
    api_use(&api, moved, 40 * MIB, api.other);
    assert_true(api_stats(&api).remap_count > moves);
    assert_int_equal(api_stats(&api).steal_count, 0);
    assert_int_equal(fallow_free(api.pool, moved, api.other), FALLOW_OK);
    assert_int_equal(fallow_free(api.pool, small, api.other), FALLOW_OK);
    assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
    api_end(&api);
}

static void a_failure_for_room_is_explained(void **state)
{
    struct api api;
    void *ptr = NULL;
    fallow_oom_report report;
    fallow_oom_report_init(&report);
    api_begin(&api, NULL);
    fallow_pool_config config = api_config(&api);
    config.limit_bytes = 64 * MIB;
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    assert_int_equal(fallow_pool_get_oom_report(api.pool, &report), FALLOW_OK);
    assert_int_equal(report.size_bytes, 0);
    fallow_request request;
    fallow_request_init(&request);
    request.size_bytes = 30 * MIB;
    request.tag = 77;
    assert_int_equal(fallow_alloc_request(api.pool, &request, api.stream, &ptr), FALLOW_OK);
    void *none = &api;
    assert_int_equal(fallow_alloc(api.pool, 50 * MIB, api.stream, &none), FALLOW_OUT_OF_MEMORY);
    assert_null(none);
    assert_int_equal(fallow_pool_get_oom_report(api.pool, &report), FALLOW_OK);
    assert_int_equal(report.size_bytes, 50 * MIB);
    assert_int_equal(report.limit_bytes, 64 * MIB);
    assert_int_equal(report.requested_bytes, 30 * MIB);
    assert_int_equal(report.reserved_bytes, flw_sim_read_ledger(&api.sim).given_bytes);
    assert_true(report.largest_free_bytes < 50 * MIB);
    assert_true(report.owner_count >= 1);
    assert_int_equal(report.owners[0].tag, 77);
    assert_int_equal(report.owners[0].count, 1);
    assert_true(report.owners[0].bytes >= 30 * MIB);
    assert_int_equal(api_stats(&api).oom_count, 1);
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    api_end(&api);
}

static void trim_of_an_idle_pool_leaves_nothing(void **state)
{
    struct api api;
    flw_sim_config world =
        flw_sim_config_default(5); /* random: the fences that trim records complete */
    world.check = 1;
    api_begin(&api, &world);
    api.pool = api_create(&api);
    play_step(&api, api.stream);
    play_step(&api, api.other);
    size_t released = 0;
    uint64_t reserved = api_stats(&api).reserved_bytes;
    assert_int_equal(fallow_pool_trim(api.pool, 0, 1000000000, &released), FALLOW_OK);
    assert_int_equal(api_stats(&api).reserved_bytes, 0);
    assert_int_equal(released, reserved);
    play_step(&api, api.stream);
    api_end(&api);
}

static void a_request_carries_its_tag_and_wishes(void **state)
{
    struct api api;
    void *ptr = NULL;
    fallow_block info;
    fallow_block_init(&info);
    api_begin_with_pool(&api);
    fallow_request request;
    fallow_request_init(&request);
    request.size_bytes = 100000;
    request.align_bytes = 65536;
    request.tag = 5;
    assert_int_equal(fallow_alloc_request(api.pool, &request, api.stream, &ptr), FALLOW_OK);
    assert_int_equal((uintptr_t)ptr % 65536, 0);
    assert_int_equal(fallow_block_info(api.pool, (char *)ptr + 99999, &info), FALLOW_OK);
    assert_ptr_equal(info.base, ptr);
    assert_int_equal(info.tag, 5);
    assert_int_equal(info.requested_bytes, 100000);
    assert_int_equal(info.state, FALLOW_BLOCK_LIVE);
    unsigned long long id = 0;
    assert_int_equal(api.sim.cu.cuStreamGetId(api.stream, &id), 0);
    assert_int_equal(info.stream_id, id);
    assert_true(info.handle != 0 && info.handle_bytes != 0);
    assert_true(info.handle_offset < info.handle_bytes);
    request.flags = FALLOW_REQUEST_EXPORT_FD; /* the pool was not created for exports */
    void *none = &api;
    assert_int_equal(fallow_alloc_request(api.pool, &request, api.stream, &none),
                     FALLOW_NOT_SUPPORTED);
    assert_null(none);
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    api_end(&api);
}

static void an_exportable_block_lies_in_one_handle(void **state)
{
    struct api api;
    void *ptr = NULL;
    fallow_block info;
    fallow_block_init(&info);
    api_begin(&api, NULL);
    fallow_pool_config config = api_config(&api);
    config.handle_types = FALLOW_HANDLE_FD;
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    fallow_request request;
    fallow_request_init(&request);
    request.size_bytes = 50 * MIB;
    request.flags = FALLOW_REQUEST_EXPORT_FD;
    assert_int_equal(fallow_alloc_request(api.pool, &request, api.stream, &ptr), FALLOW_OK);
    assert_int_equal(fallow_block_info(api.pool, ptr, &info), FALLOW_OK);
    assert_true(info.handle_offset + info.requested_bytes <= info.handle_bytes);
    int descriptor = -1;
    assert_int_equal(api.sim.cu.cuMemExportToShareableHandle(
                         &descriptor, info.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                     0);
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    api_end(&api);
}

static void a_retired_streams_handle_can_be_a_new_stream(void **state)
{
    struct api api;
    api_begin_with_pool(&api);
    for (unsigned i = 0; i < 50; i++) {
        void *ptr = api_alloc(&api, 5000, api.stream);
        api_use(&api, ptr, 5000, api.stream);
        assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
        assert_int_equal(fallow_stream_retire(api.pool, api.stream), FALLOW_OK);
        assert_int_equal(api.sim.cu.cuStreamDestroy_v2(api.stream), 0);
        assert_int_equal(api.sim.cu.cuStreamCreate(&api.stream, CU_STREAM_NON_BLOCKING), 0);
        ptr = api_alloc(&api, 5000, api.stream); /* same handle, another stream */
        api_use(&api, ptr, 5000, api.stream);
        assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    }
    assert_int_equal(api_stats(&api).lost_streams, 0);
    api_end(&api);
}

static void a_stream_destroyed_without_retire_is_noticed_where_streams_may_die(void **state)
{
    struct api api;
    void *ptr = NULL;
    api_begin(&api, NULL);
    fallow_pool_config config = api_config(&api);
    config.streams_may_die = 1;
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    ptr = api_alloc(&api, 5000, api.stream);
    api_use(&api, ptr, 5000, api.stream);
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    CUstream old = api.stream;
    assert_int_equal(api.sim.cu.cuStreamDestroy_v2(old), 0);
    ptr = &api;
    assert_int_equal(fallow_alloc(api.pool, 5000, old, &ptr), FALLOW_INVALID_STREAM);
    assert_null(ptr);
    assert_int_equal(api.sim.cu.cuStreamCreate(&api.stream, CU_STREAM_NON_BLOCKING), 0);
    assert_ptr_equal(api.stream, old); /* the simulated driver reuses the handle at once */
    ptr = api_alloc(&api, 5000, api.stream);
    api_use(&api, ptr, 5000, api.stream); /* the checker would see the old stream's write */
    assert_int_equal(api_stats(&api).lost_streams, 1);
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    api_end(&api);
}

static void a_block_names_the_stream_that_allocated_it_and_so_does_the_report(void **state)
{
    struct api api;
    fallow_block info = {.struct_size = sizeof info};
    fallow_oom_report report;
    unsigned long long first = 0, other = 0;
    void *none = NULL;
    api_begin(&api, NULL);
    fallow_pool_config config = api_config(&api);
    config.limit_bytes = 64 * MIB;
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    CUstream short_lived = NULL;
    assert_int_equal(api.sim.cu.cuStreamCreate(&short_lived, CU_STREAM_NON_BLOCKING), 0);
    assert_int_equal(api.sim.cu.cuStreamGetId(api.stream, &first), 0);
    assert_int_equal(api.sim.cu.cuStreamGetId(short_lived, &other), 0);
    void *run = api_alloc(&api, 3 * MIB, short_lived);
    assert_int_equal(fallow_free(api.pool, run, short_lived), FALLOW_OK);
    run = api_alloc(&api, 3 * MIB, short_lived); /* a hit as well */
    void *small = api_alloc(&api, 5000, api.stream);
    assert_int_equal(fallow_block_info(api.pool, (char *)run + 2 * MIB, &info), FALLOW_OK);
    assert_int_equal(info.stream_id, other);
    assert_int_equal(info.requested_bytes, 3 * MIB);
    assert_int_equal(fallow_stream_retire(api.pool, short_lived), FALLOW_OK);
    assert_int_equal(api.sim.cu.cuStreamDestroy_v2(short_lived), 0);
    assert_int_equal(fallow_block_info(api.pool, run, &info), FALLOW_OK);
    assert_int_equal(info.stream_id, other);
    assert_int_equal(fallow_block_info(api.pool, small, &info), FALLOW_OK);
    assert_int_equal(info.stream_id, first);
    assert_int_equal(fallow_alloc(api.pool, 100 * MIB, api.stream, &none), FALLOW_OUT_OF_MEMORY);
    fallow_oom_report_init(&report);
    assert_int_equal(fallow_pool_get_oom_report(api.pool, &report), FALLOW_OK);
    assert_int_equal(report.owner_count, 2);
    assert_int_equal(report.owners[0].stream_id, other);
    assert_int_equal(report.owners[0].bytes, 3 * MIB);
    assert_int_equal(report.owners[1].stream_id, first);
    assert_int_equal(report.owners[1].count, 1);
    assert_int_equal(fallow_free(api.pool, run, api.stream), FALLOW_OK);
    assert_int_equal(fallow_free_sized(api.pool, small, 5000, api.stream), FALLOW_OK);
    api_end(&api);
}

static void the_report_names_the_largest_owners_small_blocks_and_large(void **state)
{
    struct api api;
    fallow_oom_report report;
    void *ptr = NULL;
    api_begin(&api, NULL);
    fallow_pool_config config = api_config(&api);
    config.limit_bytes = 64 * MIB;
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    void *plain = api_alloc(&api, 3 * MIB, api.stream);
    void *tagged[120];
    for (uint32_t i = 0; i < 120; i++) { /* twelve tags, ten blocks each: tag t has t * 10,240 B */
        fallow_request request = {.struct_size = sizeof request};
        request.tag = 1 + i % 12;
        request.size_bytes = (size_t)1024 * request.tag;
        assert_int_equal(fallow_alloc_request(api.pool, &request, api.stream, &tagged[i]),
                         FALLOW_OK);
    }
    assert_int_equal(fallow_alloc(api.pool, 100 * MIB, api.stream, &ptr), FALLOW_OUT_OF_MEMORY);
    fallow_oom_report_init(&report);
    assert_int_equal(fallow_pool_get_oom_report(api.pool, &report), FALLOW_OK);
    assert_int_equal(report.owner_count, FALLOW_OOM_OWNERS);
    assert_int_equal(report.owners[0].tag, 0);
    assert_int_equal(report.owners[0].count, 1);
    assert_int_equal(report.owners[0].bytes, 3 * MIB);
    for (uint32_t i = 1; i < FALLOW_OOM_OWNERS; i++) {
        assert_int_equal(report.owners[i].tag, 13 - i);
        assert_int_equal(report.owners[i].count, 10);
        assert_int_equal(report.owners[i].bytes, (uint64_t)10240 * (13 - i));
    }
    for (uint32_t i = 0; i < 120; i++) {
        assert_int_equal(fallow_free(api.pool, tagged[i], api.stream), FALLOW_OK);
    }
    assert_int_equal(fallow_free(api.pool, plain, api.stream), FALLOW_OK);
    api_end(&api);
}

static void every_status_has_a_name_and_a_sentence(void **state)
{
#define X(name, value, text)                                                 \
    assert_string_equal(fallow_status_name(FALLOW_##name), "FALLOW_" #name); \
    assert_string_equal(fallow_status_message(FALLOW_##name), text);
    FALLOW_STATUS_LIST(X)
#undef X
    assert_string_equal(fallow_status_name((fallow_status)99), "FALLOW_UNKNOWN");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(size_zero_and_null_are_nothing),
        cmocka_unit_test(absurd_sizes_and_missing_results_are_refused),
        cmocka_unit_test(a_hit_makes_no_driver_call_and_changes_no_errno),
        cmocka_unit_test(errno_survives_a_miss_and_a_failure),
        cmocka_unit_test(a_repeating_step_makes_no_driver_call_after_two),
        cmocka_unit_test(memory_of_another_stream_is_taken_with_a_wait_on_the_device),
        cmocka_unit_test(reuse_policies_forbid_what_they_name),
        cmocka_unit_test(complete_memory_stays_with_its_stream_where_the_policy_says_so),
        cmocka_unit_test(kept_memory_serves_its_stream_again_and_moves_at_the_limit),
        cmocka_unit_test(a_failure_for_room_is_explained),
        cmocka_unit_test(trim_of_an_idle_pool_leaves_nothing),
        cmocka_unit_test(a_request_carries_its_tag_and_wishes),
        cmocka_unit_test(an_exportable_block_lies_in_one_handle),
        cmocka_unit_test(a_retired_streams_handle_can_be_a_new_stream),
        cmocka_unit_test(a_stream_destroyed_without_retire_is_noticed_where_streams_may_die),
        cmocka_unit_test(a_block_names_the_stream_that_allocated_it_and_so_does_the_report),
        cmocka_unit_test(the_report_names_the_largest_owners_small_blocks_and_large),
        cmocka_unit_test(every_status_has_a_name_and_a_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

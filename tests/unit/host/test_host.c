/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: tests of libfallow-host's promises one by one, on a held world: nothing completes by itself.
 */
#include "test_host.h"

#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(FLW_TSAN)
/* Before a fork jemalloc takes all the locks, more at a time than TSan's deadlock detector
 * supports. */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "detect_deadlocks=0";
}
#endif

static int exit_code_of(pid_t child)
{
    int how = 0;
    assert_int_equal(waitpid(child, &how, 0), child);
    return WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
}

/* First, because a fork cannot use a simulated driver that the parent has opened. */
TEST(a_program_may_exit_with_a_pool)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        host_begin();
        host_free(host_alloc(1 * MIB), bed.stream);
        (void)host_alloc(100);
        fallow_pool_destroy(bed.pool); /* only for the leak checker's sake */
        exit(9); /* handlers run; nothing of the pool's makes a driver call or waits */
    }
    assert_int_equal(exit_code_of(child), 9);
}

TEST(blocks_of_all_sizes_lie_apart_and_can_be_written)
{
    static const size_t sizes[] = {1,     63,    64,     65,       1000,     4096,     14336,
                                   14337, 65536, 100000, 1u << 20, 3u << 20, 8u << 20, 33u << 20};
    enum {
        COUNT = sizeof sizes / sizeof *sizes
    };
    unsigned char *block[COUNT];
    host_begin();
    for (unsigned i = 0; i < COUNT; i++) {
        block[i] = host_alloc(sizes[i]);
        assert_int_equal((uintptr_t)block[i] % (sizes[i] > 14336 ? 4096 : 64), 0);
        memset(block[i], (int)i + 1, sizes[i]);
    }
    host_check();
    for (unsigned i = 0; i < COUNT; i++) {
        for (size_t at = 0; at < sizes[i]; at += at + 1 < sizes[i] ? sizes[i] - 1 : 1) {
            assert_int_equal(block[i][at], i + 1);
        }
        host_free(block[i], bed.stream);
    }
    bed.sim.step(UINT64_MAX);
    assert_ok(fallow_host_poll(bed.host));
    assert_int_equal(host_stats().deferred_bytes, 0);
    host_end();
}

TEST(a_block_comes_back_only_when_its_copy_is_done)
{
    size_t sizes[] = {4096, 1 * MIB, 16 * MIB};
    host_begin();
    for (unsigned i = 0; i < 3; i++) {
        unsigned char *first = host_alloc(sizes[i]), *second;
        memset(first, 0x5a, sizes[i]);
        host_copy(first, sizes[i], bed.stream);
        host_free(first, bed.stream);
        for (unsigned n = 0; n < 5; n++) { /* even though it queries repeatedly */
            assert_ok(fallow_host_poll(bed.host));
            second = host_alloc(sizes[i]);
            assert_true(second >= first + sizes[i] || second + sizes[i] <= first);
            memset(second, 0, sizes[i]);
            assert_ok(fallow_host_free_idle(bed.host, second));
        }
        assert_int_equal(host_stats().deferred_bytes, sizes[i]);
        assert_int_equal(host_read_back(sizes[i] - 1, bed.stream), 0x5a);
        assert_ok(fallow_host_poll(bed.host));
        assert_int_equal(host_stats().deferred_bytes, 0);
        host_check();
    }
    host_end();
}

TEST(an_idle_block_is_allocated_again_at_once)
{
    host_begin();
    for (unsigned i = 0; i < 3; i++) {
        size_t bytes = i == 0 ? 512 : i == 1 ? 200 * KIB : 20 * MIB;
        void *first = host_alloc(bytes);
        assert_ok(fallow_host_free_idle(bed.host, first));
        uint64_t calls = host_stats().driver_call_count;
        assert_ptr_equal(host_alloc(bytes), first);
        assert_int_equal(host_stats().driver_call_count, calls); /* a hit */
        assert_ok(fallow_host_free_idle(bed.host, first));
    }
    assert_int_equal(host_stats().event_count, 0);
    host_end();
}

TEST(an_announced_use_holds_a_block_back)
{
    host_begin();
    void *block = host_alloc(2 * MIB);
    host_copy(block, 2 * MIB, bed.other);
    assert_ok(fallow_host_record_use(bed.host, block, bed.other));
    assert_ok(fallow_host_record_use(bed.host, block, bed.other)); /* once more */
    assert_ok(fallow_host_free_idle(bed.host, block));
    assert_ok(fallow_host_poll(bed.host));
    assert_int_equal(host_stats().deferred_bytes, 2 * MIB);
    host_check();
    bed.sim.step(UINT64_MAX);
    assert_ok(fallow_host_poll(bed.host));
    assert_int_equal(host_stats().deferred_bytes, 0);
    host_end();
}

TEST(both_streams_must_be_done)
{
    host_begin();
    void *block = host_alloc(300);
    host_copy(block, 300, bed.other);
    assert_ok(fallow_host_record_use(bed.host, block, bed.other));
    host_free(block, bed.stream);
    assert_ok(bed.sim.cu.cuStreamSynchronize(bed.stream));
    assert_ok(fallow_host_poll(bed.host)); /* records */
    assert_ok(bed.sim.cu.cuStreamSynchronize(bed.stream));
    assert_ok(fallow_host_poll(bed.host));
    assert_int_equal(host_stats().deferred_bytes, 300);
    assert_ok(bed.sim.cu.cuStreamSynchronize(bed.other));
    assert_ok(fallow_host_poll(bed.host));
    assert_int_equal(host_stats().deferred_bytes, 0);
    host_end();
}

TEST(frees_share_events)
{
    void *block[256];
    host_begin();
    for (unsigned i = 0; i < 256; i++) {
        block[i] = host_alloc(1024);
    }
    for (unsigned i = 0; i < 256; i++) {
        host_free(block[i], bed.stream);
    }
    assert_int_equal(host_stats().event_count, 8); /* one for 32 */
    bed.sim.step(UINT64_MAX);
    host_end();
}

/* ---- limit, trim */

TEST(the_limit_is_kept_and_the_sentence_says_what_to_do)
{
    void *block = NULL, *held;
    host_begin_world(NULL);
    fallow_host_config config = host_config();
    config.limit_bytes = 20 * MIB;
    host_create(&config);
    held = host_alloc(15 * MIB);
    assert_int_equal(fallow_host_alloc(bed.host, 6 * MIB, &block), FALLOW_OUT_OF_PINNED_MEMORY);
    assert_null(block);
    assert_true(host_says("raise limit_bytes"));
    assert_int_equal(fallow_host_alloc(bed.host, 21 * MIB, &block), FALLOW_OUT_OF_PINNED_MEMORY);
    assert_int_equal(host_stats().oom_count, 2);
    host_check();
    host_copy(held, 15 * MIB, bed.stream);
    host_free(held, bed.stream);
    assert_int_equal(fallow_host_alloc(bed.host, 19 * MIB, &block), FALLOW_OUT_OF_PINNED_MEMORY);
    assert_true(host_says("15728640 wait for copies"));
    bed.sim.step(UINT64_MAX);
    block = host_alloc(19 * MIB); /* released the chunk of 15 MiB */
    assert_true(host_stats().reserved_bytes <= 20 * MIB);
    assert_ok(fallow_host_free_idle(bed.host, block));
    block = host_alloc(100); /* and that one for this */
    assert_ok(fallow_host_free_idle(bed.host, block));
    host_end();
}

TEST(at_the_limit_an_allocation_waits_for_copies)
{
    flw_sim_config world = flw_sim_config_default(5);
    world.schedule = FLW_SIM_RANDOM; /* work completes on queries of the host */
    world.check = 1;
    world.backed = 1;
    host_begin_world(&world);
    fallow_host_config config = host_config();
    config.limit_bytes = 16 * MIB;
    config.wait_ms = 60000;
    host_create(&config);
    for (unsigned i = 0; i < 40; i++) {
        void *block = host_alloc(9 * MIB);
        host_copy(block, 9 * MIB, i % 2 ? bed.stream : bed.other);
        host_free(block, i % 2 ? bed.stream : bed.other);
    }
    assert_true(host_stats().peak_reserved_bytes <= 16 * MIB);
    host_end();
}

TEST(trim_gives_everything_idle_back)
{
    void *block[100];
    size_t released = 0;
    host_begin();
    for (unsigned i = 0; i < 100; i++) {
        block[i] = host_alloc((i % 5 + 1) * (i % 3 ? 3000 : 400 * KIB));
    }
    void *kept = host_alloc(100);
    uint64_t before = host_stats().reserved_bytes;
    for (unsigned i = 0; i < 100; i++) {
        host_copy(block[i], 64, bed.stream);
        host_free(block[i], bed.stream);
    }
    assert_ok(fallow_host_trim(bed.host, 0, 0, &released)); /* not done yet */
    assert_true(before - released >= host_stats().deferred_bytes);
    assert_ok(fallow_host_trim(bed.host, 0, UINT64_MAX, NULL));
    assert_int_equal(host_stats().deferred_bytes, 0);
    assert_true(host_stats().reserved_bytes > 0); /* the block that is still allocated */
    host_check();
    assert_ok(fallow_host_free_idle(bed.host, kept));
    assert_ok(fallow_host_trim(bed.host, 0, 0, &released));
    assert_int_equal(host_stats().reserved_bytes, 0);
    host_end();
}

TEST(trim_keeps_what_it_was_asked_to)
{
    void *block[8];
    host_begin();
    for (unsigned i = 0; i < 8; i++) {
        block[i] = host_alloc(8 * MIB);
    }
    for (unsigned i = 0; i < 8; i++) {
        assert_ok(fallow_host_free_idle(bed.host, block[i]));
    }
    assert_ok(fallow_host_trim(bed.host, 30 * MIB, 0, NULL));
    assert_int_equal(host_stats().reserved_bytes, 24 * MIB);
    host_end();
}

/* ---- misuse */

TEST(other_pointers_are_answered)
{
    int local = 0;
    char *small, *large;
    host_begin();
    small = host_alloc(100);
    large = host_alloc(1 * MIB);
    assert_int_equal(fallow_host_free(bed.host, small + 64, bed.stream), FALLOW_INVALID_POINTER);
    assert_int_equal(fallow_host_free(bed.host, large + 4096, bed.stream), FALLOW_INVALID_POINTER);
    assert_int_equal(fallow_host_free(bed.host, &local, bed.stream), FALLOW_INVALID_POINTER);
    assert_int_equal(fallow_host_free_idle(bed.host, &local), FALLOW_INVALID_POINTER);
    assert_int_equal(fallow_host_record_use(bed.host, &local, bed.stream), FALLOW_INVALID_POINTER);
    assert_true(host_says("no live block"));
    host_free(small, bed.stream);
    assert_int_equal(fallow_host_free(bed.host, small, bed.stream), FALLOW_INVALID_POINTER);
    assert_ok(fallow_host_free_idle(bed.host, large));
    assert_int_equal(fallow_host_free_idle(bed.host, large), FALLOW_INVALID_POINTER);
    assert_ok(fallow_host_free(bed.host, NULL, bed.stream));
    assert_int_equal(host_stats().misuse_count, 7);
    host_end();
}

TEST(absurd_arguments_are_refused)
{
    void *block = &bed;
    fallow_host *none = NULL;
    host_begin();
    assert_ok(fallow_host_alloc(bed.host, 0, &block));
    assert_null(block);
    assert_int_equal(fallow_host_alloc(bed.host, SIZE_MAX, &block), FALLOW_INVALID_ARGUMENT);
    assert_int_equal(fallow_host_alloc(bed.host, 10, NULL), FALLOW_INVALID_ARGUMENT);
    fallow_host_config config = host_config();
    config.placement = (fallow_host_placement)7;
    assert_int_equal(fallow_host_create(bed.pool, &config, &none), FALLOW_INVALID_ARGUMENT);
    config = host_config();
    config.struct_size = 1;
    assert_int_equal(fallow_host_create(bed.pool, &config, &none), FALLOW_VERSION);
    config = host_config();
    assert_int_equal(fallow_host_create(NULL, &config, &none), FALLOW_INVALID_POOL);
    assert_non_null(strstr(bed.log, "create the host pool before that"));
    assert_null(none);
    fallow_host *dead = bed.host;
    fallow_host_destroy(dead);
    fallow_host_destroy(dead);
    bed.host = NULL;
    assert_int_equal(fallow_host_alloc(dead, 10, &block), FALLOW_INVALID_POOL);
    assert_int_equal(fallow_host_free(dead, &block, NULL), FALLOW_INVALID_POOL);
    host_end();
}

TEST(live_blocks_are_reported_at_the_end)
{
    host_begin();
    (void)host_alloc(1000);
    (void)host_alloc(1 * MIB);
    fallow_host_destroy(bed.host);
    bed.host = NULL;
    assert_non_null(strstr(bed.log, "2 blocks of 1049576 bytes"));
    host_end();
}

/* ---- places */

TEST(memory_bound_to_a_node_is_registered)
{
    host_begin_world(NULL);
    fallow_host_config config = host_config();
    config.placement = FALLOW_HOST_ON_NODE;
    config.numa_node = 0;
    if (fallow_host_create(bed.pool, &config, &bed.host) == FALLOW_NOT_SUPPORTED) {
        print_message("this machine does not let a process bind memory: %s\n", bed.log);
        assert_non_null(strstr(bed.log, "CAP_SYS_NICE"));
        host_end();
        skip();
    }
    unsigned char *block = host_alloc(1 * MIB);
    memset(block, 0x21, 1 * MIB);
    assert_int_equal(host_stats().bound_bytes, host_stats().reserved_bytes);
    assert_int_equal(host_stats().numa_node, 0);
    assert_int_equal(bed.sim.call_count("cuMemHostAlloc"), 0);
    host_copy(block, 1 * MIB, bed.stream);
    host_free(block, bed.stream);
    assert_int_equal(host_read_back(MIB - 1, bed.stream), 0x21);
    host_check();
    assert_ok(fallow_host_trim(bed.host, 0, UINT64_MAX, NULL));
    assert_int_equal(host_stats().reserved_bytes, 0);
    assert_int_equal(host_stats().bound_bytes, 0);
    host_end();
}

TEST(a_node_that_is_not_there_is_refused)
{
    host_begin_world(NULL);
    fallow_host_config config = host_config();
    config.placement = FALLOW_HOST_ON_NODE;
    config.numa_node = 1000;
    assert_int_equal(fallow_host_create(bed.pool, &config, &bed.host), FALLOW_NOT_SUPPORTED);
    assert_non_null(strstr(bed.log, "NUMA node 1000"));
    host_end();
}

/* ---- fork, exit */

TEST(a_forked_child_has_no_pools)
{
    host_begin();
    void *block = host_alloc(1 * MIB);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        void *mine = NULL;
        bool is_refused = fallow_host_alloc(bed.host, 10, &mine) == FALLOW_INVALID_POOL &&
                          fallow_host_free(bed.host, block, bed.stream) == FALLOW_INVALID_POOL &&
                          fallow_host_poll(bed.host) == FALLOW_INVALID_POOL;
        fallow_host_destroy(bed.host);
        bed.host = NULL;
        free(malloc(1000));
        _exit(is_refused ? 7 : 1);
    }
    assert_int_equal(exit_code_of(child), 7);
    host_free(block, bed.stream); /* the parent continues */
    host_end();
}

TEST(a_context_that_is_gone_ends_in_device_lost)
{
    CUcontext context = NULL;
    void *block = NULL;
    host_begin_world(NULL);
    fallow_pool *pool = NULL;
    assert_ok(bed.sim.cu.cuCtxCreate_v2(&context, 0, 0));
    fallow_pool_config config = {.struct_size = sizeof config, .driver = "sim", .context = context};
    assert_ok(fallow_pool_create(&config, &pool));
    assert_ok(fallow_host_create(pool, NULL, &bed.host));
    void *held = host_alloc(1 * MIB);
    assert_ok(bed.sim.cu.cuCtxDestroy_v2(context));
    assert_int_equal(fallow_host_alloc(bed.host, 64 * MIB, &block), FALLOW_DEVICE_LOST);
    assert_true(host_says("destroy the host pool and create another"));
    assert_ok(fallow_host_free(bed.host, held, NULL));
    fallow_host_destroy(bed.host);
    bed.host = NULL;
    fallow_pool_abandon(pool);
    host_end();
}

TEST(errno_is_the_callers)
{
    host_begin();
    errno = 1234;
    void *block = host_alloc(50 * MIB);
    host_free(block, bed.stream);
    assert_int_equal(errno, 1234);
    host_end();
}

FLW_TEST_MAIN(NULL, NULL)

/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: tests of libfallow-host where the driver does not answer: contexts that end, host functions;
 * of threads that end; and of free runs that are hard to find. On a held world.
 */
#include "test_host.h"

#include <pthread.h>
#include <semaphore.h>

static CUcontext begin_context(CUstream *out_stream)
{
    CUcontext context = NULL, popped = NULL;
    assert_ok(bed.sim.cu.cuCtxCreate_v2(&context, 0, 0));
    assert_ok(bed.sim.cu.cuStreamCreate(out_stream, CU_STREAM_NON_BLOCKING));
    assert_ok(bed.sim.cu.cuCtxPopCurrent_v2(&popped));
    return context;
}

static void use_in(CUcontext context, CUstream stream, void *block, size_t bytes)
{
    CUcontext popped = NULL;
    flw_sim_range range = {.address = (uintptr_t)block, .bytes = bytes};
    assert_ok(bed.sim.cu.cuCtxPushCurrent_v2(context));
    assert_int_equal(bed.sim.touch(stream, &range, 1), 0);
    assert_ok(bed.sim.cu.cuCtxPopCurrent_v2(&popped));
}

/* With events recorded, with none, with the stream retired. */
TEST(the_end_of_another_context_completes_its_work)
{
    for (unsigned i = 0; i < 4; i++) {
        CUstream foreign = NULL;
        host_begin();
        CUcontext context = begin_context(&foreign);
        void *block = host_alloc(1 * MIB);
        use_in(context, foreign, block, 1 * MIB);
        if (i == 1) { /* the free is not enough for an event */
            assert_ok(fallow_host_free_idle(bed.host, block));
            block = host_alloc(1000);
        }
        host_free(block, foreign);
        if (i >= 2) {
            assert_ok(fallow_host_poll(bed.host));
            assert_int_equal(host_stats().deferred_bytes, 1 * MIB);
        }
        if (i == 3) {
            assert_ok(fallow_host_stream_retire(bed.host, foreign));
        }
        assert_ok(bed.sim.cu.cuCtxDestroy_v2(context));
        assert_ok(fallow_host_trim(bed.host, SIZE_MAX, UINT64_MAX, NULL));
        assert_int_equal(host_stats().deferred_bytes, 0);
        host_check();
        if (i < 3) { /* a new stream with the handle would be mistaken for it, and be lost */
            host_end();
            continue;
        }
        CUcontext heir = begin_context(&foreign);
        block = host_alloc(1 * MIB);
        use_in(heir, foreign, block, 1 * MIB);
        host_free(block, foreign);
        assert_ok(fallow_host_stream_retire(bed.host, foreign));
        assert_int_equal(host_stats().deferred_bytes, 1 * MIB);
        bed.sim.step(UINT64_MAX);
        assert_ok(fallow_host_poll(bed.host));
        assert_int_equal(host_stats().deferred_bytes, 0);
        fallow_host_destroy(bed.host);
        bed.host = NULL;
        assert_ok(bed.sim.cu.cuCtxDestroy_v2(heir));
        host_end();
    }
}

/* A stream destroyed with the context without a retire, and a stream of another context with the
 * handle: a free on it may mean either. */
TEST(a_handle_that_another_context_has_now_waits_for_that_too)
{
    CUstream foreign = NULL, heir = NULL;
    CUcontext popped = NULL;
    CUdeviceptr device = 0;
    unsigned char byte = 0;
    host_begin();
    CUcontext old = begin_context(&foreign);
    void *block = host_alloc(1000);
    use_in(old, foreign, block, 1000);
    host_free(block, foreign);
    assert_ok(bed.sim.cu.cuCtxDestroy_v2(old));
    CUcontext context = begin_context(&heir), other = NULL;
    if (context == old) { /* not the one with the context's handle */
        other = context;
        assert_ok(bed.sim.cu.cuCtxPushCurrent_v2(other));
        assert_ok(bed.sim.cu.cuStreamDestroy_v2(heir));
        assert_ok(bed.sim.cu.cuCtxPopCurrent_v2(&popped));
        context = begin_context(&heir);
    }
    assert_ptr_equal(heir, foreign);
    assert_ptr_not_equal(context, old);
    unsigned char *bytes = host_alloc(2000);
    memset(bytes, 0x5a, 2000);
    assert_ok(bed.sim.cu.cuCtxPushCurrent_v2(context));
    assert_ok(bed.sim.cu.cuMemAlloc_v2(&device, MIB));
    assert_ok(bed.sim.cu.cuMemcpyHtoDAsync_v2(device, bytes, 2000, heir));
    assert_ok(bed.sim.cu.cuCtxPopCurrent_v2(&popped));
    host_free(bytes, heir);
    assert_ok(fallow_host_trim(bed.host, SIZE_MAX, UINT64_MAX, NULL));
    memset(bytes, 0, 2000); /* anybody's */
    assert_ok(bed.sim.cu.cuCtxPushCurrent_v2(context));
    assert_ok(bed.sim.cu.cuStreamSynchronize(heir));
    assert_ok(bed.sim.cu.cuMemcpyDtoH_v2(&byte, device + 1999, 1));
    assert_ok(bed.sim.cu.cuMemFree_v2(device));
    assert_ok(bed.sim.cu.cuCtxPopCurrent_v2(&popped));
    assert_int_equal(byte, 0x5a);
    host_check();
    fallow_host_destroy(bed.host);
    bed.host = NULL;
    assert_ok(bed.sim.cu.cuCtxDestroy_v2(context));
    if (other != NULL) {
        assert_ok(bed.sim.cu.cuCtxDestroy_v2(other));
    }
    host_end();
}

/* too little for an event of its own */
#define SMALL_BYTES (512 * KIB)

struct attempt {
    fallow_host *host;
    fallow_status status;
    void *block;
};

static void CUDA_CB try_to_allocate(void *context)
{
    struct attempt *attempt = context;
    attempt->status = fallow_host_alloc(attempt->host, SMALL_BYTES, &attempt->block);
}

TEST(a_host_function_gets_nothing_that_is_in_use)
{
    host_begin_world(NULL);
    fallow_host_config config = host_config();
    config.limit_bytes = SMALL_BYTES;
    config.wait_ms = 20;
    host_create(&config);
    void *block = host_alloc(SMALL_BYTES);
    memset(block, 0x5a, SMALL_BYTES);
    host_copy(block, SMALL_BYTES, bed.stream);
    host_free(block, bed.stream);
    struct attempt attempt = {.host = bed.host};
    assert_ok(bed.sim.cu.cuLaunchHostFunc(bed.other, try_to_allocate, &attempt));
    assert_ok(bed.sim.cu.cuStreamSynchronize(bed.other));
    assert_int_equal(attempt.status, FALLOW_OUT_OF_PINNED_MEMORY);
    assert_null(attempt.block);
    assert_int_equal(host_stats().lost_streams, 0);
    assert_int_equal(host_stats().deferred_bytes, SMALL_BYTES);
    host_check();
    assert_ok(fallow_host_poll(bed.host)); /* records, from here */
    bed.sim.step(UINT64_MAX);
    assert_int_equal(host_read_back(SMALL_BYTES - 1, bed.stream), 0x5a);
    block = host_alloc(SMALL_BYTES);
    assert_ok(fallow_host_free_idle(bed.host, block));
    host_end();
}

/* Two threads, one after the other, that the system gives the same number; a third waits between. */
struct relay {
    CUcontext context;
    void *held;
    sem_t first_is_ready, first_may_go_on, first_is_done, second_may_begin, second_is_done;
    pthread_t first, second;
    fallow_status status;
    uint64_t deferred_bytes; /* seen by the second thread */
};

static void CUDA_CB pause_for_first(void *context)
{
    struct relay *relay = context;
    sem_post(&relay->first_may_go_on);
    sem_wait(&relay->first_is_done);
}

static void CUDA_CB pause_for_second(void *context)
{
    struct relay *relay = context;
    sem_post(&relay->second_may_begin);
    sem_wait(&relay->second_is_done);
}

/* The second free finds the stream in the hands of the thread that waits: no event is recorded. */
static void *free_and_end(void *context)
{
    struct relay *relay = context;
    relay->first = pthread_self();
    (void)bed.sim.cu.cuCtxSetCurrent(relay->context);
    void *block = host_alloc(1 * MIB);
    relay->held = host_alloc(100 * KIB);
    (void)bed.sim.cu.cuLaunchHostFunc(CU_STREAM_PER_THREAD, pause_for_first, relay);
    (void)fallow_host_free(bed.host, block, CU_STREAM_PER_THREAD);
    sem_post(&relay->first_is_ready);
    sem_wait(&relay->first_may_go_on);
    (void)bed.sim.cu.cuMemcpyHtoDAsync_v2(bed.device, relay->held, 100 * KIB, CU_STREAM_PER_THREAD);
    (void)fallow_host_free(bed.host, relay->held, CU_STREAM_PER_THREAD);
    sem_post(&relay->first_is_done);
    return NULL;
}

static void *follow(void *context)
{
    struct relay *relay = context;
    relay->second = pthread_self();
    (void)bed.sim.cu.cuCtxSetCurrent(relay->context);
    void *block = host_alloc(64 * KIB);
    (void)fallow_host_free(bed.host, block, CU_STREAM_PER_THREAD);
    (void)bed.sim.cu.cuStreamSynchronize(CU_STREAM_PER_THREAD);
    relay->status = fallow_host_poll(bed.host);
    relay->deferred_bytes = host_stats().deferred_bytes;
    return NULL;
}

static void *wait_for_all(void *context)
{
    (void)context;
    return (void *)(uintptr_t)fallow_host_trim(bed.host, SIZE_MAX, UINT64_MAX, NULL);
}

TEST(a_new_thread_does_not_answer_for_one_that_has_ended)
{
    static struct relay relay;
    pthread_t first, second, waiter;
    sem_t *signals[] = {&relay.first_is_ready, &relay.first_may_go_on, &relay.first_is_done,
                        &relay.second_may_begin, &relay.second_is_done};
    for (unsigned i = 0; i < sizeof signals / sizeof *signals; i++) {
        assert_int_equal(sem_init(signals[i], 0, 0), 0);
    }
    host_begin();
    assert_ok(bed.sim.cu.cuCtxGetCurrent(&relay.context));
    void *block = host_alloc(2 * MIB); /* of the stream that is polled last */
    assert_ok(bed.sim.cu.cuLaunchHostFunc(bed.other, pause_for_second, &relay));
    host_free(block, bed.other);
    assert_int_equal(pthread_create(&first, NULL, free_and_end, &relay), 0);
    sem_wait(&relay.first_is_ready);
    assert_int_equal(pthread_create(&waiter, NULL, wait_for_all, &relay), 0);
    assert_int_equal(pthread_join(first, NULL), 0);
    sem_wait(&relay.second_may_begin);
    assert_int_equal(pthread_create(&second, NULL, follow, &relay), 0);
    assert_int_equal(pthread_join(second, NULL), 0);
    sem_post(&relay.second_is_done);
    assert_int_equal(pthread_join(waiter, NULL), 0);
    if (!pthread_equal(relay.first, relay.second)) {
        print_message("the threads had numbers of their own: nothing was shown\n");
    }
    assert_ok(relay.status);
    assert_int_equal(relay.deferred_bytes, 2 * MIB + 100 * KIB);
    assert_int_equal(host_stats().deferred_bytes, 0);
    host_end();
}

/* Free runs of 33 pages and one of 40 are in one bin; only the latter has room for 38 pages. */
TEST(short_runs_do_not_hide_one_that_fits)
{
    enum {
        SHORT = 200
    };
    void *shorts[SHORT], *large;
    for (unsigned pages = 39; pages <= 70; pages += 31) { /* in the same bin, in a later one */
        host_begin_world(NULL);
        fallow_host_config config = host_config();
        config.slack_percent = UINT32_MAX;
        config.limit_bytes = 64 * MIB;
        host_create(&config);
        large = host_alloc((size_t)pages * 4096);
        for (unsigned i = 0; i < SHORT; i++) {
            (void)host_alloc(17 * 4096); /* a post, of the same kind of chunk */
            shorts[i] = host_alloc((size_t)33 * 4096);
        }
        void *rest[4096];
        unsigned count = 0;
        while (count < 4096 && fallow_host_alloc(bed.host, 17 * 4096, &rest[count]) == FALLOW_OK) {
            count++;
        }
        assert_true(count < 4096);
        assert_ok(fallow_host_free_idle(bed.host, large));
        for (unsigned i = 0; i < SHORT; i++) {
            assert_ok(fallow_host_free_idle(bed.host, shorts[i]));
        }
        (void)host_alloc((size_t)38 * 4096);
        host_end();
    }
}

/* Small blocks have separate chunks only while the limit leaves room. A small block takes at most a page. */
TEST(small_blocks_take_pages_of_larger_ones_at_the_limit)
{
    static const size_t sizes[] = {700, 5 * 4096};
    for (size_t i = 0; i < 2; i++) {
        void *larger[300], *small = NULL;
        unsigned count = 0, small_count = 0;
        size_t most_taken = sizes[i] < 4096 ? 4096 : sizes[i];
        host_begin();
        while (fallow_host_alloc(bed.host, 1 * MIB, &larger[count]) == FALLOW_OK) {
            count++;
        }
        for (unsigned k = 0; k < count; k += 2) {
            assert_ok(fallow_host_free_idle(bed.host, larger[k]));
        }
        while (small_count * most_taken < count / 2 * MIB / 8 * 7 &&
               fallow_host_alloc(bed.host, sizes[i], &small) == FALLOW_OK) {
            small_count++;
        }
        assert_true(small_count * most_taken >= count / 2 * MIB / 8 * 7);
        host_end();
    }
}

/* Many small blocks share one driver call, even if each takes a page (host.h). */
TEST(small_blocks_are_pinned_many_at_a_time)
{
    host_begin();
    for (unsigned i = 0; i < 16000; i++) {
        (void)host_alloc(700);
    }
    assert_in_range(host_stats().grow_count, 1, 50);
    host_end();
}

TEST(a_destroyed_host_pool_stays_refused_after_hundreds_of_others)
{
    fallow_host_stats stats;
    void *ptr = NULL;
    host_begin();
    fallow_host_stats_init(&stats);
    fallow_host *first = bed.host;
    fallow_host_destroy(first);
    for (unsigned i = 0; i < 300; i++) {
        fallow_host_config config = host_config();
        host_create(&config);
        assert_int_equal(fallow_host_alloc(first, 5000, &ptr), FALLOW_INVALID_POOL);
        assert_int_equal(fallow_host_get_stats(first, &stats), FALLOW_INVALID_POOL);
        fallow_host_destroy(first);
        assert_ok(fallow_host_get_stats(bed.host, &stats));
        fallow_host_destroy(bed.host);
        bed.host = NULL;
    }
    bed.host = NULL;
    host_end();
}

FLW_TEST_MAIN(NULL, NULL)

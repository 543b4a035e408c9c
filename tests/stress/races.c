/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: races between threads on one pool, each with one outcome that is right.
 *
 *   races misuse|capture|handle|wild [--rounds N] [--seed N]
 *
 * misuse   Two threads free one pointer at the same instant. One succeeds, the other gets
 *          INVALID_POINTER, and nothing changes twice.
 * capture  Threads allocate and free on streams while another begins, ends and releases captures
 *          on them. No two live blocks share a byte.
 * handle   One thread begins, joins, ends and releases captures; others pass the current handle and
 *          old ones to every call that takes one. Another thread's capture continues undisturbed.
 * wild     One thread frees pointers that are no block's while another makes slabs and runs and
 *          dissolves them. Each is refused. The maker allocates by request, past its cache: the
 *          cache's lock would order the two threads for ThreadSanitizer. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/random.h"
#include "support/overlap.h"
#include "support/sim.h"
#include "support/trim.h"

#include "fallow/fallow.h"

#define STREAMS 5
#define MOST    1000 /* rounds, as a multiple, on a busy machine */

static struct race {
    const char *name;
    struct flw_sim sim;
    CUcontext context;
    CUstream streams[STREAMS];
    fallow_pool *pool;
    struct flw_overlap *live;
    uint64_t rounds, seed;
    atomic_bool is_over;
    atomic_uint round;
} race;

static void require(bool is_so, const char *what)
{
    if (!is_so) {
        fprintf(stderr, "%s race: %s (--seed %llu)\n", race.name, what,
                (unsigned long long)race.seed);
        exit(1);
    }
}

/* The call succeeds: a status or result of 0. */
#define GOOD(call) require((int)(call) == 0, #call)

/* True if the status is OK, or one of two others. */
static bool is_one_of(fallow_status status, fallow_status one, fallow_status other)
{
    return status == FALLOW_OK || status == one || status == other;
}

struct thread {
    pthread_t thread;
    void (*run)(unsigned index);
    unsigned index;
};

static void *run_thread(void *argument)
{
    struct thread *thread = argument;
    GOOD(race.sim.cu.cuCtxSetCurrent(race.context));
    thread->run(thread->index);
    return NULL;
}

static void start(struct thread *thread, void (*run)(unsigned index), unsigned index)
{
    *thread = (struct thread){.run = run, .index = index};
    GOOD(pthread_create(&thread->thread, NULL, run_thread, thread));
}

static void join(const struct thread *thread)
{
    pthread_join(thread->thread, NULL);
}

static void make_pool(void)
{
    fallow_pool_config config;
    fallow_pool_config_init(&config);
    config.driver = "sim";
    config.limit_bytes = 8ull << 30; /* a capture takes no memory that a stream still orders */
    GOOD(fallow_pool_create(&config, &race.pool));
    for (unsigned i = 0; i < STREAMS; i++) {
        GOOD(race.sim.cu.cuStreamCreate(&race.streams[i], CU_STREAM_NON_BLOCKING));
    }
    atomic_store(&race.is_over, false);
}

/* Check that nothing is left, and destroy the pool. Returns its last statistics. */
static fallow_stats end_pool(void)
{
    fallow_stats stats;
    fallow_stats_init(&stats);
    GOOD(fallow_pool_validate(race.pool));
    GOOD(fallow_pool_get_stats(race.pool, &stats));
    require(stats.live_count == 0 && stats.requested_bytes == 0 && stats.captured_bytes == 0,
            "something is left allocated or captured");
    fallow_pool_destroy(race.pool);
    flw_sim_ledger ledger = flw_sim_read_ledger(&race.sim);
    require(ledger.given_bytes == 0 && ledger.event_count == 0, "the device has something left");
    for (unsigned i = 0; i < STREAMS; i++) {
        GOOD(race.sim.cu.cuStreamDestroy_v2(race.streams[i]));
    }
    return stats;
}

/* ---- misuse ---- */

static struct {
    _Atomic(void *) ptr;
    atomic_uint arrived, done; /* a spin barrier: nobody sleeps just before the free */
    atomic_uint ok_count, refused_count;
} misuse;

static void spin_until(atomic_uint *counter, unsigned value)
{
    for (unsigned spins = 1; atomic_load_explicit(counter, memory_order_acquire) < value; spins++) {
        if (spins % 2000 == 0) { /* there may be fewer cores than threads */
            sched_yield();
        }
    }
}

static void free_together(unsigned stream, unsigned round)
{
    void *ptr = atomic_load(&misuse.ptr);
    atomic_fetch_add(&misuse.arrived, 1);
    spin_until(&misuse.arrived, 2 * round);
    fallow_status status = fallow_free(race.pool, ptr, race.streams[stream]);
    require(is_one_of(status, FALLOW_INVALID_POINTER, FALLOW_OK), "another status");
    atomic_fetch_add(status == FALLOW_OK ? &misuse.ok_count : &misuse.refused_count, 1);
    atomic_fetch_add(&misuse.done, 1);
}

static void free_along(unsigned stream)
{
    for (unsigned round = 1; round <= race.rounds; round++) {
        spin_until(&race.round, round);
        free_together(stream, round);
    }
}

static void run_misuse(void)
{
    static const size_t sizes[] = {100, 4096, 60000, 1 << 20, 3 << 20};
    struct thread other;
    start(&other, free_along, 1);
    for (unsigned round = 1; round <= race.rounds; round++) {
        void *ptr = NULL;
        GOOD(fallow_alloc(race.pool, sizes[round % (sizeof sizes / sizeof *sizes)], race.streams[0],
                          &ptr));
        atomic_store(&misuse.ptr, ptr);
        atomic_store(&race.round, round);
        free_together(0, round);
        spin_until(&misuse.done, 2 * round);
        require(atomic_load(&misuse.ok_count) == round, "not one of two frees succeeded");
    }
    join(&other);
    fallow_stats stats = end_pool();
    require(atomic_load(&misuse.refused_count) == race.rounds && stats.free_count == race.rounds &&
                stats.misuse_count == race.rounds,
            "the statistics count other frees");
}

/* ---- capture ---- */

#define HELD 16

static atomic_uint_least64_t captured_count;

struct held {
    void *ptr;
    size_t bytes;
};

static void free_held(struct held *held, unsigned stream)
{
    if (held->ptr != NULL) {
        flw_overlap_release(race.live, (uint64_t)(uintptr_t)held->ptr, held->bytes);
        GOOD(fallow_free(race.pool, held->ptr, race.streams[stream]));
        held->ptr = NULL;
    }
}

static void allocate_and_free(unsigned stream)
{
    static const size_t sizes[] = {300, 5000, 60000, 900000, 3 << 20};
    struct held held[HELD] = {{NULL, 0}};
    uint64_t state = race.seed + stream;
    fallow_block info;
    fallow_block_init(&info);
    while (!atomic_load(&race.is_over)) {
        uint64_t random = flw_random_next(&state);
        struct held *one = &held[random % HELD];
        free_held(one, stream);
        one->bytes = sizes[(random >> 8) % (sizeof sizes / sizeof *sizes)];
        GOOD(fallow_alloc(race.pool, one->bytes, race.streams[stream], &one->ptr));
        require(flw_overlap_claim(race.live, (uint64_t)(uintptr_t)one->ptr, one->bytes),
                "two blocks overlap");
        GOOD(fallow_block_info(race.pool, one->ptr, &info));
        require(info.requested_bytes == one->bytes, "a block is another's");
        atomic_fetch_add(&captured_count, info.state == FALLOW_BLOCK_CAPTURED);
    }
    for (unsigned i = 0; i < HELD; i++) {
        free_held(&held[i], stream);
    }
}

static void pause_a_while(uint64_t *state)
{
    for (uint64_t i = flw_random_next(state) % 8; i > 0; i--) {
        sched_yield();
    }
}

static void run_capture(void)
{
    struct thread threads[2];
    uint64_t state = race.seed, round = 0;
    for (unsigned i = 0; i < 2; i++) {
        start(&threads[i], allocate_and_free, i);
    }
    for (;
         round < race.rounds || (atomic_load(&captured_count) < 100 && round < race.rounds * MOST);
         round++) {
        fallow_capture *capture = NULL;
        GOOD(fallow_capture_begin(race.pool, race.streams[0], &capture));
        GOOD(fallow_capture_join(capture, race.streams[1]));
        pause_a_while(&state);
        GOOD(fallow_capture_end(capture));
        GOOD(fallow_capture_release(capture));
        pause_a_while(&state);
    }
    atomic_store(&race.is_over, true);
    join(&threads[0]);
    join(&threads[1]);
    require(atomic_load(&captured_count) >= 100, "too few allocations met a capture");
    (void)end_pool();
}

/* ---- handle ---- */

#define REMEMBERED 64 /* handles that a stranger keeps */
#define ALLOCATES  64 /* one of this many captures allocates, because the memory returns late */

static fallow_capture *_Atomic present;
static atomic_uint joined_count, refused_count;

static void allocate_captured(unsigned stream, bool is_certain)
{
    void *ptr = NULL;
    fallow_block info;
    fallow_block_init(&info);
    GOOD(fallow_alloc(race.pool, 5000, race.streams[stream], &ptr));
    GOOD(fallow_block_info(race.pool, ptr, &info));
    require(!is_certain || info.state == FALLOW_BLOCK_CAPTURED, "a stranger ended the capture");
    GOOD(fallow_free(race.pool, ptr, race.streams[stream]));
}

static void own_captures(unsigned stream)
{
    for (unsigned i = 0;
         i < race.rounds || (atomic_load(&joined_count) < 20 && i < race.rounds * 20); i++) {
        fallow_capture *capture = NULL;
        atomic_store(&race.round, i);
        GOOD(fallow_capture_begin(race.pool, race.streams[stream], &capture));
        atomic_store(&present, capture);
        if (i % 8 == 0) {
            sched_yield();
        }
        require(is_one_of(fallow_capture_join(capture, race.streams[1]), FALLOW_INVALID_CAPTURE,
                          FALLOW_OK),
                "the owner's join");
        if (i % ALLOCATES == 0) {
            allocate_captured(stream, false);
        }
        require(is_one_of(fallow_capture_end(capture), FALLOW_INVALID_CAPTURE, FALLOW_OK),
                "the owner's end");
        require(is_one_of(fallow_capture_release(capture), FALLOW_INVALID_CAPTURE, FALLOW_OK),
                "the owner's release");
    }
    atomic_store(&race.is_over, true);
}

static void interfere(unsigned stream)
{
    fallow_capture *remembered[REMEMBERED] = {NULL};
    for (unsigned i = 0; !atomic_load(&race.is_over); i++) {
        fallow_capture *now = atomic_load(&present), *old = remembered[i % REMEMBERED];
        fallow_status status = fallow_capture_join(now, race.streams[stream]);
        require(is_one_of(status, FALLOW_INVALID_CAPTURE, FALLOW_BUSY), "a stranger's join");
        atomic_fetch_add(&joined_count, status == FALLOW_OK);
        if (i % 4 == 0) {
            status = fallow_capture_end(now);
            require(is_one_of(status, FALLOW_INVALID_CAPTURE, FALLOW_OK), "a stranger's end");
        }
        if (old != NULL && old != now) {
            require(fallow_capture_end(old) != FALLOW_BUSY, "an old handle's end");
            status = fallow_capture_release(old);
            require(is_one_of(status, FALLOW_INVALID_CAPTURE, FALLOW_BUSY),
                    "an old handle's release");
            atomic_fetch_add(&refused_count, status == FALLOW_INVALID_CAPTURE);
        }
        unsigned turn = atomic_load(&race.round) / ALLOCATES;
        if (turn < REMEMBERED && remembered[turn] == NULL) {
            remembered[turn] = now; /* kept for the whole race */
        }
    }
}

static void keep_one_open(unsigned stream)
{
    for (unsigned i = 0; !atomic_load(&race.is_over); i++) {
        fallow_capture *capture = NULL;
        GOOD(fallow_capture_begin(race.pool, race.streams[stream], &capture));
        allocate_captured(stream, true);
        while (!atomic_load(&race.is_over) && atomic_load(&race.round) / ALLOCATES <= i) {
            sched_yield();
        }
        GOOD(fallow_capture_end(capture));
        GOOD(fallow_capture_release(capture));
    }
}

static void run_handle(void)
{
    void (*const runs[])(unsigned stream) = {own_captures, keep_one_open, interfere, interfere};
    static const unsigned streams[] = {0, 2, 3, 4};
    struct thread threads[4];
    for (unsigned i = 0; i < 4; i++) {
        start(&threads[i], runs[i], streams[i]);
    }
    for (unsigned i = 0; i < 4; i++) {
        join(&threads[i]);
    }
    require(atomic_load(&joined_count) >= 20 && atomic_load(&refused_count) > 0,
            "the strangers met no capture");
    (void)end_pool();
}

/* ---- wild ---- */

#define BLOCKS 600

static _Atomic(unsigned char *) last; /* relaxed: it must not order anything */
static uint64_t wild_count;

static void intrude(unsigned stream)
{
    void *own = NULL;
    uint64_t state = race.seed ^ 1;
    /* A cache of its own, so that the frees below are candidates for hits. */
    GOOD(fallow_alloc(race.pool, 100, race.streams[stream], &own));
    GOOD(fallow_free(race.pool, own, race.streams[stream]));
    while (!atomic_load_explicit(&race.is_over, memory_order_relaxed)) {
        uint64_t r = flw_random_next(&state);
        unsigned char *near = atomic_load_explicit(&last, memory_order_relaxed);
        void *odd = near + (r % 2 == 0 ? r % (64 * FLW_KIB) : r % (64 * FLW_MIB)) / 2 * 2 + 1;
        GOOD(fallow_free(race.pool, NULL, race.streams[stream]));
        require(fallow_free(race.pool, odd, race.streams[stream]) == FALLOW_INVALID_POINTER &&
                    fallow_free_sized(race.pool, odd, 512, race.streams[stream]) ==
                        FALLOW_INVALID_POINTER,
                "a wild pointer was freed");
        wild_count += 2;
    }
}

/* Make many slabs and a few runs; then their memory returns to the device. */
static void make_and_dissolve(uint64_t *state)
{
    static void *blocks[BLOCKS];
    fallow_request request;
    fallow_request_init(&request);
    for (unsigned i = 0; i < BLOCKS; i++) {
        uint64_t most = (2u << 20) >> flw_random_next(state) % 14;
        request.size_bytes = 1 + flw_random_next(state) % most;
        GOOD(fallow_alloc_request(race.pool, &request, race.streams[0], &blocks[i]));
        atomic_store_explicit(&last, blocks[i], memory_order_relaxed);
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        GOOD(fallow_free(race.pool, blocks[i], race.streams[0]));
    }
    GOOD(flw_test_trim(race.pool, 0));
}

static void run_wild(void)
{
    uint64_t state = race.seed;
    for (uint64_t i = 0; i < race.rounds; i++) {
        struct thread thread;
        if (i > 0) {
            make_pool();
        }
        wild_count = 0;
        atomic_store(&last, NULL);
        start(&thread, intrude, 1);
        for (unsigned k = 0; k < 3; k++) {
            make_and_dissolve(&state);
        }
        atomic_store_explicit(&race.is_over, true, memory_order_relaxed);
        join(&thread);
        require(end_pool().misuse_count == wild_count, "the statistics count other frees");
    }
}

int main(int count, char **words)
{
    static const struct {
        const char *name;
        void (*run)(void);
        uint64_t rounds;
    } races[] = {{"misuse", run_misuse, 20000},
                 {"capture", run_capture, 400},
                 {"handle", run_handle, 12000}, /* the places of captures are reused some times */
                 {"wild", run_wild, 10}};
    size_t i = 0;
    while (i < 4 && (count < 2 || strcmp(words[1], races[i].name) != 0)) {
        i++;
    }
    if (i == 4) {
        fprintf(stderr, "usage: races misuse|capture|handle|wild [--rounds N] [--seed N]\n");
        return 2;
    }
    race.name = races[i].name;
    race.rounds = races[i].rounds;
    race.seed = 1;
    for (int w = 2; w + 1 < count; w += 2) {
        *(strcmp(words[w], "--seed") == 0 ? &race.seed : &race.rounds) =
            strtoull(words[w + 1], NULL, 0);
    }
    race.live = flw_overlap_create();
    require(race.live != NULL && flw_sim_open(&race.sim), "no simulated device");
    race.context = flw_sim_begin(&race.sim, NULL);
    make_pool();
    races[i].run();
    printf("%s race: %llu rounds, seed %llu\n", race.name, (unsigned long long)race.rounds,
           (unsigned long long)race.seed);
    flw_overlap_destroy(race.live);
    flw_sim_close(&race.sim);
    return 0;
}

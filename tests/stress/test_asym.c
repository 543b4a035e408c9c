/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the stress of the asymmetric lock as shipped: owners that execute two plain stores, and
 * drainers that lock their caches with a real membarrier, as heap/caches/tcache.c does.
 * Does not: run the variant without the barrier: its failure would be undefined behaviour;
 * tests/check/asym_model.c finds it by search.
 *
 * Each cache holds plain counters. The owner increments all of them in turn; a drainer must find
 * them equal, adds them to a total and clears them. At the end every increment was counted exactly
 * once. */
#include "support/test.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "base/asym.h"
#include "base/lock.h"

#define OWNERS   2
#define DRAINERS 2
#define WORDS    8
#define SEIZES   60000

struct cache {
    _Alignas(128) struct flw_asym asym;
    const void *key; /* open_key or poison */
    uint64_t words[WORDS];
    bool is_inside; /* somebody is at work */
    struct flw_lock lock;
    uint64_t drained, torn, overlaps; /* under the lock, or by the owner inside */
    uint64_t fast, slow;              /* the owner's own */
    pthread_t thread;
};

static const char open_key, poison;
static struct cache caches[OWNERS];
static atomic_bool is_over;
static uint64_t seed;

static void begin_work(struct cache *cache)
{
    cache->overlaps += cache->is_inside;
    cache->is_inside = true;
}

static void add_one(struct cache *cache)
{
    begin_work(cache);
    for (unsigned i = 0; i < WORDS; i++) {
        cache->words[i]++;
    }
    cache->is_inside = false;
}

static void *own(void *argument)
{
    struct cache *cache = argument;
    while (!atomic_load_explicit(&is_over, memory_order_relaxed)) {
        flw_asym_enter(&cache->asym);
        bool is_open = flw_asym_key_is(&cache->key, &open_key);
        if (is_open) {
            add_one(cache);
            cache->fast++;
        }
        flw_asym_leave(&cache->asym);
        if (!is_open) {
            flw_lock_acquire(&cache->lock);
            add_one(cache);
            cache->slow++;
            flw_lock_release(&cache->lock);
        }
    }
    return NULL;
}

static void empty(struct cache *cache)
{
    flw_asym_wait(&cache->asym);
    begin_work(cache);
    for (unsigned i = 1; i < WORDS; i++) {
        cache->torn += cache->words[i] != cache->words[0];
    }
    cache->drained += cache->words[0];
    memset(cache->words, 0, sizeof cache->words);
    cache->is_inside = false;
    __atomic_store_n(&cache->key, &open_key, __ATOMIC_RELEASE);
    flw_lock_release(&cache->lock);
}

static void *drain(void *argument)
{
    uint64_t state = seed + (uintptr_t)argument;
    for (unsigned i = 0; i < SEIZES; i++) {
        /* One at a time, as a thread holds one cache's lock at most. */
        struct cache *cache = &caches[flw_test_random(&state) % OWNERS];
        flw_lock_acquire(&cache->lock);
        __atomic_store_n(&cache->key, &poison, __ATOMIC_RELEASE);
        flw_asym_barrier();
        empty(cache);
        for (unsigned n = flw_test_random(&state) % 256; n > 0; n--) {
            atomic_signal_fence(memory_order_seq_cst);
        }
    }
    return NULL;
}

static void owners_and_drainers_never_meet_inside_a_cache(void **state)
{
    pthread_t drainers[DRAINERS];
    for (unsigned i = 0; i < OWNERS; i++) {
        flw_lock_init(&caches[i].lock, FLW_RANK_CACHE);
        caches[i].key = &open_key;
        assert_int_equal(pthread_create(&caches[i].thread, NULL, own, &caches[i]), 0);
    }
    for (uintptr_t i = 0; i < DRAINERS; i++) {
        assert_int_equal(pthread_create(&drainers[i], NULL, drain, (void *)i), 0);
    }
    for (unsigned i = 0; i < DRAINERS; i++) {
        pthread_join(drainers[i], NULL);
    }
    atomic_store(&is_over, true);
    uint64_t fast = 0, slow = 0;
    for (unsigned i = 0; i < OWNERS; i++) {
        pthread_join(caches[i].thread, NULL);
        struct cache *cache = &caches[i];
        assert_int_equal(cache->overlaps, 0);
        assert_int_equal(cache->torn, 0);
        assert_true(cache->drained + cache->words[0] == cache->fast + cache->slow);
        fast += cache->fast;
        slow += cache->slow;
    }
    assert_true(fast > 0); /* else nothing was tried */
    print_message("%u seizes against %llu operations, %llu of them diverted\n", DRAINERS * SEIZES,
                  (unsigned long long)(fast + slow), (unsigned long long)slow);
}

int main(void)
{
    seed = flw_test_seed("stress.asym");
    if (!flw_asym_register()) {
        fprintf(stderr, "stress.asym: this kernel refuses membarrier(2); every call would take the "
                        "cache's lock\n");
        return FLW_TEST_SKIPPED;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(owners_and_drainers_never_meet_inside_a_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

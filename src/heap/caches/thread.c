/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a thread's table of caches, keyed by pool handle and stream handle, and their end when the
 * thread ends. Accessed by the thread only. */
#include <pthread.h>
#include <stdlib.h>

#include "heap/caches/tcache.h"

struct entry {
    const void *handle;
    CUstream stream;
    struct flw_tcache *cache; /* NULL: unused */
};

/* Kept at most an eighth full, so that lookups usually find the entry at once. */
struct flw_thread {
    struct flw_switchboard board; /* first: flw_tls_board points at it */
    struct entry *entries;        /* NULL: no thread's table */
    uint32_t count, shift;        /* 1 << (32 - shift) entries */
    uint32_t swept;               /* start of the next sweep */
};

/* For threads without a cache: a key that no pool has. Such threads write busy; no thread reads it. */
static struct flw_tcache_hot no_cache = {.asym = FLW_ASYM_UNOWNED, .key = &flw_no_pool};

_Thread_local struct flw_tcache_hot *flw_tls_cache __attribute__((tls_model("initial-exec"))) =
    &no_cache;
/* The table of a thread without caches: every stream leads to the cache that never matches. */
static struct flw_thread no_thread = {.board = {.multiplier = 0, .places = {&no_cache}}};
_Thread_local struct flw_switchboard *flw_tls_board __attribute__((tls_model("initial-exec"))) =
    &no_thread.board;

static struct flw_thread *own_thread(void)
{
    return (struct flw_thread *)(void *)flw_tls_board;
}

void (*flw_thread_on_exit)(struct flw_tcache *cache);
static pthread_key_t exit_key;
static pthread_once_t exit_once = PTHREAD_ONCE_INIT;

static void on_thread_exit(void *argument)
{
    struct flw_thread *thread = argument;
    flw_tls_cache = &no_cache;
    flw_tls_board = &no_thread.board;
    for (uint32_t i = 0; i < 1u << (32 - thread->shift); i++) {
        if (thread->entries[i].cache != NULL) {
            __atomic_load_n(&flw_thread_on_exit, __ATOMIC_ACQUIRE)(thread->entries[i].cache);
        }
    }
    free(thread->entries);
    free(thread);
}

static void make_exit_key(void)
{
    (void)pthread_key_create(&exit_key, on_thread_exit);
}

static uint32_t place_of(const struct flw_thread *thread, const void *handle, CUstream stream)
{
    uint64_t hash =
        (uint64_t)(uintptr_t)stream * 0x9E3779B97F4A7C15ull + (uint64_t)(uintptr_t)handle;
    return (uint32_t)((hash * 0xD6E8FEB86659FD93ull) >> 32) >> thread->shift;
}

struct flw_tcache *flw_thread_find(const void *handle, CUstream stream)
{
    const struct flw_thread *thread = own_thread();
    if (thread->entries == NULL) {
        return NULL;
    }
    uint32_t mask = (1u << (32 - thread->shift)) - 1;
    for (uint32_t i = place_of(thread, handle, stream);; i = (i + 1) & mask) {
        const struct entry *entry = &thread->entries[i];
        if (entry->stream == stream && entry->handle == handle) {
            return entry->cache;
        }
        if (entry->cache == NULL) {
            return NULL;
        }
    }
}

static void insert(struct flw_thread *thread, const struct entry *entry)
{
    uint32_t mask = (1u << (32 - thread->shift)) - 1;
    uint32_t i = place_of(thread, entry->handle, entry->stream);
    while (thread->entries[i].cache != NULL) {
        i = (i + 1) & mask;
    }
    thread->entries[i] = *entry;
    thread->count++;
}

/* Remove an entry, and move up later entries that a lookup would otherwise miss. */
static void remove_at(struct flw_thread *thread, uint32_t hole)
{
    uint32_t mask = (1u << (32 - thread->shift)) - 1;
    for (uint32_t i = (hole + 1) & mask; thread->entries[i].cache != NULL; i = (i + 1) & mask) {
        const struct entry *entry = &thread->entries[i];
        uint32_t home = place_of(thread, entry->handle, entry->stream);
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            thread->entries[hole] = *entry;
            hole = i;
        }
    }
    thread->entries[hole] = (struct entry){.cache = NULL};
    thread->count--;
}

/* ---- the switchboard */

/* One multiplier in 8 spreads 64 streams without a collision. With more streams, two that share a
 * place alternate there; flw_thread_find still finds the other. */
#define SPREAD_MOST      64
#define MULTIPLIER_TRIES 24

static uint32_t count_collisions(uint64_t multiplier, const CUstream *streams, uint32_t count)
{
    uint64_t taken[FLW_SWITCH_PLACES / 64] = {0};
    uint32_t collisions = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t place = flw_switch_index(multiplier, streams[i]);
        collisions += taken[place / 64] >> (place % 64) & 1;
        taken[place / 64] |= 1ull << (place % 64);
    }
    return collisions;
}

/* Return the tried multiplier with the fewest collisions between the thread's streams. */
static uint64_t choose_multiplier(const struct flw_thread *thread)
{
    CUstream streams[SPREAD_MOST];
    uint32_t count = 0, least = UINT32_MAX;
    for (uint32_t i = 0; count < thread->count; i++) {
        if (thread->entries[i].cache != NULL) {
            streams[count++] = thread->entries[i].stream;
        }
    }
    uint64_t multiplier = thread->board.multiplier, best = multiplier;
    for (int i = 0; i < MULTIPLIER_TRIES && least != 0; i++) {
        multiplier = (multiplier * 0xD6E8FEB86659FD93ull + 0x632BE59BD9B4E019ull) | 1;
        uint32_t collisions = count_collisions(multiplier, streams, count);
        if (collisions < least) {
            least = collisions;
            best = multiplier;
        }
    }
    return best;
}

/* Place all caches anew, with another multiplier. */
static void spread(struct flw_thread *thread)
{
    struct flw_switchboard *board = &thread->board;
    uint64_t multiplier = choose_multiplier(thread);
    for (uint32_t round = 0; round < 2;
         round++) { /* first clear the old places, then set the new ones */
        for (uint32_t i = 0, left = thread->count; left > 0; i++) {
            const struct entry *entry = &thread->entries[i];
            if (entry->cache != NULL) {
                *flw_switch_place(board, entry->stream) =
                    round == 0 ? &no_cache : &entry->cache->hot;
                left--;
            }
        }
        board->multiplier = multiplier;
    }
}

/* ---- adding and dropping caches */

static bool rebuild(struct flw_thread *thread, uint32_t shift)
{
    struct entry *old = thread->entries;
    uint32_t old_count = old == NULL ? 0 : 1u << (32 - thread->shift);
    struct entry *entries = calloc((size_t)1 << (32 - shift), sizeof *entries);
    if (entries == NULL) {
        return false;
    }
    thread->entries = entries;
    thread->shift = shift;
    thread->count = 0;
    thread->swept = 0;
    for (uint32_t i = 0; i < old_count; i++) {
        if (old[i].cache != NULL) {
            insert(thread, &old[i]);
        }
    }
    free(old);
    return true;
}

/* Remove a cache from the places that calls read. */
static void leave(struct flw_thread *thread, uint32_t i)
{
    struct flw_tcache *cache = thread->entries[i].cache;
    struct flw_tcache_hot **place = flw_switch_place(&thread->board, cache->hot.stream);
    if (*place == &cache->hot) {
        *place = &no_cache;
    }
    if (flw_tls_cache == &cache->hot) {
        flw_tls_cache = &no_cache;
    }
    remove_at(thread, i);
}

/* True for a cache that another thread closed, or of a stream that the pool found destroyed. Never
 * true for the current cache, which a call of this thread may be using while the callback runs
 * this. */
static bool is_over(const struct flw_tcache *cache)
{
    bool is_closed = __atomic_load_n(&cache->pool, __ATOMIC_ACQUIRE) == NULL && cache->is_detached;
    return is_closed || (&cache->hot != flw_tls_cache && cache->domain != NULL &&
                         __atomic_load_n(&cache->domain->is_lost, __ATOMIC_RELAXED));
}

#define SWEEP_ENTRIES \
    16 /* twice as many as new caches, at an eighth full; table sizes are multiples */

/* Drop caches of destroyed pools and streams, since the handles may never be used again. Each call
 * checks a few entries, so at most half as many stale caches are kept as are in use. */
static void sweep(struct flw_thread *thread)
{
    struct entry *entry = &thread->entries[thread->swept], *end = entry + SWEEP_ENTRIES;
    while (entry < end) {
        struct flw_tcache *cache = entry->cache;
        if (cache == NULL || !is_over(cache)) {
            entry++;
            continue;
        }
        leave(thread, (uint32_t)(entry - thread->entries)); /* another entry may have moved
                                                                here */
        __atomic_load_n(&flw_thread_on_exit, __ATOMIC_ACQUIRE)(cache);
    }
    thread->swept = (thread->swept + SWEEP_ENTRIES) & ((1u << (32 - thread->shift)) - 1);
}

static struct flw_thread *make_thread(void)
{
    struct flw_thread *thread = calloc(1, sizeof *thread);
    pthread_once(&exit_once, make_exit_key);
    if (thread == NULL || !rebuild(thread, 32 - 6) || pthread_setspecific(exit_key, thread) != 0) {
        if (thread != NULL) {
            free(thread->entries);
        }
        free(thread);
        return NULL;
    }
    thread->board.multiplier = 0x9E3779B97F4A7C15ull;
    for (uint32_t i = 0; i < FLW_SWITCH_PLACES; i++) {
        thread->board.places[i] = &no_cache;
    }
    flw_tls_board = &thread->board;
    return thread;
}

bool flw_thread_add(struct flw_tcache *cache)
{
    struct flw_thread *thread = own_thread();
    if (thread == &no_thread) {
        thread = make_thread();
    }
    if (thread == NULL) {
        return false;
    }
    sweep(thread);
    if ((thread->count + 1) * 8 > 1u << (32 - thread->shift) &&
        !rebuild(thread, thread->shift - 1)) {
        return false;
    }
    insert(thread, &(struct entry){cache->handle, cache->hot.stream, cache});
    struct flw_tcache_hot **place = flw_switch_place(&thread->board, cache->hot.stream);
    if (thread->count <= SPREAD_MOST && *place != &no_cache &&
        (*place)->stream != cache->hot.stream) {
        spread(thread);
    } else {
        *place = &cache->hot;
    }
    return true;
}

void flw_thread_select(struct flw_tcache *cache)
{
    flw_tls_cache = &cache->hot;
}

void flw_thread_forget(struct flw_tcache *cache)
{
    struct flw_thread *thread = own_thread();
    uint32_t mask = (1u << (32 - thread->shift)) - 1;
    uint32_t i = place_of(thread, cache->handle, cache->hot.stream);
    while (thread->entries[i].cache != cache) {
        i = (i + 1) & mask;
    }
    leave(thread, i);
}

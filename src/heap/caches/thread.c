/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a thread's table of caches, keyed by pool handle and stream handle, and what happens to
 * them when the thread ends. Touched by its thread only.
 */
#include <pthread.h>
#include <stdlib.h>

#include "heap/caches/tcache.h"

struct entry {
    const void *handle;
    CUstream stream;
    struct flw_tcache *cache; /* NULL: unused */
};

/* Kept at most an eighth full, so that a lookup nearly always looks once. */
struct flw_thread {
    struct flw_switchboard board; /* first: flw_tls_board points at it */
    struct entry *entries;        /* NULL: no thread's */
    uint32_t count, shift;        /* 1 << (32 - shift) entries */
};

/* What a thread without a cache uses: a key that no pool has. Written (busy) by every such thread,
 * read by none. */
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
    uint64_t mixed =
        (uint64_t)(uintptr_t)stream * 0x9E3779B97F4A7C15ull + (uint64_t)(uintptr_t)handle;
    return (uint32_t)((mixed * 0xD6E8FEB86659FD93ull) >> 32) >> thread->shift;
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

/* Rebuild the switchboard with this hash multiplier. Returns the number of collisions. */
static uint32_t fill_board(struct flw_thread *thread, uint64_t multiplier)
{
    struct flw_switchboard *board = &thread->board;
    uint32_t lost = 0;
    board->multiplier = multiplier;
    for (uint32_t i = 0; i < FLW_SWITCH_PLACES; i++) {
        board->places[i] = &no_cache;
    }
    for (uint32_t i = 0; i < 1u << (32 - thread->shift); i++) {
        const struct entry *entry = &thread->entries[i];
        if (entry->cache != NULL) {
            struct flw_tcache_hot **place = flw_switch_place(board, entry->stream);
            lost += *place != &no_cache && (*place)->stream != entry->stream;
            *place = &entry->cache->hot;
        }
    }
    return lost;
}

/* One multiplier in 8 leaves 64 streams without a collision; a stream that shares its place with
 * another is found all the same, by flw_thread_find. */
#define MULTIPLIER_TRIES 24

static void rebuild_board(struct flw_thread *thread)
{
    uint64_t multiplier = 0x9E3779B97F4A7C15ull, best = multiplier;
    uint32_t least = UINT32_MAX;
    for (int i = 0; i < MULTIPLIER_TRIES && least != 0; i++) {
        uint32_t lost = fill_board(thread, multiplier);
        if (lost < least) {
            least = lost;
            best = multiplier;
        }
        multiplier = (multiplier * 0xD6E8FEB86659FD93ull + 0x632BE59BD9B4E019ull) | 1;
    }
    if (least != 0) {
        (void)fill_board(thread, best);
    }
}

/* The usual case: the new cache's place is free. */
static void add_to_board(struct flw_thread *thread, struct flw_tcache *cache)
{
    struct flw_tcache_hot **place = flw_switch_place(&thread->board, cache->hot.stream);
    if (thread->board.multiplier != 0 &&
        (*place == &no_cache || (*place)->stream == cache->hot.stream)) {
        *place = &cache->hot; /* of two pools on one stream the newest has the place */
    } else {
        rebuild_board(thread);
    }
}

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
    for (uint32_t i = 0; i < old_count; i++) {
        if (old[i].cache != NULL) {
            insert(thread, &old[i]);
        }
    }
    free(old);
    return true;
}

/* Those of pools and streams that are gone: their handles may never come again. */
static void drop_detached(struct flw_thread *thread)
{
    for (uint32_t i = 0; i < 1u << (32 - thread->shift); i++) {
        struct flw_tcache *cache = thread->entries[i].cache;
        if (cache != NULL && __atomic_load_n(&cache->pool, __ATOMIC_ACQUIRE) == NULL &&
            cache->is_detached) {
            if (flw_tls_cache == &cache->hot) {
                flw_tls_cache = &no_cache;
            }
            thread->entries[i].cache = NULL;
            flw_tcache_drop(cache);
        }
    }
    (void)rebuild(thread, thread->shift);
    rebuild_board(thread);
}

bool flw_thread_add(struct flw_tcache *cache)
{
    struct flw_thread *thread = own_thread();
    pthread_once(&exit_once, make_exit_key);
    if (thread == &no_thread) {
        thread = calloc(1, sizeof *thread);
        if (thread == NULL || !rebuild(thread, 32 - 6) ||
            pthread_setspecific(exit_key, thread) != 0) {
            if (thread != NULL) {
                free(thread->entries);
            }
            free(thread);
            return false;
        }
        flw_tls_board = &thread->board;
    }
    if ((thread->count + 1) * 8 > 1u << (32 - thread->shift)) {
        drop_detached(thread);
    }
    if ((thread->count + 1) * 8 > 1u << (32 - thread->shift) &&
        !rebuild(thread, thread->shift - 1)) {
        return false;
    }
    insert(thread, &(struct entry){cache->handle, cache->hot.stream, cache});
    add_to_board(thread, cache);
    return true;
}

void flw_thread_select(struct flw_tcache *cache)
{
    flw_tls_cache = &cache->hot;
}

void flw_thread_forget(struct flw_tcache *cache)
{
    struct flw_thread *thread = own_thread();
    if (flw_tls_cache == &cache->hot) {
        flw_tls_cache = &no_cache;
    }
    for (uint32_t i = 0; i < 1u << (32 - thread->shift); i++) {
        if (thread->entries[i].cache == cache) {
            thread->entries[i].cache = NULL;
        }
    }
    /* Others may have probed past it; without memory for a new table they are merely not found. */
    (void)rebuild(thread, thread->shift);
    rebuild_board(thread);
}

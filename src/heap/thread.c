/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a thread's table of caches, keyed by pool handle and stream handle, and what happens to
 * them when the thread ends. Touched by its thread only.
 */
#include "heap/thread.h"

#include <pthread.h>
#include <stdlib.h>

#include "heap/tcache.h"

struct entry {
    const void *handle;
    CUstream stream;
    struct flw_tcache *cache; /* NULL: unused */
};

/* Kept at most an eighth full, so that a lookup nearly always looks once. */
struct flw_thread {
    struct entry *entries;
    uint32_t count, shift; /* 1 << (32 - shift) entries */
};

/* What a thread without a cache uses: a key that no pool has. Written (busy) by every such thread,
 * read by none. */
const char flw_no_pool = 0;
static struct flw_tcache_hot no_cache = {.key = &flw_no_pool};

_Thread_local struct flw_tcache_hot *flw_tls_cache __attribute__((tls_model("initial-exec"))) =
    &no_cache;
static _Thread_local struct flw_thread *flw_tls_thread __attribute__((tls_model("initial-exec"))) =
    NULL;

void (*flw_thread_on_exit)(struct flw_tcache *cache);
static pthread_key_t exit_key;
static pthread_once_t exit_once = PTHREAD_ONCE_INIT;

uintptr_t flw_thread_token(void)
{
    return (uintptr_t)&flw_tls_cache;
}

static void on_thread_exit(void *argument)
{
    struct flw_thread *thread = argument;
    flw_tls_cache = &no_cache;
    flw_tls_thread = NULL;
    for (uint32_t i = 0; i < 1u << (32 - thread->shift); i++) {
        if (thread->entries[i].cache != NULL) {
            flw_thread_on_exit(thread->entries[i].cache);
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
    const struct flw_thread *thread = flw_tls_thread;
    if (thread == NULL) {
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

static bool rebuild(struct flw_thread *thread, uint32_t shift)
{
    struct flw_thread old = *thread;
    thread->entries = calloc((size_t)1 << (32 - shift), sizeof *thread->entries);
    if (thread->entries == NULL) {
        *thread = old;
        return false;
    }
    thread->shift = shift;
    thread->count = 0;
    for (uint32_t i = 0; old.entries != NULL && i < 1u << (32 - old.shift); i++) {
        if (old.entries[i].cache != NULL) {
            insert(thread, &old.entries[i]);
        }
    }
    free(old.entries);
    return true;
}

bool flw_thread_add(struct flw_tcache *cache)
{
    struct flw_thread *thread = flw_tls_thread;
    pthread_once(&exit_once, make_exit_key);
    if (thread == NULL) {
        thread = calloc(1, sizeof *thread);
        if (thread == NULL || !rebuild(thread, 32 - 6) ||
            pthread_setspecific(exit_key, thread) != 0) {
            if (thread != NULL) {
                free(thread->entries);
            }
            free(thread);
            return false;
        }
        flw_tls_thread = thread;
    }
    if ((thread->count + 1) * 8 > 1u << (32 - thread->shift) &&
        !rebuild(thread, thread->shift - 1)) {
        return false;
    }
    insert(thread, &(struct entry){cache->handle, cache->hot.stream, cache});
    return true;
}

void flw_thread_select(struct flw_tcache *cache)
{
    flw_tls_cache = &cache->hot;
}

void flw_thread_forget(struct flw_tcache *cache)
{
    struct flw_thread *thread = flw_tls_thread;
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
}

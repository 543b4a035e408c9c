/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: recorders of pools: their handles, their beginning and end, and what is told beside hits.
 * Does not: keep records or write files; src/record does.
 *
 * A handle is a place of a table that is never unmapped. Whoever uses a recorder by its place counts
 * itself as a user first; the end takes the recorder out, then waits for users.
 */
#include "pool/recording.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "base/sized.h"
#include "fallow/trace.h"
#include "pool/blocks.h"
#include "record/recorder.h"

#define RING_BYTES_USUAL (4 * FLW_MIB)
#define RING_BYTES_LEAST (4 * FLW_KIB)
#define RING_BYTES_MOST  (1 * FLW_GIB)
#define KNOWN_FLAGS                                                       \
    ((uint32_t)(FALLOW_RECORD_BLOCK_WHEN_FULL | FALLOW_RECORD_RING_ONLY | \
                FALLOW_RECORD_DUMP_ON_OOM))

struct fallow_recorder {
    struct flw_recorder *_Atomic recorder; /* NULL: not yet, or no more */
    atomic_uint users;
    struct flw_pool *_Atomic pool; /* NULL: nobody's place */
    uint32_t flags;
};
#define PLACES 256

static struct {
    struct flw_lock lock;
    struct fallow_recorder *places;
    uint32_t next;
} table = {.lock = {.rank = FLW_RANK_POOL_TABLE}};

void flw_recorders_renew_lock(void)
{
    flw_lock_init(&table.lock, FLW_RANK_POOL_TABLE);
}

static struct fallow_recorder *take_place(struct flw_pool *pool)
{
    struct fallow_recorder *found = NULL;
    flw_lock_acquire(&table.lock);
    if (table.places == NULL) {
        void *memory = mmap(NULL, PLACES * sizeof *table.places, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        table.places = memory == MAP_FAILED ? NULL : memory;
    }
    for (uint32_t i = 0; table.places != NULL && found == NULL && i < PLACES; i++) {
        uint32_t index = (table.next + i) % PLACES;
        if (table.places[index].pool == NULL) {
            found = &table.places[index];
            found->pool = pool;
            table.next = index + 1;
        }
    }
    flw_lock_release(&table.lock);
    return found;
}

static bool is_place(const fallow_recorder *place)
{
    uintptr_t at = (uintptr_t)place, base = (uintptr_t)table.places;
    return table.places != NULL && at >= base && at < base + PLACES * sizeof *place &&
           (at - base) % sizeof *place == 0;
}

/* The recorder, until leave. NULL: it has ended, nothing is to be left. Both sides are sequentially
 * consistent: either the end sees the user, or the user the end. */
static struct flw_recorder *enter(fallow_recorder *place)
{
    atomic_fetch_add(&place->users, 1);
    struct flw_recorder *recorder = atomic_load(&place->recorder);
    if (recorder == NULL) {
        atomic_fetch_sub(&place->users, 1);
    }
    return recorder;
}

static void leave(fallow_recorder *place)
{
    atomic_fetch_sub(&place->users, 1);
}

/* ---- what was there */

struct look {
    struct flw_lent_block *blocks;
    size_t count, room; /* more were counted than there was room for: again */
};

static void see(void *context, const struct flw_lent_block *block)
{
    struct look *look = context;
    if (look->count < look->room) {
        look->blocks[look->count] = *block;
    }
    look->count++;
}

#define SETTLE_NS   100000
#define SETTLE_MOST 300

/* A hit changes its block, then puts its record; the walk may have come between the two. Whoever was
 * inside during the walk is waited for, but not for long: its thread may wait for room in its ring. */
static void await_hits(struct flw_pool *pool)
{
    struct flw_tcache *caches[256];
    size_t count = 0, tries = 0;
    while (!flw_lock_try(&pool->lock)) { /* whoever has it may wait for such a thread */
        if (tries++ == SETTLE_MOST) {
            return;
        }
        nanosleep(&(struct timespec){.tv_nsec = SETTLE_NS}, NULL);
    }
    struct flw_tcache *cache = pool->caches;
    for (; cache != NULL && count < sizeof caches / sizeof *caches; cache = cache->next) {
        if (atomic_load_explicit(&cache->hot.asym.busy, memory_order_acquire) != 0) {
            caches[count++] = cache; /* its memory stays a cache's */
        }
    }
    flw_lock_release(&pool->lock);
    for (size_t i = 0; i < count && tries < SETTLE_MOST;) {
        if (atomic_load_explicit(&caches[i]->hot.asym.busy, memory_order_acquire) == 0) {
            i++;
        } else {
            nanosleep(&(struct timespec){.tv_nsec = SETTLE_NS}, NULL);
            tries++;
        }
    }
}

/* Host memory is taken between two walks, never during one, which holds the heap's lock. */
static void look_up(void *context, struct flw_warm *warm, struct flw_names *names)
{
    struct flw_pool *pool = context;
    struct look look = {.room = 1024};
    bool is_debug = pool->debug != NULL;
    for (;; look.room = look.count + look.count / 4) {
        free(look.blocks);
        look.blocks = malloc(look.room * sizeof *look.blocks);
        if (look.blocks == NULL) {
            warm->has_failed = true;
            return;
        }
        look.count = 0;
        if (is_debug) {
            flw_debug_each(pool, see, &look);
        } else {
            flw_blocks_each(pool, see, &look);
        }
        if (look.count <= look.room) {
            break;
        }
    }
    await_hits(pool);
    for (size_t i = 0; i < look.count; i++) {
        const struct flw_lent_block *block = &look.blocks[i];
        uint64_t stream_id =
            is_debug ? block->loan : flw_lenders_id(&pool->heap.lenders, block->loan);
        flw_warm_add(warm, &(struct flw_warm_block){.address = block->address,
                                                    .size_bytes = block->size_bytes,
                                                    .stream = flw_names_stream(names, stream_id),
                                                    .tag = block->tag,
                                                    .pool = block->capture});
    }
    free(look.blocks);
}

/* ---- caches */

static uint32_t stream_of(struct flw_recorder *recorder, const struct flw_domain *domain)
{
    return flw_names_stream(&recorder->names,
                            domain->id != 0 ? domain->id : (uint64_t)(uintptr_t)domain->stream);
}

/* pool->lock. The owner is kept out while its cache changes. */
static void set_ring(struct flw_tcache *cache, struct flw_ring *ring, uint32_t stream)
{
    flw_tcache_poison(cache);
    flw_asym_barrier();
    flw_tcache_await(cache);
    cache->ring = ring;
    cache->recorded_stream = stream;
    flw_tcache_release(cache);
}

static bool attach_caches(struct flw_pool *pool, struct flw_recorder *recorder)
{
    bool is_done = true;
    flw_lock_acquire(&pool->lock);
    for (struct flw_tcache *cache = pool->caches; cache != NULL; cache = cache->next) {
        struct flw_ring *ring = flw_recorder_ring(recorder, cache->thread);
        is_done &= ring != NULL;
        if (ring != NULL) {
            set_ring(cache, ring, stream_of(recorder, cache->domain));
        }
    }
    flw_lock_release(&pool->lock);
    return is_done;
}

static void detach_caches(void *context)
{
    struct flw_pool *pool = context;
    flw_lock_acquire(&pool->lock);
    for (struct flw_tcache *cache = pool->caches; cache != NULL; cache = cache->next) {
        if (cache->ring != NULL) {
            set_ring(cache, NULL, 0);
        }
    }
    flw_lock_release(&pool->lock);
}

bool flw_recording_adopt(struct flw_pool *pool, struct flw_tcache *cache,
                         const struct flw_domain *domain)
{
    fallow_recorder *place = atomic_load(&pool->recorder);
    struct flw_recorder *recorder = place != NULL ? enter(place) : NULL;
    bool is_done = true;
    if (recorder != NULL) {
        if (!flw_recorder_is_over(recorder)) {
            cache->ring = flw_recorder_ring(recorder, flw_thread_token());
            cache->recorded_stream = stream_of(recorder, domain);
            is_done = cache->ring != NULL;
        }
        leave(place);
    }
    return is_done;
}

/* ---- what is told beside hits */

static void put(struct flw_recorder *recorder, const struct flw_ring_entry *entry)
{
    struct flw_ring *ring = flw_recorder_ring(recorder, flw_thread_token());
    if (ring != NULL) {
        flw_ring_put(ring, entry, true);
    } else {
        atomic_fetch_add(&recorder->unheard, 1);
    }
}

/* NULL: the pool is not recorded. */
static struct flw_recorder *recorder_of(struct flw_pool *pool, fallow_recorder **out_place)
{
    *out_place = atomic_load(&pool->recorder);
    struct flw_recorder *recorder = *out_place != NULL ? enter(*out_place) : NULL;
    if (recorder != NULL && flw_recorder_is_over(recorder)) {
        leave(*out_place);
        recorder = NULL;
    }
    return recorder;
}

void flw_recording_note_block(struct flw_pool *pool, enum flw_trace_op op,
                              const struct flw_domain *domain,
                              const struct flw_recorded_block *block)
{
    fallow_recorder *place;
    int saved = errno;
    struct flw_recorder *recorder = recorder_of(pool, &place);
    if (recorder != NULL) {
        struct flw_ring_entry entry = flw_ring_entry(op, block->address, block->size_bytes,
                                                     stream_of(recorder, domain), block->tag);
        entry.rest |= (uint64_t)block->capture << FLW_RING_POOL_BIT;
        put(recorder, &entry);
        leave(place);
    }
    errno = saved;
}

void flw_recording_note_capture(struct flw_pool *pool, enum flw_trace_op op,
                                const struct flw_domain *domain, uint32_t capture)
{
    flw_recording_note_block(pool, op, domain, &(struct flw_recorded_block){.capture = capture});
}

static void put_plain(struct flw_recorder *recorder, enum flw_trace_op op, uint64_t name)
{
    struct flw_ring_entry entry = flw_ring_entry(op, name, 0, 0, 0);
    put(recorder, &entry);
}

void flw_recording_note_trim(struct flw_pool *pool)
{
    fallow_recorder *place;
    struct flw_recorder *recorder = recorder_of(pool, &place);
    if (recorder != NULL) {
        put_plain(recorder, FLW_TRACE_EMPTY_CACHE, 0);
        leave(place);
    }
}

void flw_recording_note_failure(struct flw_pool *pool, const struct flw_domain *domain,
                                const fallow_oom_report *report)
{
    fallow_recorder *place;
    struct flw_recorder *recorder = recorder_of(pool, &place);
    if (recorder == NULL) {
        return;
    }
    uint64_t hole = flw_min(report->largest_free_bytes >> FLW_RING_HOLE_LOG2, UINT32_MAX);
    struct flw_ring_entry entry =
        flw_ring_entry(FLW_TRACE_OOM, report->device_free_bytes, report->size_bytes,
                       stream_of(recorder, domain), (uint32_t)hole);
    put(recorder, &entry);
    if ((place->flags & FALLOW_RECORD_DUMP_ON_OOM) != 0) {
        (void)((place->flags & FALLOW_RECORD_RING_ONLY) != 0
                   ? flw_recorder_dump(recorder, recorder->path)
                   : flw_recorder_flush(recorder));
    }
    leave(place);
}

/* ---- the public calls */

FLW_DEFINE_INIT_SIZED(fallow_record_config)

static void log_line(void *context, bool is_error, const char *line)
{
    const struct flw_pool *pool = context;
    flw_pool_log(pool, is_error ? FALLOW_LOG_ERROR : FALLOW_LOG_INFO, "%s", line);
}

static fallow_status check_config(fallow_record_config *config)
{
    bool is_ring_only = config->path == NULL || (config->flags & FALLOW_RECORD_RING_ONLY) != 0;
    bool dumps = config->dump_signal != 0 || (config->flags & FALLOW_RECORD_DUMP_ON_OOM) != 0;
    bool waits = (config->flags & FALLOW_RECORD_BLOCK_WHEN_FULL) != 0;
    if ((config->flags & ~KNOWN_FLAGS) != 0 || config->ring_bytes > RING_BYTES_MOST ||
        (config->path == NULL && dumps) || (is_ring_only && waits)) {
        return FALLOW_INVALID_ARGUMENT;
    }
    config->flags |= is_ring_only ? (uint32_t)FALLOW_RECORD_RING_ONLY : 0u;
    uint64_t bytes = config->ring_bytes == 0 ? RING_BYTES_USUAL : config->ring_bytes;
    bytes = flw_max(bytes, RING_BYTES_LEAST);
    config->ring_bytes = 1ull << (flw_log2_floor(bytes - 1) + 1);
    return FALLOW_OK;
}

static fallow_status make_recorder(struct flw_pool *pool, const fallow_record_config *config,
                                   struct flw_recorder **out_recorder)
{
    struct flw_recorder_settings settings = {
        .path = config->path,
        .ring_bytes = config->ring_bytes,
        .waits = (config->flags & FALLOW_RECORD_BLOCK_WHEN_FULL) != 0,
        .keeps_last = (config->flags & FALLOW_RECORD_RING_ONLY) != 0,
        .is_fenced = !pool->uses_membarrier,
        .dump_signal = config->dump_signal,
        .device = (uint32_t)pool->config.device,
        .host = {.context = pool, .look_up = look_up, .detach = detach_caches, .log = log_line}};
    return flw_recorder_create(&settings, out_recorder);
}

/* The recorder has been taken out of its place: nobody new comes. */
static fallow_status end_recorder(fallow_recorder *place, struct flw_recorder *recorder)
{
    struct flw_pool *pool = place->pool;
    detach_caches(pool);
    while (atomic_load(&place->users) != 0) {
        sched_yield();
    }
    atomic_store(&pool->recorder, NULL);
    fallow_status status = flw_recorder_finish(recorder);
    flw_recorder_destroy(recorder);
    return status;
}

static fallow_status begin(struct flw_pool *pool, const fallow_record_config *config,
                           fallow_recorder *place)
{
    struct flw_recorder *recorder;
    fallow_recorder *nobody = NULL;
    if (!atomic_compare_exchange_strong(&pool->recorder, &nobody, place)) {
        return FALLOW_BUSY;
    }
    fallow_status status = make_recorder(pool, config, &recorder);
    if (status != FALLOW_OK) {
        atomic_store(&pool->recorder, NULL);
        return status;
    }
    place->flags = config->flags;
    atomic_store(&place->recorder, recorder);
    status =
        attach_caches(pool, recorder) ? flw_recorder_begin(recorder) : FALLOW_OUT_OF_HOST_MEMORY;
    if (status != FALLOW_OK && atomic_exchange(&place->recorder, NULL) != NULL) {
        flw_recorder_close(recorder);
        (void)end_recorder(place, recorder);
    }
    return status;
}

fallow_status fallow_record_start(fallow_pool *handle, const fallow_record_config *given,
                                  fallow_recorder **out_recorder)
{
    fallow_record_config config = {0};
    if (out_recorder == NULL) {
        return FALLOW_INVALID_ARGUMENT;
    }
    *out_recorder = NULL;
    struct flw_pool *pool = flw_pool_of(handle);
    if (pool == NULL || given == NULL) {
        return pool == NULL ? FALLOW_INVALID_POOL : FALLOW_INVALID_ARGUMENT;
    }
    fallow_status status = flw_struct_accept(&config, sizeof config, given);
    if (status == FALLOW_OK) {
        status = check_config(&config);
    }
    if (status != FALLOW_OK) {
        return status;
    }
    int saved = errno;
    fallow_recorder *place = take_place(pool);
    status = place == NULL ? FALLOW_OUT_OF_HOST_MEMORY : begin(pool, &config, place);
    if (status == FALLOW_OK) {
        *out_recorder = place;
    } else if (place != NULL) {
        place->pool = NULL;
    }
    errno = saved;
    return status;
}

fallow_status fallow_record_stop(fallow_recorder *place)
{
    int saved = errno;
    struct flw_recorder *recorder = is_place(place) ? enter(place) : NULL;
    if (recorder != NULL) {
        flw_recorder_close(recorder); /* before the first thread stops recording */
        leave(place);
        recorder = atomic_exchange(&place->recorder, NULL);
    }
    fallow_status status = FALLOW_INVALID_RECORDER;
    if (recorder != NULL) {
        status = end_recorder(place, recorder);
        place->pool = NULL;
    }
    errno = saved;
    return status;
}

void flw_recording_stop(struct flw_pool *pool)
{
    fallow_recorder *place = atomic_load(&pool->recorder);
    if (place != NULL) {
        (void)fallow_record_stop(place);
    }
}

void flw_recording_orphan(struct flw_pool *pool)
{
    fallow_recorder *place = atomic_exchange(&pool->recorder, NULL);
    struct flw_recorder *recorder = place != NULL ? atomic_exchange(&place->recorder, NULL) : NULL;
    if (recorder != NULL) {
        flw_recorder_abandon(recorder);
        pool->abandoned_recorder = recorder; /* its rings stay: somebody may be in one */
        place->pool = NULL;
    }
}

fallow_status fallow_record_dump(fallow_recorder *place, const char *path)
{
    struct flw_recorder *recorder = is_place(place) ? enter(place) : NULL;
    if (recorder == NULL) {
        return FALLOW_INVALID_RECORDER;
    }
    int saved = errno;
    bool is_ring_only = (place->flags & FALLOW_RECORD_RING_ONLY) != 0;
    path = path == NULL && is_ring_only ? recorder->path : path;
    fallow_status status = is_ring_only != (path != NULL) ? FALLOW_INVALID_ARGUMENT
                           : is_ring_only                 ? flw_recorder_dump(recorder, path)
                                                          : flw_recorder_flush(recorder);
    leave(place);
    errno = saved;
    return status;
}

static fallow_status note_name(fallow_recorder *place, enum flw_trace_op op, const char *name)
{
    struct flw_recorder *recorder = is_place(place) ? enter(place) : NULL;
    uint32_t number;
    if (recorder == NULL) {
        return FALLOW_INVALID_RECORDER;
    }
    fallow_status status = FALLOW_OK;
    int saved = errno;
    if (name == NULL || !flw_trace_is_name(name, strnlen(name, FLW_TRACE_NAME_BYTES + 1))) {
        status = FALLOW_INVALID_ARGUMENT;
    } else if (!flw_names_name(&recorder->names, name, &number)) {
        status = FALLOW_OUT_OF_HOST_MEMORY;
    } else if (!flw_recorder_is_over(recorder)) {
        put_plain(recorder, op, number);
    }
    leave(place);
    errno = saved;
    return status;
}

fallow_status fallow_record_phase_begin(fallow_recorder *recorder, const char *name)
{
    return note_name(recorder, FLW_TRACE_PHASE_BEGIN, name);
}

fallow_status fallow_record_phase_end(fallow_recorder *recorder, const char *name)
{
    return note_name(recorder, FLW_TRACE_PHASE_END, name);
}

fallow_status fallow_record_mark(fallow_recorder *recorder, const char *name)
{
    return note_name(recorder, FLW_TRACE_MARK, name);
}

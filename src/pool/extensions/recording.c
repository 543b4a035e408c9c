/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: recorders of pools: their handles, their begin and end, and the records of events other
 * than hits.
 * Does not: store records or write files; src/record does.
 *
 * Users of a recorder enter by the handle, as visitors (base/handles.h); the end drops the handle,
 * then waits for visitors. */
#include "pool/extensions/recording.h"

#include <errno.h>
#include <stdlib.h>

#include "base/backoff.h"
#include "base/sized.h"
#include "fallow/trace.h"
#include "pool/state/blocks.h"
#include "pool/state/extension.h"
#include "pool/state/settings.h"
#include "pool/state/table.h"
#include "pool/streams/seize.h"
#include "record/recorder.h"

#define RING_BYTES_USUAL (4 * FLW_MIB)
#define RING_BYTES_LEAST (4 * FLW_KIB)
#define RING_BYTES_MOST  (1 * FLW_GIB)
#define KNOWN_FLAGS                                                       \
    ((uint32_t)(FALLOW_RECORD_BLOCK_WHEN_FULL | FALLOW_RECORD_RING_ONLY | \
                FALLOW_RECORD_DUMP_ON_OOM | FALLOW_RECORD_ENTER_PYTHON))

struct recording {
    struct flw_recorder *recorder;
    struct flw_pool *pool;
    uint32_t flags, stack_depth;
};

static struct flw_handle_place places[256];
static struct flw_handles table = FLW_HANDLES(FLW_HANDLE_RECORDER, places);
static struct recording recordings[sizeof places / sizeof *places]; /* one per place */

/* Enter the pool's recording; leave by the handle afterwards. Returns NULL if there is none or it
 * has ended; then do not leave. */
static const struct recording *enter_of(struct flw_pool *pool, const fallow_recorder **out_handle)
{
    const fallow_recorder *handle = atomic_load(&pool->recorder);
    const struct recording *recording = handle != NULL ? flw_handles_enter(&table, handle) : NULL;
    if (recording != NULL && flw_recorder_is_over(recording->recorder)) {
        flw_handles_leave(&table, handle);
        recording = NULL;
    }
    *out_handle = handle;
    return recording;
}

size_t flw_recording_list_holders(struct flw_pool *pool, struct flw_trace_file_holder *out,
                                  size_t most, struct flw_trace_file_holder *out_rest)
{
    const fallow_recorder *handle;
    const struct recording *recording = enter_of(pool, &handle);
    size_t count = 0;
    *out_rest = (struct flw_trace_file_holder){0};
    if (recording != NULL) {
        count = flw_recorder_list_holders(recording->recorder, out, most, out_rest);
        flw_handles_leave(&table, handle);
    }
    return count;
}

/* ---- blocks at the begin */

struct look {
    struct flw_live_block *blocks;
    size_t count, room; /* count > room: allocate more and repeat */
};

static void see(void *context, const struct flw_live_block *block)
{
    struct look *look = context;
    if (look->count < look->room) {
        look->blocks[look->count] = *block;
    }
    look->count++;
}

#define HIT_POLL_NS    100000
#define HIT_POLLS_MOST 300

/* A hit changes the block, then writes the record, and the walk may have run in between. Wait for
 * owners that were inside during the walk, but not for ever: such a thread may wait for room in
 * the ring. */
static void await_hits(struct flw_pool *pool)
{
    struct flw_tcache *caches[256];
    size_t count = 0, tries = 0;
    flw_lock_acquire(&pool->lock);
    struct flw_tcache *cache = pool->caches;
    for (; cache != NULL && count < sizeof caches / sizeof *caches; cache = cache->next) {
        if (atomic_load_explicit(&cache->hot.asym.busy, memory_order_acquire) != 0) {
            caches[count++] = cache; /* the memory remains a cache's */
        }
    }
    flw_lock_release(&pool->lock);
    for (size_t i = 0; i < count && tries < HIT_POLLS_MOST;) {
        if (atomic_load_explicit(&caches[i]->hot.asym.busy, memory_order_acquire) == 0) {
            i++;
        } else {
            flw_sleep_ns(HIT_POLL_NS);
            tries++;
        }
    }
}

/* Host memory is allocated between two walks, never during one, which holds the heap's lock. */
static void look_up(void *context, struct flw_initial_blocks *initial, struct flw_names *names)
{
    struct flw_pool *pool = context;
    struct look look = {.room = 1024};
    const struct flw_extension *front = flw_pool_front(pool);
    for (;; look.room = look.count + look.count / 4) {
        free(look.blocks);
        look.blocks = malloc(look.room * sizeof *look.blocks);
        if (look.blocks == NULL) {
            initial->has_failed = true;
            return;
        }
        look.count = 0;
        if (front != NULL) {
            front->each(pool, see, &look);
        } else {
            flw_blocks_each(pool, see, &look);
        }
        if (look.count <= look.room) {
            break;
        }
    }
    await_hits(pool);
    for (size_t i = 0; i < look.count; i++) {
        const struct flw_live_block *block = &look.blocks[i];
        flw_initial_blocks_add(initial, &(struct flw_initial_block){
                                            .address = block->address,
                                            .size_bytes = block->size_bytes,
                                            .stream = flw_names_stream(names, block->stream_id),
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

/* The owner is kept out while the cache changes. */
static void set_ring(struct flw_tcache *cache, struct flw_ring *ring, uint32_t stream)
{
    flw_lock_acquire(&cache->lock);
    cache->ring = ring;
    cache->recorded_stream = stream;
    flw_lock_release(&cache->lock);
}

static bool attach_caches(struct flw_pool *pool, struct flw_recorder *recorder)
{
    bool is_done = true;
    struct flw_tcache *seized = flw_seize(pool, NULL, NULL);
    for (struct flw_tcache *cache = seized; cache != NULL; cache = cache->next_seized) {
        struct flw_ring *ring = flw_recorder_ring(recorder, cache->thread);
        is_done &= ring != NULL;
        if (ring != NULL) {
            set_ring(cache, ring, stream_of(recorder, cache->domain));
        }
    }
    flw_seize_end(pool, seized);
    return is_done;
}

static void detach_caches(void *context)
{
    struct flw_pool *pool = context;
    struct flw_tcache *seized = flw_seize(pool, NULL, NULL);
    for (struct flw_tcache *cache = seized; cache != NULL; cache = cache->next_seized) {
        set_ring(cache, NULL, 0);
    }
    flw_seize_end(pool, seized);
}

static bool adopt(struct flw_pool *pool, struct flw_tcache *cache, const struct flw_domain *domain)
{
    const fallow_recorder *handle;
    const struct recording *recording = enter_of(pool, &handle);
    bool is_done = true;
    if (recording != NULL) {
        struct flw_recorder *recorder = recording->recorder;
        cache->ring = flw_recorder_ring(recorder, flw_thread_token());
        cache->recorded_stream = stream_of(recorder, domain);
        is_done = cache->ring != NULL;
        flw_handles_leave(&table, handle);
    }
    return is_done;
}

/* ---- events other than hits */

/* Leave the handle before the stack is walked: the walk may wait for Python, and the thread with
 * Python's lock may be about to end the recording. The result is valid for any recording. */
static bool alloc_asked(struct flw_pool *pool)
{
    const fallow_recorder *handle;
    const struct recording *recording = enter_of(pool, &handle);
    if (recording == NULL) {
        return false;
    }
    uint32_t depth = recording->stack_depth, flags = recording->flags;
    flw_handles_leave(&table, handle);
    return depth > 0 && flw_callstack_look(depth, (flags & FALLOW_RECORD_ENTER_PYTHON) != 0);
}

/* Record an event, with the call's stack if it was walked. */
static void put(struct flw_recorder *recorder, const struct flw_ring_entry *wanted, bool has_stack)
{
    struct flw_ring_entry entry = *wanted;
    struct flw_ring *ring = flw_recorder_ring(recorder, flw_thread_token());
    if (ring != NULL) {
        if (has_stack && flw_ring_tell_stack(ring, flw_callstack_seen())) {
            entry.rest |= FLW_RING_STACK_BIT;
        }
        flw_ring_put(ring, &entry, true);
    } else {
        atomic_fetch_add(&recorder->unheard, 1);
    }
}

static void happened(struct flw_pool *pool, enum flw_trace_op op, const struct flw_domain *domain,
                     const struct flw_event *event)
{
    const fallow_recorder *handle;
    int saved = errno;
    const struct recording *recording = enter_of(pool, &handle);
    if (recording != NULL) {
        struct flw_recorder *recorder = recording->recorder;
        struct flw_ring_entry entry =
            flw_ring_entry(op, event->address, event->size_bytes,
                           domain == NULL ? 0 : stream_of(recorder, domain), event->tag);
        entry.rest |= (uint64_t)event->capture << FLW_RING_POOL_BIT;
        put(recorder, &entry, op == FLW_TRACE_ALLOC);
        flw_handles_leave(&table, handle);
    }
    errno = saved;
}

/* Dump, if configured. */
static void failed(struct flw_pool *pool, const struct flw_domain *domain,
                   const fallow_oom_report *report)
{
    const fallow_recorder *handle;
    const struct recording *recording = enter_of(pool, &handle);
    if (recording == NULL) {
        return;
    }
    struct flw_recorder *recorder = recording->recorder;
    uint64_t hole = flw_min(report->largest_free_bytes >> FLW_RING_HOLE_LOG2, UINT32_MAX);
    struct flw_ring_entry entry =
        flw_ring_entry(FLW_TRACE_OOM, report->device_free_bytes, report->size_bytes,
                       stream_of(recorder, domain), (uint32_t)hole);
    put(recorder, &entry, true);
    if ((recording->flags & FALLOW_RECORD_DUMP_ON_OOM) != 0) {
        (void)((recording->flags & FALLOW_RECORD_RING_ONLY) != 0
                   ? flw_recorder_dump(recorder, recorder->path)
                   : flw_recorder_flush(recorder));
    }
    flw_handles_leave(&table, handle);
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
    bool enters = (config->flags & FALLOW_RECORD_ENTER_PYTHON) != 0;
    if ((config->flags & ~KNOWN_FLAGS) != 0 || config->stack_depth > FLW_CALLSTACK_DEPTH_MOST ||
        (enters && config->stack_depth == 0) || config->ring_bytes > RING_BYTES_MOST ||
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
        .callstacks = config->stack_depth > 0 ? flw_callstacks_shared() : NULL,
        .host = {.context = pool,
                 .look_up = look_up,
                 .detach = detach_caches,
                 .log = log_line,
                 .when_lost = "FALLOW_RECORD_BLOCK_WHEN_FULL makes threads wait, and a larger "
                              "ring_bytes loses fewer"}};
    return config->stack_depth > 0 && settings.callstacks == NULL
               ? FALLOW_OUT_OF_HOST_MEMORY
               : flw_recorder_create(&settings, out_recorder);
}

/* Threads that have not read this yet record one stack more or less. */
static void see_stacks(struct flw_pool *pool, bool are_seen)
{
    if (atomic_exchange(&pool->sees_stacks, are_seen) != are_seen) {
        atomic_fetch_add(&flw_callstack_recordings, are_seen ? 1u : -1u);
    }
}

/* The handle is dropped, so no new visitor enters. The place is free afterwards. */
static fallow_status end(const struct recording *recording, const fallow_recorder *handle)
{
    struct flw_pool *pool = recording->pool;
    struct flw_recorder *recorder = recording->recorder;
    see_stacks(pool, false);
    detach_caches(pool);
    flw_handles_await(&table, handle);
    flw_handles_free(&table, handle);
    fallow_status status = flw_recorder_finish(recorder); /* a failed stop detaches too */
    flw_recorder_destroy(recorder);
    atomic_store(&pool->recorder, NULL); /* the next recording changes the caches itself */
    return status;
}

/* Begin the recording, which owns the pool's recorder. After a failure the place is free. */
static fallow_status begin(struct flw_pool *pool, const fallow_record_config *config,
                           fallow_recorder *handle)
{
    struct recording *recording = &recordings[flw_handle_place(handle)];
    *recording = (struct recording){
        .pool = pool, .flags = config->flags, .stack_depth = config->stack_depth};
    fallow_status status = make_recorder(pool, config, &recording->recorder);
    if (status != FALLOW_OK) {
        flw_handles_free(&table, handle);
        atomic_store(&pool->recorder, NULL);
        return status;
    }
    struct flw_recorder *recorder = recording->recorder;
    flw_handles_publish(&table, handle, recording);
    see_stacks(pool, config->stack_depth > 0);
    status =
        attach_caches(pool, recorder) ? flw_recorder_begin(recorder) : FALLOW_OUT_OF_HOST_MEMORY;
    if (status != FALLOW_OK && flw_handles_drop(&table, handle) != NULL) {
        flw_recorder_close(recorder);
        (void)end(recording, handle);
    }
    return status;
}

static fallow_status start(struct flw_pool *pool, const fallow_record_config *config,
                           fallow_recorder **out_recorder)
{
    fallow_recorder *handle = flw_handles_take(&table), *none = NULL;
    if (handle == NULL) {
        return FALLOW_OUT_OF_HOST_MEMORY;
    }
    flw_pool_enlist(pool, &flw_recording_extension);
    if (!atomic_compare_exchange_strong(&pool->recorder, &none, handle)) {
        flw_handles_free(&table, handle);
        return FALLOW_BUSY;
    }
    fallow_status status = begin(pool, config, handle);
    *out_recorder = status == FALLOW_OK ? handle : NULL;
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
    status = start(pool, &config, out_recorder);
    errno = saved;
    return status;
}

fallow_status fallow_record_stop(fallow_recorder *handle)
{
    int saved = errno;
    struct recording *recording = flw_handles_enter(&table, handle);
    if (recording != NULL) {
        flw_recorder_close(recording->recorder); /* before the first thread stops recording */
        flw_handles_leave(&table, handle);
        recording = flw_handles_drop(&table, handle);
    }
    fallow_status status = recording != NULL ? end(recording, handle) : FALLOW_INVALID_RECORDER;
    errno = saved;
    return status;
}

static void stop(struct flw_pool *pool)
{
    fallow_recorder *handle = atomic_load(&pool->recorder);
    if (handle != NULL) {
        (void)fallow_record_stop(handle);
    }
}

static void orphan(struct flw_pool *pool)
{
    fallow_recorder *handle = atomic_exchange(&pool->recorder, NULL);
    const struct recording *recording = flw_handles_drop(&table, handle);
    see_stacks(pool, false);
    if (recording != NULL) {
        flw_recorder_abandon(recording->recorder);
        pool->abandoned_recorder = recording->recorder; /* the rings stay: a thread may be in
                                                            one */
        flw_handles_free(&table, handle);
    }
}

fallow_status fallow_record_dump(fallow_recorder *handle, const char *path)
{
    const struct recording *recording = flw_handles_enter(&table, handle);
    if (recording == NULL) {
        return FALLOW_INVALID_RECORDER;
    }
    int saved = errno;
    struct flw_recorder *recorder = recording->recorder;
    bool is_ring_only = (recording->flags & FALLOW_RECORD_RING_ONLY) != 0;
    path = path == NULL && is_ring_only ? recorder->path : path;
    fallow_status status = is_ring_only != (path != NULL) ? FALLOW_INVALID_ARGUMENT
                           : is_ring_only                 ? flw_recorder_dump(recorder, path)
                                                          : flw_recorder_flush(recorder);
    flw_handles_leave(&table, handle);
    errno = saved;
    return status;
}

static fallow_status note_name(fallow_recorder *handle, enum flw_trace_op op, const char *name)
{
    const struct recording *recording = flw_handles_enter(&table, handle);
    uint32_t number;
    if (recording == NULL) {
        return FALLOW_INVALID_RECORDER;
    }
    struct flw_recorder *recorder = recording->recorder;
    fallow_status status = FALLOW_OK;
    int saved = errno;
    if (name == NULL || !flw_trace_is_name(name, strnlen(name, FLW_TRACE_NAME_BYTES + 1))) {
        status = FALLOW_INVALID_ARGUMENT;
    } else if (!flw_names_name(&recorder->names, name, &number)) {
        status = FALLOW_OUT_OF_HOST_MEMORY;
    } else if (!flw_recorder_is_over(recorder)) {
        struct flw_ring_entry entry = flw_ring_entry(op, number, 0, 0, 0);
        put(recorder, &entry, false);
    }
    flw_handles_leave(&table, handle);
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

static void forget_all(void)
{
    flw_callstacks_forget();
    flw_handles_forget(&table);
}

const struct flw_extension flw_recording_extension = {.stop = stop,
                                                      .orphan = orphan,
                                                      .forget_all = forget_all,
                                                      .happened = happened,
                                                      .alloc_asked = alloc_asked,
                                                      .failed = failed,
                                                      .cache_made = adopt};

/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: PyTorch's ids of graph memory. An id is one capture of the pool, resumed for each graph
 * captured with that id, and released after the last of them.
 *
 * PyTorch reports when allocating to an id begins and ends, but neither the streams nor whether a
 * stream is captured: the same two calls surround a memory pool without graphs. So while an id is
 * open, each allocation of the torch pair, and each lease of an arena, queries whether the stream
 * is being captured, and by which capture. The first query that finds a new capture binds the
 * capture to an open id and announces the capture. An open id alone announces nothing. */
#include <stdlib.h>

#include "fallow/extend.h"

#include "plugin/default_pools.h"

enum phase {
    ID_CLOSED,
    ID_TAG,   /* open, and only a tag */
    ID_OPEN,  /* between begin and end */
    ID_BEGUN, /* open, and the thread has not allocated since begin: a capture may have begun
                  unseen */
    ID_BOUND  /* open, with an announced capture */
};

/* INVARIANTS
 *   1. open_ids of a device is the number of the entries that are not CLOSED; ids.unsure_count is the number of
 *      entries of all devices that are BEGUN or BOUND.
 *   2. BOUND: the pool's capture is capturing, for the driver's capture driver_id, and
 *      fallow_context_capture_begin is called for it. At most one entry of a device is bound to a driver_id.
 *   3. A tag (FALLOW_MEMPOOL_TAG) has an entry for each begin, any other id has one entry.
 * Synchronization: the mutex below; unsure_count is also read without the mutex. */
struct id_entry {
    int device;
    fallow_mempool_id id;
    enum phase phase;        /* changed by set_phase */
    int64_t use_count;       /* begins minus releases */
    fallow_capture *capture; /* NULL: nothing captured yet */
    unsigned long long driver_id;
    fallow_stream origin;   /* of the bound capture */
    pthread_t thread;       /* the thread that called begin */
    struct id_entry *older; /* the list, latest begun first */
};

/* A capture without an id: released once the context's work is complete. */
struct dying {
    int device;
    fallow_capture *capture;
    struct dying *next;
};

static struct {
    pthread_mutex_t mutex;
    struct id_entry *latest;
    struct dying *dying;
    atomic_uint unsure_count;
} ids = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* The entries stay: their captures ended with the parent's pools. */
void flw_graph_ids_forget(void)
{
    pthread_mutex_init(&ids.mutex, NULL);
    ids.latest = NULL;
    ids.dying = NULL;
    atomic_store(&ids.unsure_count, 0);
}

static void set_phase(struct id_entry *entry, enum phase phase)
{
    struct flw_plugin_device *at = flw_plugin_device_of(entry->device);
    atomic_fetch_add(&at->open_ids, (phase != ID_CLOSED) - (entry->phase != ID_CLOSED));
    atomic_fetch_add(&ids.unsure_count, (phase >= ID_BEGUN) - (entry->phase >= ID_BEGUN));
    if (phase == ID_BOUND && entry->phase != ID_BOUND) {
        fallow_context_capture_begin();
    } else if (phase != ID_BOUND && entry->phase == ID_BOUND) {
        fallow_context_capture_end();
    }
    entry->phase = phase;
}

/* ---- queries of the driver */

static CUresult ask_present(struct flw_pool *pool, fallow_stream stream,
                            CUstreamCaptureStatus *status, cuuint64_t *id)
{
    flw_heap_count_question(&pool->heap);
    return pool->driver.cuStreamGetCaptureInfo_v2 != NULL
               ? pool->driver.cuStreamGetCaptureInfo_v2(stream, status, id, NULL, NULL, NULL)
               : pool->driver.cuStreamIsCapturing(stream, status);
}

/* Query the capture of a stream; only a default stream needs the pool's context current. False: no
 * answer. */
static bool ask(struct flw_pool *pool, fallow_stream stream, CUstreamCaptureStatus *status,
                cuuint64_t *id)
{
    struct flw_driver_section section;
    struct flw_heap *heap = &pool->heap;
    CUresult result = CUDA_ERROR_INVALID_CONTEXT;
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    *id = 0;
    if (flw_heap_is_lost(heap)) {
        return false;
    }
    if ((uintptr_t)stream > (uintptr_t)CU_STREAM_PER_THREAD) {
        result = ask_present(pool, stream, status, id);
    }
    if (flw_result_is_gone(result) && flw_heap_enter_driver(heap, &section)) {
        result = ask_present(pool, stream, status, id);
        flw_heap_leave_driver(heap, &section);
    }
    return result == CUDA_SUCCESS;
}

bool flw_plugin_is_capturing(struct flw_pool *pool, fallow_stream stream)
{
    CUstreamCaptureStatus status;
    cuuint64_t id;
    return ask(pool, stream, &status, &id) && status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

/* ---- entries; the mutex */

static bool is_tag(fallow_mempool_id id)
{
    return id.second == FALLOW_MEMPOOL_TAG;
}

/* Return the entry of an id; of a tag, the calling thread's latest. */
static struct id_entry *find_entry(int device, fallow_mempool_id id)
{
    struct id_entry *entry = ids.latest;
    while (entry != NULL && (entry->device != device || entry->id.first != id.first ||
                             entry->id.second != id.second ||
                             (is_tag(id) && !pthread_equal(entry->thread, pthread_self())))) {
        entry = entry->older;
    }
    return entry;
}

static enum phase highest_phase(int device)
{
    enum phase highest = ID_CLOSED;
    for (const struct id_entry *entry = ids.latest; entry != NULL; entry = entry->older) {
        highest = entry->device == device && entry->phase > highest ? entry->phase : highest;
    }
    return highest;
}

/* Return the open entry of a capture: the one bound to it, otherwise the caller's own, otherwise
 * the latest. */
static struct id_entry *entry_of(int device, unsigned long long driver_id)
{
    struct id_entry *own = NULL, *other = NULL;
    for (struct id_entry *entry = ids.latest; entry != NULL; entry = entry->older) {
        if (entry->device != device || entry->phase < ID_OPEN) {
            continue;
        }
        if (entry->phase == ID_BOUND) {
            if (entry->driver_id == driver_id) {
                return entry;
            }
        } else if (pthread_equal(entry->thread, pthread_self()) && own == NULL) {
            own = entry;
        } else if (other == NULL) {
            other = entry;
        }
    }
    return own != NULL ? own : other;
}

/* Let the stream's capture use the entry's memory from now on. */
static fallow_status take_in(struct id_entry *entry, fallow_pool *pool, fallow_stream stream,
                             unsigned long long driver_id)
{
    if (entry->phase == ID_BOUND) {
        return fallow_capture_join(entry->capture, stream);
    }
    fallow_status status = entry->capture != NULL
                               ? flw_capture_resume(entry->capture, stream)
                               : fallow_capture_begin(pool, stream, &entry->capture);
    if (status == FALLOW_OK) {
        entry->driver_id = driver_id;
        entry->origin = stream;
        set_phase(entry, ID_BOUND);
    }
    return status;
}

static void check(fallow_status status, int device, const char *what)
{
    if (status != FALLOW_OK) {
        flw_plugin_log("a capture of device %d cannot be %s: %s", device, what,
                       fallow_status_message(status));
    }
}

static void let_go(struct id_entry *entry)
{
    if (entry->phase == ID_BOUND) {
        set_phase(entry, ID_OPEN);
        check(fallow_capture_end(entry->capture), entry->device, "ended");
    }
}

/* Drop captures of the device that are over without an end from PyTorch, as after an error inside
 * a capture. Makes driver calls. */
static void let_go_of_ended(int device)
{
    struct flw_pool *pool =
        flw_pool_of(flw_plugin_pool_of(flw_plugin_device_of(device), FALLOW_PLUGIN_STREAM));
    for (struct id_entry *entry = ids.latest; pool != NULL && entry != NULL; entry = entry->older) {
        CUstreamCaptureStatus status;
        cuuint64_t driver_id;
        if (entry->device == device && entry->phase == ID_BOUND &&
            ask(pool, entry->origin, &status, &driver_id) &&
            (status == CU_STREAM_CAPTURE_STATUS_NONE ||
             (status == CU_STREAM_CAPTURE_STATUS_ACTIVE && driver_id != entry->driver_id))) {
            let_go(entry);
        }
    }
}

/* Not while a capture of the device may be under way, which synchronising would end. Makes driver
 * calls. */
static void release_dying(int device)
{
    const struct flw_plugin_device *at = flw_plugin_device_of(device);
    if (ids.dying == NULL || highest_phase(device) >= ID_BEGUN) {
        return;
    }
    bool is_done = flw_plugin_synchronize(flw_plugin_pool_of(at, FALLOW_PLUGIN_STREAM));
    for (struct dying **place = &ids.dying; *place != NULL;) {
        struct dying *dying = *place;
        if (dying->device == device && is_done) {
            check(fallow_capture_release(dying->capture), device, "released");
            *place = dying->next;
            free(dying);
        } else {
            place = &dying->next;
        }
    }
}

static void unlink_entry(struct id_entry *entry)
{
    struct id_entry **place = &ids.latest;
    while (*place != entry) {
        place = &(*place)->older;
    }
    *place = entry->older;
}

static void drop_entry(struct id_entry *entry)
{
    struct dying *dying = entry->capture == NULL ? NULL : malloc(sizeof *dying);
    if (dying != NULL) {
        *dying = (struct dying){entry->device, entry->capture, ids.dying};
        ids.dying = dying;
    } else if (entry->capture != NULL) {
        flw_plugin_log("the memory of graph pool %llu:%llu is kept: the host has no memory left",
                       (unsigned long long)entry->id.first, (unsigned long long)entry->id.second);
    }
    unlink_entry(entry);
    free(entry);
}

static void close_entry(struct id_entry *entry)
{
    let_go(entry);
    set_phase(entry, ID_CLOSED);
    if (entry->use_count <= 0) {
        drop_entry(entry);
    }
}

void flw_graph_ids_lose(int device)
{
    pthread_mutex_lock(&ids.mutex);
    for (struct id_entry *entry = ids.latest; entry != NULL; entry = entry->older) {
        if (entry->device == device) {
            entry->capture = NULL;
            set_phase(entry, entry->phase == ID_BOUND ? ID_OPEN : entry->phase);
        }
    }
    for (struct dying **place = &ids.dying; *place != NULL;) {
        struct dying *dying = *place;
        if (dying->device == device) {
            *place = dying->next;
            free(dying);
        } else {
            place = &dying->next;
        }
    }
    pthread_mutex_unlock(&ids.mutex);
}

/* ---- calls */

/* Join a stream that is in the driver's capture. */
static fallow_status join_capture(int device, fallow_pool *pool, fallow_stream stream,
                                  unsigned long long driver_id)
{
    struct id_entry *entry = entry_of(device, driver_id);
    if (entry == NULL || entry->phase != ID_BOUND) {
        let_go_of_ended(device); /* one may have been on this stream, or of this id */
        entry = entry_of(device, driver_id);
    }
    return entry == NULL ? FALLOW_OK : take_in(entry, pool, stream, driver_id);
}

/* Drop the captures on a stream where the calling thread allocates outside any capture: they were
 * interrupted, and PyTorch reports no end. */
static void leave_captures(int device, fallow_stream stream)
{
    for (struct id_entry *entry = ids.latest; entry != NULL; entry = entry->older) {
        if (entry->device == device && entry->phase == ID_BOUND && entry->origin == stream) {
            let_go(entry);
        }
    }
}

/* After an allocation or a free of the calling thread. */
static void end_begun(int device)
{
    for (struct id_entry *entry = ids.latest; entry != NULL; entry = entry->older) {
        if (entry->device == device && entry->phase == ID_BEGUN &&
            pthread_equal(entry->thread, pthread_self())) {
            set_phase(entry, ID_OPEN);
        }
    }
}

/* Return the tag of the calling thread's latest open id; inside a capture only of a tag. */
static uint32_t present_tag(int device, bool is_captured)
{
    struct id_entry *entry = ids.latest;
    while (entry != NULL && (entry->device != device || entry->phase == ID_CLOSED ||
                             (is_captured && entry->phase != ID_TAG) ||
                             !pthread_equal(entry->thread, pthread_self()))) {
        entry = entry->older;
    }
    return entry == NULL ? 0
                         : (uint32_t)(entry->id.first != 0 ? entry->id.first : entry->id.second);
}

uint32_t flw_graph_ids_announce(int device, fallow_stream stream, bool is_free)
{
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t driver_id = 0;
    fallow_status status = FALLOW_OK;
    fallow_pool *handle = flw_plugin_make(device, FALLOW_PLUGIN_STREAM, &status);
    struct flw_pool *pool = flw_pool_of(handle);
    if (pool == NULL) {
        return 0; /* the caller detects it itself */
    }
    pthread_mutex_lock(&ids.mutex);
    bool may_be_captured = highest_phase(device) >= (is_free ? ID_BEGUN : ID_OPEN);
    pthread_mutex_unlock(&ids.mutex);
    bool has_answer = may_be_captured && ask(pool, stream, &capturing, &driver_id);
    bool is_captured = capturing == CU_STREAM_CAPTURE_STATUS_ACTIVE;
    pthread_mutex_lock(&ids.mutex);
    if (is_captured) {
        status = join_capture(device, handle, stream, driver_id);
    } else if (has_answer) {
        leave_captures(device, stream);
    }
    if (has_answer) {
        end_begun(device);
    }
    uint32_t tag = present_tag(device, is_captured);
    pthread_mutex_unlock(&ids.mutex);
    check(status, device, "joined");
    return tag;
}

bool flw_graph_ids_announce_to(struct flw_pool *pool, fallow_stream stream)
{
    int device = pool->config.device;
    bool may_begin = false;
    if (atomic_load(&flw_plugin_device_of(device)->open_ids) != 0) {
        pthread_mutex_lock(&ids.mutex);
        may_begin = highest_phase(device) >= ID_OPEN;
        pthread_mutex_unlock(&ids.mutex);
    }
    if (may_begin) {
        (void)flw_graph_ids_announce(device, stream, false);
    }
    return may_begin;
}

bool flw_graph_ids_guard(void)
{
    bool is_capturing = false;
    if (atomic_load(&ids.unsure_count) == 0) {
        return false;
    }
    for (int device = 0; device < FLW_PLUGIN_DEVICES; device++) {
        const struct flw_plugin_device *at = flw_plugin_device_of(device);
        if (atomic_load(&at->open_ids) != 0) {
            pthread_mutex_lock(&ids.mutex);
            let_go_of_ended(device);
            bool is_begun = highest_phase(device) == ID_BEGUN; /* BOUND captures are announced
                                                                   already */
            pthread_mutex_unlock(&ids.mutex);
            is_capturing |=
                is_begun && flw_plugin_any_captured(flw_plugin_pool_of(at, FALLOW_PLUGIN_STREAM));
        }
    }
    if (is_capturing) {
        fallow_context_capture_begin();
    }
    return is_capturing;
}

void flw_graph_ids_reap(int device)
{
    pthread_mutex_lock(&ids.mutex);
    let_go_of_ended(device);
    release_dying(device);
    pthread_mutex_unlock(&ids.mutex);
}

/* Add the entry of a begin, first in the list. NULL: no host memory. */
static struct id_entry *begin_entry(int device, fallow_mempool_id id)
{
    struct id_entry *entry = is_tag(id) ? NULL : find_entry(device, id);
    if (entry != NULL) {
        unlink_entry(entry);
    } else if ((entry = calloc(1, sizeof *entry)) != NULL) {
        entry->device = device;
        entry->id = id;
    } else {
        flw_plugin_log("graph pool %llu:%llu cannot begin: the host has no memory left",
                       (unsigned long long)id.first, (unsigned long long)id.second);
        return NULL;
    }
    entry->older = ids.latest;
    ids.latest = entry;
    return entry;
}

static void open_entry(int device, fallow_mempool_id id)
{
    struct id_entry *entry = begin_entry(device, id);
    if (entry == NULL) {
        return;
    }
    entry->use_count++;
    entry->thread = pthread_self();
    if (entry->phase != ID_BOUND) {
        set_phase(entry, is_tag(id) ? ID_TAG : ID_BEGUN);
    }
}

void fallow_torch_begin_allocate_to_pool(int device, fallow_mempool_id id, void *filter)
{
    (void)filter;
    if (flw_plugin_device_of(device) == NULL) {
        return;
    }
    pthread_mutex_lock(&ids.mutex);
    open_entry(device, id);
    struct flw_pool *pool =
        flw_pool_of(flw_plugin_pool_of(flw_plugin_device_of(device), FALLOW_PLUGIN_STREAM));
    if (pool != NULL) { /* makes the next lease of each arena query for captures */
        atomic_fetch_add_explicit(&pool->heap.count.order_changes, 1, memory_order_release);
    }
    pthread_mutex_unlock(&ids.mutex);
}

void fallow_torch_end_allocate_to_pool(int device, fallow_mempool_id id)
{
    pthread_mutex_lock(&ids.mutex);
    struct id_entry *entry = find_entry(device, id);
    if (entry != NULL) {
        close_entry(entry);
        release_dying(device);
    }
    pthread_mutex_unlock(&ids.mutex);
}

void fallow_torch_release_pool(int device, fallow_mempool_id id)
{
    pthread_mutex_lock(&ids.mutex);
    struct id_entry *entry = find_entry(device, id);
    if (entry != NULL && --entry->use_count <= 0) {
        close_entry(entry);
        release_dying(device);
    }
    pthread_mutex_unlock(&ids.mutex);
}

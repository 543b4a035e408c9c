/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: PyTorch's ids of graph memory. An id stands for one capture of the pool, which is resumed for
 * each graph captured with that id, and released after the last of them.
 *
 * PyTorch tells when allocating to an id begins and ends, not on which streams. So while an id is open,
 * each call of the torch pair asks the driver whether its stream is being captured, and by which capture:
 * the first call of a new capture binds it to an open id.
 */
#include <stdlib.h>

#include "fallow/extend.h"

#include "plugin/default_pools.h"

/* INVARIANTS
 *   1. is_open entries of a device are as many as its open_ids.
 *   2. is_bound: is_open, and the pool's capture is capturing, for the driver's capture driver_id.
 *   3. Of two open entries of a device at most one is bound to a driver_id.
 * Synchronization: the mutex below. */
struct id_entry {
    int device;
    fallow_mempool_id id;
    int64_t use_count;       /* begins less releases */
    fallow_capture *capture; /* NULL: nothing captured yet */
    bool is_open;
    bool is_bound;
    unsigned long long driver_id;
    fallow_stream origin;   /* of the capture that is bound */
    pthread_t thread;       /* that began */
    struct id_entry *older; /* the list, latest first */
};

/* A capture whose id is gone: released once the context has done what it was given. */
struct dying {
    int device;
    fallow_capture *capture;
    struct dying *next;
};

static struct {
    pthread_mutex_t mutex;
    struct id_entry *latest;
    struct dying *dying;
} ids = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* The entries stay where they are: what they name is gone with the parent's pools. */
void flw_graph_ids_forget(void)
{
    pthread_mutex_init(&ids.mutex, NULL);
    ids.latest = NULL;
    ids.dying = NULL;
}

/* ---- what the driver says */

bool flw_plugin_ask_capture(struct flw_pool *pool, fallow_stream stream,
                            unsigned long long *out_driver_id)
{
    struct flw_driver_section section;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result;
    cuuint64_t id = 0;
    if (!flw_heap_enter_driver(&pool->heap, &section)) {
        return false;
    }
    flw_heap_count_call(&pool->heap);
    if (pool->driver.cuStreamGetCaptureInfo_v2 != NULL) {
        result = pool->driver.cuStreamGetCaptureInfo_v2(stream, &status, &id, NULL, NULL, NULL);
    } else {
        result = pool->driver.cuStreamIsCapturing(stream, &status);
    }
    flw_heap_leave_driver(&pool->heap, &section);
    *out_driver_id = id;
    return result == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

/* ---- entries; the mutex */

static struct id_entry *find_entry(int device, fallow_mempool_id id)
{
    struct id_entry *entry = ids.latest;
    while (entry != NULL && (entry->device != device || entry->id.first != id.first ||
                             entry->id.second != id.second)) {
        entry = entry->older;
    }
    return entry;
}

/* The open entry of a capture: the one bound to it, else the caller's own, else the latest. */
static struct id_entry *entry_of(int device, unsigned long long driver_id)
{
    struct id_entry *own = NULL, *other = NULL;
    for (struct id_entry *entry = ids.latest; entry != NULL; entry = entry->older) {
        if (entry->device != device || !entry->is_open) {
            continue;
        }
        if (entry->is_bound && entry->driver_id == driver_id) {
            return entry;
        }
        if (!entry->is_bound && pthread_equal(entry->thread, pthread_self()) && own == NULL) {
            own = entry;
        } else if (!entry->is_bound && other == NULL) {
            other = entry;
        }
    }
    return own != NULL ? own : other;
}

/* The stream's capture goes into the entry's memory from now on. */
static fallow_status take_in(struct id_entry *entry, fallow_pool *pool, fallow_stream stream)
{
    fallow_status status = entry->is_bound ? fallow_capture_join(entry->capture, stream)
                           : entry->capture != NULL
                               ? flw_capture_resume(entry->capture, stream)
                               : fallow_capture_begin(pool, stream, &entry->capture);
    if (status == FALLOW_OK && !entry->is_bound) {
        entry->is_bound = true;
        entry->origin = stream;
    }
    return status;
}

static void check(fallow_status status, int device, const char *what)
{
    if (status != FALLOW_OK) {
        flw_plugin_say("a capture of device %d cannot be %s: %s", device, what,
                       fallow_status_message(status));
    }
}

static void let_go(struct id_entry *entry)
{
    if (entry->is_bound) {
        entry->is_bound = false;
        check(fallow_capture_end(entry->capture), entry->device, "ended");
    }
}

static void release_dying(int device)
{
    const struct flw_plugin_device *at = flw_plugin_device_of(device);
    if (ids.dying == NULL || atomic_load(&at->open_ids) != 0) {
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

static void drop_entry(struct id_entry *entry)
{
    struct id_entry **place = &ids.latest;
    while (*place != entry) {
        place = &(*place)->older;
    }
    *place = entry->older;
    struct dying *dying = entry->capture == NULL ? NULL : malloc(sizeof *dying);
    if (dying != NULL) {
        *dying = (struct dying){entry->device, entry->capture, ids.dying};
        ids.dying = dying;
    } else if (entry->capture != NULL) {
        flw_plugin_say("the memory of graph pool %llu:%llu is kept: the host has no memory left",
                       (unsigned long long)entry->id.first, (unsigned long long)entry->id.second);
    }
    free(entry);
}

static void close_entry(struct id_entry *entry)
{
    let_go(entry);
    if (entry->is_open) {
        entry->is_open = false;
        fallow_context_capture_end();
        atomic_fetch_sub(&flw_plugin_device_of(entry->device)->open_ids, 1);
    }
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
            entry->is_bound = false;
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

uint32_t flw_graph_ids_announce(int device, fallow_stream stream)
{
    unsigned long long driver_id = 0;
    uint32_t tag = 0;
    fallow_status status = FALLOW_OK;
    fallow_pool *handle = flw_plugin_make(device, FALLOW_PLUGIN_STREAM, &status);
    struct flw_pool *pool = flw_pool_of(handle);
    if (pool == NULL) {
        return 0; /* the caller finds out itself */
    }
    bool is_captured = flw_plugin_ask_capture(pool, stream, &driver_id);
    pthread_mutex_lock(&ids.mutex);
    if (is_captured) {
        struct id_entry *entry = entry_of(device, driver_id);
        if (entry != NULL) {
            bool is_new = !entry->is_bound;
            status = take_in(entry, handle, stream);
            entry->driver_id = is_new ? driver_id : entry->driver_id;
        }
    } else {
        struct id_entry *next;
        for (struct id_entry *entry = ids.latest; entry != NULL; entry = next) {
            next = entry->older;
            if (entry->device != device || !entry->is_open) {
                continue;
            }
            if (entry->is_bound && entry->origin == stream) {
                let_go(entry); /* its capture was broken off, PyTorch says no end then */
            } else if (pthread_equal(entry->thread, pthread_self()) && tag == 0) {
                tag = (uint32_t)(entry->id.first != 0 ? entry->id.first : entry->id.second);
            }
        }
    }
    pthread_mutex_unlock(&ids.mutex);
    check(status, device, "joined");
    return tag;
}

static void open_entry(int device, fallow_mempool_id id)
{
    struct id_entry *entry = find_entry(device, id);
    if (entry == NULL) {
        entry = calloc(1, sizeof *entry);
        if (entry == NULL) {
            flw_plugin_say("graph pool %llu:%llu cannot begin: the host has no memory left",
                           (unsigned long long)id.first, (unsigned long long)id.second);
            return;
        }
        *entry = (struct id_entry){.device = device, .id = id, .older = ids.latest};
        ids.latest = entry;
    }
    entry->use_count++;
    entry->thread = pthread_self();
    if (!entry->is_open) {
        entry->is_open = true;
        fallow_context_capture_begin();
        atomic_fetch_add(&flw_plugin_device_of(device)->open_ids, 1);
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
    if (entry != NULL && --entry->use_count <= 0 && !entry->is_open) {
        drop_entry(entry);
        release_dying(device);
    }
    pthread_mutex_unlock(&ids.mutex);
}

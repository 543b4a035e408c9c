/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the controls of fallow/simcuda.h for the world: reset, clock, scheduler, touch, ledger,
 * extents. Does not: implement driver calls. */
#include <string.h>

#include "base/bits.h"
#include "simcuda/check.h"
#include "simcuda/forms.h"
#include "simcuda/storage.h"

FLW_SIM_EXPORT void flw_sim_reset(const flw_sim_config *config);
FLW_SIM_EXPORT void flw_sim_advance(uint64_t ns);
FLW_SIM_EXPORT uint64_t flw_sim_step(uint64_t n);
FLW_SIM_EXPORT int flw_sim_touch(struct CUstream_st *stream, const flw_sim_range *ranges,
                                 size_t count);
FLW_SIM_EXPORT void flw_sim_get_ledger(int device, flw_sim_ledger *out);
FLW_SIM_EXPORT uint64_t flw_sim_call_count(const char *entry);
FLW_SIM_EXPORT size_t flw_sim_get_extents(int device, flw_sim_extent *out, size_t capacity);

void flw_sim_reset(const flw_sim_config *config)
{
    pthread_mutex_lock(&flw_world.lock);
    flw_world_reset(config);
    pthread_cond_broadcast(&flw_world.changed);
    pthread_mutex_unlock(&flw_world.lock);
}

void flw_sim_advance(uint64_t ns)
{
    pthread_mutex_lock(&flw_world.lock);
    flw_world_make_ready();
    flw_world.asked_count = 0; /* time passes without polling */
    flw_order_advance(flw_thread_get(), flw_world.clock_ns + ns);
    pthread_mutex_unlock(&flw_world.lock);
}

uint64_t flw_sim_step(uint64_t n)
{
    pthread_mutex_lock(&flw_world.lock);
    flw_world_make_ready();
    uint64_t done = flw_order_step(flw_thread_get(), n, true);
    pthread_mutex_unlock(&flw_world.lock);
    return done;
}

static CUresult touch(struct flw_thread *thread, CUstream handle, const flw_sim_range *ranges,
                      size_t count)
{
    CUresult error = CUDA_SUCCESS;
    FLW_REFUSE_IF(thread->is_in_callback, CUDA_ERROR_NOT_PERMITTED);
    struct flw_stream *stream = flw_stream_find(thread, handle, &error);
    if (stream == NULL) {
        return error;
    }
    /* As a kernel launch: "the stream is not associated to the current device" is an error. A
     * green context's stream goes with the primary context's: programs launch to it without making
     * anything current. */
    struct flw_context *current = flw_context_current(thread, &error);
    if (current == NULL || flw_context_owner(current) != flw_context_owner(stream->context)) {
        return error != CUDA_SUCCESS ? error : CUDA_ERROR_INVALID_HANDLE;
    }
    struct flw_work work = {.kind = FLW_WORK_TOUCH,
                            .name = "touch",
                            .ranges = (flw_sim_range *)(uintptr_t)ranges,
                            .range_count = count};
    return flw_order_submit(stream, &work, NULL);
}

int flw_sim_touch(struct CUstream_st *stream, const flw_sim_range *ranges, size_t count)
{
    pthread_mutex_lock(&flw_world.lock);
    flw_world_make_ready();
    struct flw_thread *thread = flw_thread_get();
    CUresult result = CUDA_SUCCESS;
    if (!flw_world.is_initialised) {
        result = CUDA_ERROR_NOT_INITIALIZED;
    } else if (ranges == NULL && count > 0) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else {
        if (flw_world.active_count != 0) {
            flw_order_drift(thread, false);
        }
        flw_world.asked_count = 0; /* a host that submits work between two queries does not
                                       wait */
        result = touch(thread, stream, ranges, count);
    }
    pthread_mutex_unlock(&flw_world.lock);
    return (int)result;
}

static void read_ledger(const struct flw_device *device, flw_sim_ledger *out)
{
    const struct flw_world *w = &flw_world;
    out->given_bytes = device->given_bytes;
    out->peak_given_bytes = device->peak_given_bytes;
    out->total_given_bytes = device->total_given_bytes;
    out->allocation_count = device->allocation_count;
    out->pinned_bytes = w->pinned_bytes;
    out->reserved_address_bytes = w->reserved_address_bytes;
    out->handle_count = w->handle_table.live_count;
    out->mapping_count = w->mapping_count;
    out->stream_count = w->stream_table.live_count;
    out->event_count = w->event_table.live_count;
    out->context_count = w->context_count;
    out->graph_count = w->graph_table.live_count + w->executable_table.live_count;
    out->call_count = w->call_count;
    out->modelled_host_ns = w->modelled_host_ns;
    out->clock_ns = w->clock_ns;
    out->stream_wait_ns = w->stream_wait_ns;
    out->violation_count = w->violation_count;
    out->host_wait_count = w->host_wait_count;
    out->host_wait_ns = w->host_wait_ns;
}

void flw_sim_get_ledger(int device, flw_sim_ledger *out)
{
    flw_sim_ledger ledger = {.struct_size = out->struct_size};
    size_t bytes = out->struct_size;
    if (bytes == 0 || bytes > sizeof ledger) {
        bytes = sizeof ledger;
    }
    pthread_mutex_lock(&flw_world.lock);
    flw_world_make_ready();
    struct flw_device *found = flw_device_find(device);
    if (found != NULL) {
        flw_memory_collect();
        read_ledger(found, &ledger);
    }
    pthread_mutex_unlock(&flw_world.lock);
    memcpy(out, &ledger, bytes);
}

uint64_t flw_sim_call_count(const char *entry)
{
    pthread_mutex_lock(&flw_world.lock);
    flw_world_make_ready();
    uint64_t count = flw_world.call_count;
    if (entry != NULL) {
        unsigned index = flw_entry_find(entry);
        count = index < FLW_ENTRY_COUNT ? flw_world.calls[index] : flw_absent_calls(entry);
    }
    pthread_mutex_unlock(&flw_world.lock);
    return count;
}

/* ---- a device's memory by address, for drawing */

struct list {
    flw_sim_extent *extents;
    size_t count, capacity;
    const struct flw_device *device;
};

static void add(struct list *list, const struct flw_tree_node *node, uint32_t kind)
{
    if (list->count < list->capacity) {
        list->extents[list->count] = (flw_sim_extent){
            .address = node->begin, .bytes = node->end - node->begin, .kind = kind};
    }
    list->count++;
}

/* Adjacent mappings are one extent. */
static void add_mapping(struct list *list, struct flw_tree_node *run,
                        const struct flw_tree_node *node)
{
    if (FLW_CONTAINER(node, struct flw_mapping, node)->physical->device != list->device) {
        return;
    }
    if (run->end != node->begin) {
        if (run->end != 0) {
            add(list, run, FLW_SIM_EXTENT_MAPPED);
        }
        run->begin = node->begin;
    }
    run->end = node->end;
}

/* List the mappings inside one reservation. */
static void add_mappings(struct list *list, const struct flw_tree_node *reservation)
{
    struct flw_tree_node run = {0}; /* adjacent mappings so far */
    const struct flw_tree_node *node = flw_tree_from(&flw_world.mappings, reservation->begin);
    for (; node != NULL && node->begin < reservation->end; node = node->next) {
        add_mapping(list, &run, node);
    }
    if (run.end != 0) {
        add(list, &run, FLW_SIM_EXTENT_MAPPED);
    }
}

static void add_region(struct list *list, const struct flw_tree_node *node)
{
    const struct flw_region *region = FLW_CONTAINER(node, struct flw_region, node);
    if (region->kind == FLW_REGION_RESERVATION) {
        add_mappings(list, node);
    } else if (region->device == list->device && region->kind == FLW_REGION_ALLOCATION) {
        add(list, node, FLW_SIM_EXTENT_ALLOCATION);
    } else if (region->device == list->device && region->kind == FLW_REGION_POOLED) {
        add(list, node, FLW_SIM_EXTENT_POOLED);
    }
}

size_t flw_sim_get_extents(int device, flw_sim_extent *out, size_t capacity)
{
    struct list list = {.extents = out, .capacity = out == NULL ? 0 : capacity};
    pthread_mutex_lock(&flw_world.lock);
    flw_world_make_ready();
    list.device = flw_device_find(device);
    if (list.device != NULL) {
        for (const struct flw_tree_node *node = flw_tree_from(&flw_world.regions, 0); node != NULL;
             node = node->next) {
            add_region(&list, node);
        }
    }
    pthread_mutex_unlock(&flw_world.lock);
    return list.count;
}

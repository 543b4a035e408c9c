/* SPDX-License-Identifier: Apache-2.0 */
#include "heap/life.h"

#include <string.h>

#include "heap/caches/tcache.h"
#include "heap/order/domain.h"
#include "heap/order/sync.h"
#include "heap/physical/handle.h"
#include "heap/physical/physical.h"
#include "heap/physical/range.h"
#include "heap/space/run.h"

#define OBJECT_ARENA_BYTES (16 * FLW_GIB)
#define OBJECT_ARENA_LEAST (32 * FLW_MIB)
#define NOTE_ARENA_BYTES   (1 * FLW_GIB)
#define NOTE_ARENA_LEAST   (4 * FLW_MIB)
#define SHARE              4 /* the tables take this part of a limit's remainder */

/* ---- the size of the tables */

/* Batches, fences, deferred frees, handles, domains. */
static uint64_t object_bytes(unsigned shrink)
{
    return flw_max(OBJECT_ARENA_BYTES >> shrink, OBJECT_ARENA_LEAST);
}

uint64_t flw_tables_side_record_bytes(unsigned shrink)
{
    return flw_max(NOTE_ARENA_BYTES >> shrink, NOTE_ARENA_LEAST);
}

/* Bytes of the tables that name `window_bytes` of addresses, and streams. */
static uint64_t naming_bytes(const struct flw_source *source, uint64_t window_bytes)
{
    bool remaps = source->ops->remaps;
    uint64_t handle_bytes =
        remaps ? window_bytes / source->granularity_bytes * sizeof(struct flw_handle *) : 0;
    return flw_page_map_name_bytes(remaps, window_bytes) + flw_meta_rounded_bytes(handle_bytes) +
           flw_meta_rounded_bytes(FLW_STREAM_IDS_BYTES) + flw_meta_rounded_bytes(FLW_PLACES_BYTES);
}

static uint64_t fixed_bytes(const struct flw_heap *heap)
{
    return naming_bytes(&heap->source, heap->ranges.window_bytes);
}

static uint64_t shrinking_bytes(unsigned shrink)
{
    return flw_page_map_block_bytes(shrink) + flw_meta_rounded_bytes(object_bytes(shrink)) +
           flw_meta_rounded_bytes(flw_tables_side_record_bytes(shrink));
}

uint64_t flw_tables_reserve_bytes(const struct flw_heap *heap, unsigned shrink)
{
    return fixed_bytes(heap) + shrinking_bytes(shrink);
}

/* Return how often to halve the tables if `allowance` bytes may be mapped. */
static unsigned choose_tables(const struct flw_heap *heap, uint64_t allowance)
{
    uint64_t fixed = fixed_bytes(heap);
    uint64_t room = allowance > fixed ? (allowance - fixed) / SHARE : 0;
    unsigned shrink = 0;
    while (shrink < FLW_TABLE_SHRINK_MAX && shrinking_bytes(shrink) > room) {
        shrink++;
    }
    return shrink;
}

static uint64_t refusals_of(const struct flw_meta *meta)
{
    return __atomic_load_n(&meta->refusals, __ATOMIC_RELAXED);
}

uint64_t flw_tables_refusals(const struct flw_heap *heap)
{
    return refusals_of(&heap->map.span_meta) + refusals_of(&heap->map.slot_meta) +
           refusals_of(&heap->objects.meta);
}

static bool is_full(const struct flw_meta *meta)
{
    return __atomic_load_n(&meta->is_full, __ATOMIC_RELAXED);
}

bool flw_tables_are_full(const struct flw_heap *heap)
{
    return is_full(&heap->map.span_meta) || is_full(&heap->map.slot_meta) ||
           is_full(&heap->objects.meta);
}

/* ---- the source and the addresses */

static void begin_source(struct flw_heap *heap, const struct flw_heap_config *config)
{
    heap->source = (struct flw_source){.ops = config->source,
                                       .driver = config->driver,
                                       .context = config->context,
                                       .device = config->device,
                                       .access_devices = {config->device},
                                       .access_count = 1,
                                       .named_kinds = config->handle_types,
                                       .call_count = &heap->count.driver_calls};
    for (uint32_t i = 0; i < config->peer_count && heap->source.access_count < FLW_SOURCE_DEVICES;
         i++) {
        heap->source.access_devices[heap->source.access_count++] = config->peers[i];
    }
}

/* True if handles are required. */
static bool must_remap(const struct flw_heap_config *config)
{
    return (config->source != NULL && config->source->remaps) || config->handle_types != 0 ||
           config->peer_count != 0;
}

/* Reserve at least as much as the pool may hold, since one block may need all of it. If the driver
 * refuses, the pool uses segments. If handles are required, or a limit of the address space has no
 * room for the tables of segments, accept less. */
static CUresult reserve_first(struct flw_heap *heap, const struct flw_heap_config *config)
{
    bool may_extend =
        flw_meta_allowance() / SHARE >= naming_bytes(&heap->source, FLW_ADDRESS_SPACE_BYTES);
    uint64_t least_bytes = may_extend && !must_remap(config) ? config->limit_bytes : 0;
    return flw_ranges_begin(heap, config->device_bytes, least_bytes, may_extend);
}

/* Reserve addresses and take one grain through its whole life there. *out_can is false if the
 * driver refused; nothing is left then. */
static CUresult prove_remapping(struct flw_heap *heap, const struct flw_heap_config *config,
                                bool *out_can)
{
    struct flw_source *source = &heap->source;
    CUresult result = reserve_first(heap, config);
    if (result != CUDA_SUCCESS) {
        *out_can = false;
        return flw_source_refuse(source, result, "cuMemAddressReserve");
    }
    if (source->ops == &flw_source_vmm) {
        uint64_t first_unit = heap->ranges.first.begin_unit;
        result =
            flw_source_vmm_probe(source, heap->map.base + (first_unit << FLW_UNIT_LOG2), out_can);
    }
    if (result != CUDA_SUCCESS || !*out_can) {
        (void)flw_ranges_end(heap);
    }
    return result;
}

/* Choose handles if they work or are required, otherwise segments, which other devices and
 * processes cannot share. Call in a driver section. */
static fallow_status choose_source(struct flw_heap *heap, const struct flw_heap_config *config)
{
    struct flw_source *source = &heap->source;
    bool can_remap = false;
    CUresult result = CUDA_SUCCESS;
    begin_source(heap, config);
    if (config->source == NULL || config->source->remaps) {
        source->ops = config->source != NULL ? config->source : &flw_source_vmm;
        result = flw_source_vmm_ask(source, &can_remap);
        if (result != CUDA_SUCCESS) {
            return flw_heap_refuse(heap, result, "the query of virtual memory management");
        }
        if (can_remap || source->ops != &flw_source_vmm) {
            can_remap = true;
            result = prove_remapping(heap, config, &can_remap);
        }
        if (result != CUDA_SUCCESS) {
            return flw_heap_refuse(heap, result, "the probe of virtual memory management");
        }
    }
    if (can_remap) {
        return FALLOW_OK;
    }
    source->ops = config->source != NULL ? config->source : &flw_source_slab;
    source->granularity_bytes = 2 * FLW_MIB;
    atomic_store(&source->kinds, 0);
    heap->map.base = 0;
    heap->ranges.window_bytes = FLW_ADDRESS_SPACE_BYTES;
    return must_remap(config) ? FALLOW_NOT_SUPPORTED : FALLOW_OK;
}

static fallow_status open_source(struct flw_heap *heap, const struct flw_heap_config *config)
{
    struct flw_driver_section section;
    fallow_status status = FALLOW_DRIVER;
    if (flw_heap_enter_driver(heap, &section)) {
        status = choose_source(heap, config);
        flw_heap_leave_driver(heap, &section);
    }
    if (flw_heap_is_lost(heap)) {
        (void)flw_ranges_end(heap);
        flw_heap_note_error(heap, (CUresult)atomic_load(&heap->lost_error),
                            atomic_load(&heap->lost_call));
        return FALLOW_DRIVER;
    }
    return status;
}

/* ---- making */

/* Create the domain of complete memory that several streams share. */
static bool make_multi_stream(struct flw_heap *heap)
{
    heap->multi_stream = flw_domain_create(heap, &flw_order_no_stream, NULL, NULL, 0);
    if (heap->multi_stream != NULL) {
        heap->multi_stream->is_known = true;
        heap->multi_stream->is_retired = true;
        heap->multi_stream->completed = heap->multi_stream->seq++;
    }
    return heap->multi_stream != NULL;
}

/* Create the one order domain of the context, and the owner of complete dedicated runs. */
static bool make_context_order(struct flw_heap *heap)
{
    bool can_record = heap->driver->cuCtxRecordEvent != NULL;
    heap->context_order = flw_domain_create(
        heap, can_record ? &flw_order_context : &flw_order_unrecorded, NULL, heap->context, 0);
    heap->dedicated = flw_domain_create(heap, &flw_order_no_stream, NULL, NULL, 0);
    heap->dedicated_bytes = FLW_DEDICATED_BYTES;
    return heap->context_order != NULL && heap->dedicated != NULL;
}

static bool reserve_handles(struct flw_heap *heap)
{
    uint64_t pages = heap->ranges.window_bytes / heap->source.granularity_bytes;
    if (!heap->source.ops->remaps) {
        return true;
    }
    if (!flw_meta_reserve(&heap->handle_meta, pages * sizeof *heap->page_handle) ||
        !flw_meta_open(&heap->handle_meta)) {
        return false;
    }
    heap->page_handle = (struct flw_handle **)(void *)heap->handle_meta.base;
    return true;
}

static void release_tables(struct flw_heap *heap)
{
    flw_page_map_finish(&heap->map);
    flw_meta_release(&heap->objects.meta);
    flw_places_finish(&heap->places);
    flw_stream_ids_finish(&heap->stream_ids);
    flw_meta_release(&heap->handle_meta);
    heap->page_handle = NULL;
}

/* Create tables as large as a limit of the address space permits; smaller if the system refuses. */
static bool make_tables(struct flw_heap *heap)
{
    uint64_t base = heap->map.base;
    heap->slabs.bin_offsets = flw_bin_offsets();
    unsigned shrink = choose_tables(heap, flw_meta_allowance());
    for (; shrink <= FLW_TABLE_SHRINK_MAX; shrink++) {
        heap->table_shrink = shrink;
        if (flw_page_map_init(&heap->map, base, heap->ranges.window_bytes, heap->source.ops->remaps,
                              heap->slabs.bin_offsets[FLW_CLASS_COUNT], shrink) &&
            flw_meta_reserve(&heap->objects.meta, object_bytes(shrink)) &&
            flw_places_init(&heap->places, &heap->domains) &&
            flw_stream_ids_init(&heap->stream_ids) && reserve_handles(heap)) {
            return true;
        }
        release_tables(heap);
    }
    return false;
}

fallow_status flw_heap_init(struct flw_heap *heap, const struct flw_heap_config *config)
{
    memset(heap, 0, sizeof *heap);
    flw_lock_init(&heap->lock, FLW_RANK_PAGE);
    heap->driver = config->driver;
    heap->context = config->context;
    heap->limit_bytes = config->limit_bytes;
    heap->dedicated_units = heap->first_dedicated_units = UINT32_MAX;
    fallow_status status = open_source(heap, config);
    if (status != FALLOW_OK) {
        return status;
    }
    bool remaps = heap->source.ops->remaps;
    heap->page_units = (uint32_t)(heap->source.granularity_bytes >> FLW_UNIT_LOG2);
    uint64_t base = heap->map.base;
    if (!make_tables(heap)) {
        goto fail;
    }
    heap->base_unit = base >> FLW_UNIT_LOG2;
    struct flw_domain *unowned = flw_domain_create(heap, &flw_order_capture, NULL, NULL, 0);
    bool has_domains = unowned != NULL && (!config->keeps_owners || make_multi_stream(heap)) &&
                       (!config->is_context_order || make_context_order(heap));
    if (!has_domains || (remaps && !flw_ranges_open(heap))) {
        goto fail;
    }
    unowned->completed = UINT64_MAX; /* unowned memory is complete */
    flw_lock_acquire(&heap->lock);
    flw_heap_adopt_left(heap);
    flw_lock_release(&heap->lock);
    return FALLOW_OK;
fail:
    flw_heap_finish(heap, false);
    return FALLOW_OUT_OF_HOST_MEMORY;
}

/* ---- unmaking */

/* False if the event ended with the context: another object may have the handle now. */
static bool has_event(struct flw_heap *heap, const struct flw_fence *fence)
{
    unsigned long long id = 0;
    if (fence->event == NULL || fence->context_id == 0) {
        return fence->event != NULL;
    }
    flw_heap_count_call(heap);
    return heap->driver->cuCtxGetId(fence->context, &id) == CUDA_SUCCESS && id == fence->context_id;
}

#define GIVE_ROUNDS 3

/* Calls that one round of releasing was refused. */
struct leftover {
    uint64_t bytes;
    uint32_t count; /* of calls */
};

/* Record the result of a release. Returns true if the object is released. */
static bool note_given(struct flw_heap *heap, struct leftover *left, CUresult result,
                       const char *call, uint64_t bytes)
{
    if (flw_heap_refuse(heap, result, call) != FALLOW_OK) {
        left->bytes += bytes;
        left->count++;
    }
    return result == CUDA_SUCCESS;
}

static void destroy_events(struct flw_heap *heap, struct leftover *left)
{
    for (struct flw_fence *fence = heap->objects.newest_fence; fence != NULL;
         fence = fence->older_made) {
        if (has_event(heap, fence)) {
            flw_heap_count_call(heap);
            CUresult result = heap->driver->cuEventDestroy_v2(fence->event);
            if (note_given(heap, left, result, "cuEventDestroy", 0)) {
                fence->event = NULL;
            }
        }
    }
}

/* The driver keeps mapped memory even without the handle. */
static void give_handle(struct flw_heap *heap, struct flw_handle *handle, struct leftover *left)
{
    uint64_t bytes = (uint64_t)handle->unit_count << FLW_UNIT_LOG2;
    left->bytes += handle->is_mapped ? bytes : 0;
    if (handle->id != 0) {
        CUresult result = heap->source.ops->release(&heap->source, handle->id);
        if (note_given(heap, left, result, "cuMemRelease", handle->is_mapped ? 0 : bytes)) {
            handle->id = 0;
        }
    }
}

static struct leftover give_round(struct flw_heap *heap)
{
    struct leftover left = {0};
    (void)note_given(heap, &left, flw_heap_unmap_all(heap, true, true), "cuMemUnmap", 0);
    struct flw_handle_walk walk = {NULL, 0};
    for (struct flw_handle *handle; (handle = flw_handle_next(heap, &walk)) != NULL;) {
        give_handle(heap, handle, &left);
    }
    for (struct flw_handle *handle = heap->idle_handles; handle != NULL; handle = handle->next) {
        give_handle(heap, handle, &left);
    }
    for (struct flw_segment *segment = heap->segments.newest; segment != NULL;
         segment = segment->next) {
        if (segment->address != 0) {
            CUresult result = heap->source.ops->release_segment(&heap->source, segment->address);
            if (note_given(heap, &left, result, "cuMemFree", segment->bytes)) {
                segment->address = 0;
            }
        }
    }
    destroy_events(heap, &left);
    if (left.count == 0) {
        (void)note_given(heap, &left, flw_ranges_end(heap), "cuMemAddressFree", 0);
    }
    return left;
}

bool flw_heap_release_all(struct flw_heap *heap, uint64_t *out_kept_bytes)
{
    struct leftover left = {.count = 1};
    (void)flw_heap_end_copies(heap);
    for (unsigned n = 0; n < GIVE_ROUNDS && left.count > 0 && !flw_heap_is_lost(heap); n++) {
        left = give_round(heap);
    }
    *out_kept_bytes = left.bytes;
    return left.count == 0;
}

void flw_heap_finish(struct flw_heap *heap, bool is_lost)
{
    if (!is_lost) {
        uint64_t kept_bytes;
        (void)flw_heap_release_all(heap, &kept_bytes);
    }
    release_tables(heap);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the making and unmaking of a heap, its small objects, and the frame around driver calls.
 */
#include "heap/tcache.h"

#include <string.h>

#include "fallow/fallow.h"
#include "heap/tables.h"

#define ADDRESS_BITS 47

/* ---- objects: recycled within their kind */

#define DEFINE_OBJECT(name, unused)                                             \
    struct flw_##name *flw_heap_new_##name(struct flw_heap *heap)               \
    {                                                                           \
        struct flw_##name *object = heap->unused;                               \
        if (object != NULL) {                                                   \
            heap->unused = object->next;                                        \
        } else {                                                                \
            object = flw_meta_extend(&heap->object_meta, sizeof *object, 16);   \
        }                                                                       \
        return object;                                                          \
    }                                                                           \
    void flw_heap_drop_##name(struct flw_heap *heap, struct flw_##name *object) \
    {                                                                           \
        object->next = heap->unused;                                            \
        heap->unused = object;                                                  \
    }

DEFINE_OBJECT(batch, unused_batches)
DEFINE_OBJECT(pending, unused_pendings)
DEFINE_OBJECT(handle, unused_handles)
DEFINE_OBJECT(segment, unused_segments)
#undef DEFINE_OBJECT

/* ---- fences and their events */

struct flw_fence *flw_fence_new(struct flw_heap *heap, CUcontext context, uint64_t context_id)
{
    struct flw_fence **link = &heap->unused_fences;
    for (; *link != NULL; link = &(*link)->next) {
        if ((*link)->context == context && (*link)->context_id == context_id) {
            struct flw_fence *fence = *link;
            *link = fence->next;
            return fence;
        }
    }
    struct flw_fence *fence = flw_meta_extend(&heap->object_meta, sizeof *fence, 16);
    if (fence != NULL) {
        *fence = (struct flw_fence){
            .context = context, .context_id = context_id, .older_made = heap->newest_made};
        heap->newest_made = fence;
    }
    return fence;
}

void flw_fence_drop(struct flw_heap *heap, struct flw_fence *fence)
{
    for (struct flw_fence *other; FLW_UNLIKELY((other = fence->others) != NULL);) {
        fence->others = other->next;
        other->next = heap->unused_fences;
        heap->unused_fences = other;
    }
    fence->is_unlinked = false;
    fence->next = heap->unused_fences;
    heap->unused_fences = fence;
}

CUresult flw_fence_make_event(struct flw_heap *heap, struct flw_fence *fence)
{
    if (fence->event != NULL) {
        return CUDA_SUCCESS;
    }
    flw_heap_count_call(heap);
    CUresult result = heap->driver->cuEventCreate(&fence->event, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS) {
        fence->event = NULL;
    }
    return result == CUDA_ERROR_OUT_OF_MEMORY ? CUDA_ERROR_NOT_READY : result;
}

#define SPARE_EVENTS 15

void flw_fence_make_spares(struct flw_heap *heap)
{
    struct flw_fence *spares[SPARE_EVENTS];
    unsigned count = 0;
    bool is_made = true;
    flw_lock_acquire(&heap->lock);
    unsigned want = heap->own_events < SPARE_EVENTS ? heap->own_events : SPARE_EVENTS;
    while (count < want && (spares[count] = flw_fence_new(heap, heap->context, 0)) != NULL) {
        count++;
    }
    flw_lock_release(&heap->lock);
    for (unsigned i = 0; i < count && is_made; i++) {
        is_made = flw_fence_make_event(heap, spares[i]) == CUDA_SUCCESS;
    }
    flw_lock_acquire(&heap->lock);
    heap->own_events += 1 + count;
    while (count > 0) {
        flw_fence_drop(heap, spares[--count]);
    }
    flw_lock_release(&heap->lock);
}

/* ---- driver calls */

CUresult flw_heap_enter_parts(struct flw_heap *heap, struct flw_driver_section *section,
                              CUcontext context, unsigned parts)
{
    FLW_ASSERT(flw_lock_none_held());
    return flw_section_open(section, heap->driver, context, (enum flw_section_parts)parts,
                            &heap->count.driver_calls);
}

CUresult flw_heap_enter_context(struct flw_heap *heap, struct flw_driver_section *section,
                                CUcontext context)
{
    return flw_heap_enter_parts(heap, section, context, FLW_SECTION_BOTH);
}

static bool enter_own(struct flw_heap *heap, struct flw_driver_section *section, unsigned parts)
{
    if (flw_heap_is_lost(heap)) {
        return false;
    }
    CUresult result = flw_heap_enter_parts(heap, section, heap->context, parts);
    if (result != CUDA_SUCCESS) {
        (void)flw_heap_refuse(heap, result, section->refused);
    }
    return result == CUDA_SUCCESS;
}

bool flw_heap_enter_driver(struct flw_heap *heap, struct flw_driver_section *section)
{
    return enter_own(heap, section, FLW_SECTION_BOTH);
}

bool flw_heap_enter_mode(struct flw_heap *heap, struct flw_driver_section *section)
{
    return enter_own(heap, section, FLW_SECTION_MODE);
}

void flw_heap_hold_driver(struct flw_heap *heap, struct flw_driver_section *section)
{
    flw_section_hold(section, heap->driver, heap->context, &heap->count.driver_calls);
}

void flw_heap_leave_driver(struct flw_heap *heap, struct flw_driver_section *section)
{
    FLW_ASSERT(flw_lock_none_held());
    bool is_own = section->context == heap->context;
    CUresult result = flw_section_close(section);
    if (result != CUDA_SUCCESS && is_own) {
        (void)flw_heap_refuse(heap, result, section->refused);
    }
}

fallow_status flw_heap_refuse(struct flw_heap *heap, CUresult result, const char *call)
{
    fallow_status status = flw_answer_status((int)result);
    if (status == FALLOW_DEVICE_LOST) {
        flw_heap_lose_device(heap, result, call);
    } else if (status != FALLOW_OK) {
        flw_heap_note_error(heap, result, call);
    }
    bool is_refusal = status == FALLOW_OUT_OF_MEMORY || status == FALLOW_NOT_SUPPORTED;
    return is_refusal ? FALLOW_DRIVER : status;
}

fallow_status flw_heap_answer(struct flw_heap *heap, CUresult result, const char *call)
{
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        return FALLOW_OUT_OF_MEMORY;
    }
    fallow_status status = flw_heap_refuse(heap, result, call);
    return result == CUDA_ERROR_NOT_SUPPORTED ? FALLOW_NOT_SUPPORTED : status;
}

bool flw_heap_refuses(struct flw_heap *heap, uint64_t bytes)
{
    flw_lock_acquire(&heap->lock);
    bool is_refused = flw_refusal_covers(&heap->refused, bytes);
    flw_lock_release(&heap->lock);
    return is_refused;
}

void flw_heap_forget_refusal(struct flw_heap *heap)
{
    flw_lock_acquire(&heap->lock);
    heap->refused = (struct flw_refused_growth){.is_refused = false};
    flw_lock_release(&heap->lock);
}

void flw_heap_lose_device(struct flw_heap *heap, CUresult error, const char *call)
{
    int none = 0;
    if (atomic_compare_exchange_strong(&heap->lost_error, &none, (int)error)) {
        atomic_store(&heap->lost_call, call);
    }
}

/* ---- init, finish */

/* Less, or elsewhere, may be granted. */
static bool may_reserve_other(CUresult result)
{
    return result == CUDA_ERROR_OUT_OF_MEMORY || flw_source_is_refused(result);
}

/* An address range that begins at a multiple of its size: offsets are the low bits of addresses then.
 * Where the driver does not align so far, the middle of twice as much. */
static CUresult reserve_aligned(struct flw_heap *heap, uint64_t bytes)
{
    struct flw_source *source = &heap->source;
    uint64_t base = 0, held_bytes = bytes;
    CUresult result = source->ops->reserve(source, bytes, bytes, &base);
    bool is_aligned = result == CUDA_SUCCESS && base % bytes == 0;
    if (result == CUDA_SUCCESS && !is_aligned) {
        (void)source->ops->unreserve(source, base, bytes);
    }
    if (!is_aligned && (result == CUDA_SUCCESS || may_reserve_other(result))) {
        held_bytes = 2 * bytes;
        result = source->ops->reserve(source, held_bytes, 0, &base);
    }
    if (result == CUDA_SUCCESS) {
        heap->reservation = base;
        heap->reservation_bytes = held_bytes;
        heap->range_bytes = bytes;
        heap->map.base = flw_align_up(base, bytes);
    }
    return result;
}

static CUresult reserve_range(struct flw_heap *heap, uint64_t device_bytes)
{
    uint64_t least = 64 * FLW_MIB, bytes = least;
    while (bytes < 8 * device_bytes && bytes < (1ull << 46)) {
        bytes *= 2;
    }
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    for (; bytes >= least && may_reserve_other(result); bytes /= 2) {
        result = reserve_aligned(heap, bytes);
    }
    return result;
}

#define GIVE_ROUNDS 3

/* A driver that refuses is asked again, and once more at the pool's end, which may have another source. */
static CUresult unreserve_range(struct flw_heap *heap)
{
    const struct flw_source_ops *ops = heap->source.ops;
    ops = ops != NULL && ops->remaps ? ops : &flw_source_vmm;
    CUresult result = heap->reservation_bytes == 0 ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
    for (unsigned n = 0; result != CUDA_SUCCESS && n < GIVE_ROUNDS; n++) {
        result = ops->unreserve(&heap->source, heap->reservation, heap->reservation_bytes);
    }
    if (result == CUDA_SUCCESS) {
        heap->reservation = heap->reservation_bytes = 0;
    }
    heap->range_bytes = heap->map.base = 0;
    return result;
}

static bool make_address_run(struct flw_heap *heap)
{
    struct flw_span *edge = flw_page_map_new_run(&heap->map);
    struct flw_span *run = edge != NULL ? flw_page_map_new_run(&heap->map) : NULL;
    if (run == NULL) {
        return false;
    }
    heap->edge = edge;
    flw_run_open_stretch(edge, run);
    run->u.run.state = FLW_RUN_UNMAPPED;
    run->u.run.unit_count = (uint32_t)(heap->range_bytes >> FLW_UNIT_LOG2);
    flw_run_index_by_state(heap, run);
    return true;
}

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

/* Addresses, and a grain through its whole life in them. *out_can false: refused, nothing is left. */
static CUresult prove_remapping(struct flw_heap *heap, const struct flw_heap_config *config,
                                bool *out_can)
{
    struct flw_source *source = &heap->source;
    CUresult result = reserve_range(heap, config->device_bytes);
    if (result != CUDA_SUCCESS) {
        *out_can = false;
        return flw_source_refuse(source, result, "cuMemAddressReserve");
    }
    if (source->ops == &flw_source_vmm) {
        result = flw_source_vmm_probe(source, heap->map.base, out_can);
    }
    if (result != CUDA_SUCCESS || !*out_can) {
        (void)unreserve_range(heap);
    }
    return result;
}

/* In a driver section. Handles where they work, or are insisted on; else segments, which serve no other
 * device and no other process. */
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
            return flw_heap_refuse(heap, result, "a question for virtual memory management");
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
    bool must_remap = source->ops->remaps || config->handle_types != 0 || config->peer_count != 0;
    return must_remap ? FALLOW_NOT_SUPPORTED : FALLOW_OK;
}

static fallow_status settle_source(struct flw_heap *heap, const struct flw_heap_config *config)
{
    struct flw_driver_section section;
    fallow_status status = FALLOW_DRIVER;
    if (flw_heap_enter_driver(heap, &section)) {
        status = choose_source(heap, config);
        flw_heap_leave_driver(heap, &section);
    }
    if (flw_heap_is_lost(heap)) {
        (void)unreserve_range(heap);
        flw_heap_note_error(heap, (CUresult)atomic_load(&heap->lost_error),
                            atomic_load(&heap->lost_call));
        return FALLOW_DRIVER;
    }
    return status;
}

/* All that comes to it is complete. */
static bool make_mixed(struct flw_heap *heap)
{
    heap->mixed = flw_domain_create(heap, &flw_order_mixed, NULL, NULL, 0);
    if (heap->mixed != NULL) {
        heap->mixed->is_known = true;
        heap->mixed->is_retired = true;
        heap->mixed->completed = heap->mixed->ticket++;
    }
    return heap->mixed != NULL;
}

/* One order for all, that of the context, and the owner of the whole runs that are complete. */
static bool make_context_order(struct flw_heap *heap)
{
    bool can_record = heap->driver->cuCtxRecordEvent != NULL;
    heap->context_order = flw_domain_create(
        heap, can_record ? &flw_order_context : &flw_order_unrecorded, NULL, heap->context, 0);
    heap->whole = flw_domain_create(heap, &flw_order_mixed, NULL, NULL, 0);
    heap->whole_bytes = FLW_WHOLE_BYTES;
    return heap->context_order != NULL && heap->whole != NULL;
}

uint64_t flw_heap_span_of_addresses(const struct flw_heap *heap)
{
    return heap->source.ops->remaps ? heap->range_bytes : 1ull << ADDRESS_BITS;
}

static bool reserve_handles(struct flw_heap *heap)
{
    uint64_t pages = heap->range_bytes / heap->source.granularity_bytes;
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
    flw_meta_release(&heap->object_meta);
    flw_lenders_finish(&heap->lenders);
    flw_meta_release(&heap->handle_meta);
    heap->page_handle = NULL;
}

/* As large as a limit of the address space lets them be; smaller where the system refuses that, too. */
static bool make_tables(struct flw_heap *heap)
{
    uint64_t base = heap->map.base;
    (void)flw_bin_table(); /* gives bins their places */
    unsigned shrink = flw_tables_choose(heap, flw_meta_allowance());
    for (; shrink <= FLW_TABLE_SHRINK_MAX; shrink++) {
        heap->table_shrink = shrink;
        if (flw_page_map_init(&heap->map, base, flw_heap_span_of_addresses(heap),
                              flw_bin_offset(FLW_CLASS_COUNT), shrink) &&
            flw_meta_reserve(&heap->object_meta, flw_tables_object_bytes(shrink)) &&
            flw_lenders_init(&heap->lenders) && reserve_handles(heap)) {
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
    heap->whole_units = heap->first_whole_units = UINT32_MAX;
    fallow_status status = settle_source(heap, config);
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
    struct flw_domain *nobody = flw_domain_create(heap, &flw_order_capture, NULL, NULL, 0);
    bool has_domains = nobody != NULL && (!config->keeps_owners || make_mixed(heap)) &&
                       (!config->is_context_order || make_context_order(heap));
    if (!has_domains || (remaps && !make_address_run(heap))) {
        goto fail;
    }
    nobody->completed = UINT64_MAX; /* what is nobody's is complete */
    flw_lock_acquire(&heap->lock);
    flw_heap_adopt_left(heap);
    flw_lock_release(&heap->lock);
    return FALLOW_OK;
fail:
    flw_heap_finish(heap, false);
    return FALLOW_OUT_OF_HOST_MEMORY;
}

/* An event is gone with its context, and its handle may be somebody else's since. */
static bool has_event(struct flw_heap *heap, const struct flw_fence *fence)
{
    unsigned long long id = 0;
    if (fence->event == NULL || fence->context_id == 0) {
        return fence->event != NULL;
    }
    flw_heap_count_call(heap);
    return heap->driver->cuCtxGetId(fence->context, &id) == CUDA_SUCCESS && id == fence->context_id;
}

/* What one round of giving back was refused. */
struct leftover {
    uint64_t bytes;
    uint32_t count; /* of calls */
};

/* The answer to a call that gives something back. True: it is gone. */
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
    for (struct flw_fence *fence = heap->newest_made; fence != NULL; fence = fence->older_made) {
        if (has_event(heap, fence)) {
            flw_heap_count_call(heap);
            CUresult result = heap->driver->cuEventDestroy_v2(fence->event);
            if (note_given(heap, left, result, "cuEventDestroy", 0)) {
                fence->event = NULL;
            }
        }
    }
}

/* What is mapped the driver keeps without its handle, too. */
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
    for (uint64_t page = 0; heap->page_handle != NULL && page < heap->mapped_page_end;) {
        struct flw_handle *handle = heap->page_handle[page];
        if (handle != NULL) {
            give_handle(heap, handle, &left);
        }
        page += handle != NULL ? handle->unit_count / heap->page_units : 1;
    }
    for (struct flw_handle *handle = heap->idle_handles; handle != NULL; handle = handle->next) {
        give_handle(heap, handle, &left);
    }
    for (struct flw_segment *segment = heap->segments; segment != NULL; segment = segment->next) {
        if (segment->address != 0) {
            CUresult result = heap->source.ops->give_back(&heap->source, segment->address);
            if (note_given(heap, &left, result, "cuMemFree",
                           (uint64_t)segment->unit_count << FLW_UNIT_LOG2)) {
                segment->address = 0;
            }
        }
    }
    destroy_events(heap, &left);
    if (left.count == 0) {
        (void)note_given(heap, &left, unreserve_range(heap), "cuMemAddressFree", 0);
    }
    return left;
}

bool flw_heap_give_back(struct flw_heap *heap, uint64_t *out_kept_bytes)
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
        (void)flw_heap_give_back(heap, &kept_bytes);
    }
    release_tables(heap);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "heap/physical/physical.h"

#include "base/mutant.h"
#include "heap/physical/handle.h"
#include "heap/physical/place.h"
#include "heap/physical/range.h"
#include "heap/space/run.h"

/* ---- the handles of a growth: idle ones first, then new ones */

struct stock {
    struct flw_handle *handles; /* by address of use; chained by next */
    struct flw_handle **end;
    uint64_t new_bytes; /* of handles to be created */
};

static void add_stock(struct stock *stock, struct flw_handle *handle)
{
    handle->next = NULL;
    *stock->end = handle;
    stock->end = &handle->next;
}

/* A handle created before the driver refused a kind has more kinds than are requested now. */
static void take_idle(struct flw_heap *heap, struct stock *stock, uint64_t *need_units)
{
    uint32_t kinds = atomic_load(&heap->source.kinds);
    for (struct flw_handle *handle = heap->idle_handles, *next; handle != NULL && *need_units > 0;
         handle = next) {
        next = handle->next;
        if (handle->unit_count <= *need_units && (handle->types & kinds) == kinds &&
            !handle->is_exported) {
            flw_handle_unlink_idle(heap, handle);
            *need_units -= handle->unit_count;
            add_stock(stock, handle);
        }
    }
}

/* Add descriptors for handles to be created, with id 0. False: no host memory. */
static bool add_new(struct flw_heap *heap, struct stock *stock, uint64_t units,
                    uint64_t chunk_units, uint32_t types)
{
    while (units > 0) {
        struct flw_handle *handle = flw_heap_new_handle(heap);
        if (handle == NULL) {
            return false;
        }
        uint64_t count = units < 2 * chunk_units ? units : chunk_units;
        *handle = (struct flw_handle){.unit_count = (uint32_t)count, .types = types};
        add_stock(stock, handle);
        stock->new_bytes += count << FLW_UNIT_LOG2;
        units -= count;
    }
    return true;
}

static void put_back_stock(struct flw_heap *heap, struct stock *stock)
{
    for (struct flw_handle *handle = stock->handles, *next; handle != NULL; handle = next) {
        next = handle->next;
        if (handle->id != 0) {
            flw_handle_link_idle(heap, handle);
        } else {
            flw_heap_drop_handle(heap, handle);
        }
    }
    stock->handles = NULL;
}

/* Create all handles before the first is mapped, so that a lack of memory shows first. Makes
 * driver calls. */
static CUresult create_stock(struct flw_source *source, const struct stock *stock)
{
    CUresult result = CUDA_SUCCESS;
    for (struct flw_handle *handle = stock->handles; handle != NULL && result == CUDA_SUCCESS;
         handle = handle->next) {
        if (handle->id == 0) {
            result =
                source->ops->create(source, flw_handle_bytes(handle), &handle->types, &handle->id);
            handle->id = result == CUDA_SUCCESS ? handle->id : 0;
        }
    }
    return result;
}

/* Unmap the handles; those that the driver refuses stay mapped. Makes driver calls. */
static void unmap_stock(struct flw_heap *heap, const struct stock *stock, uint64_t address)
{
    for (struct flw_handle *handle = stock->handles; handle != NULL && handle->is_mapped;) {
        struct flw_handle *first = handle;
        struct flw_row row = {.count = 0};
        for (; handle != NULL && handle->is_mapped && flw_row_takes(&row, address);
             handle = handle->next) {
            flw_row_add(&row, address, flw_handle_bytes(handle));
            address = row.end;
        }
        CUresult result = flw_heap_unmap_row(heap, &row, true);
        (void)flw_heap_refuse(heap, result, "cuMemUnmap");
        for (uint32_t i = 0; i < row.count; i++, first = first->next) {
            first->is_mapped = !row.is_unmapped[i];
        }
    }
}

/* Map the handles. On failure unmap them again unless the driver refuses that too; created handles
 * keep their ids. Makes driver calls. */
static CUresult map_stock(struct flw_heap *heap, const struct stock *stock, uint64_t address,
                          const char **out_call)
{
    struct flw_source *source = &heap->source;
    uint64_t at = address;
    *out_call = "cuMemCreate";
    CUresult result = create_stock(source, stock);
    struct flw_handle *handle = stock->handles;
    for (; handle != NULL && result == CUDA_SUCCESS; handle = handle->next) {
        *out_call = "cuMemMap";
        result = source->ops->map(source, at, flw_handle_bytes(handle), handle->id);
        handle->is_mapped = result == CUDA_SUCCESS;
        at += handle->is_mapped ? flw_handle_bytes(handle) : 0;
    }
    if (result == CUDA_SUCCESS && !FLW_MUTANT(MAPS_WITHOUT_ACCESS)) {
        *out_call = "cuMemSetAccess";
        result = source->ops->set_access(source, address, at - address);
    }
    if (result != CUDA_SUCCESS) {
        unmap_stock(heap, stock, address);
    }
    return result;
}

static void publish(struct flw_heap *heap, struct flw_handle *handle, uint64_t begin_unit)
{
    struct flw_range *range = flw_range_at(heap, begin_unit);
    uint64_t end_page = (begin_unit + handle->unit_count) / heap->page_units;
    handle->begin_unit = (uint32_t)begin_unit;
    handle->is_mapped = true;
    for (uint64_t page = begin_unit / heap->page_units; page < end_page; page++) {
        heap->page_handle[page] = handle;
    }
    range->mapped_page_end = flw_max(range->mapped_page_end, end_page);
}

static void publish_stock(struct flw_heap *heap, const struct stock *stock, uint64_t begin_unit)
{
    for (struct flw_handle *handle = stock->handles, *next; handle != NULL; handle = next) {
        next = handle->next;
        publish(heap, handle, begin_unit);
        begin_unit += handle->unit_count;
    }
}

/* After a failed growth: handles that the driver refused to unmap stay where they are, as unowned
 * memory. If host memory for that runs out, their range stays set aside until the pool ends. The
 * rest of the hole becomes address space again, and the rest of the handles is left. Heap lock
 * held. */
static void keep_mapped(struct flw_heap *heap, struct stock *stock, struct flw_span *hole)
{
    uint64_t unit = flw_run_begin(hole);
    struct flw_handle *next = stock->handles;
    *stock = (struct stock){.end = &stock->handles};
    for (struct flw_handle *handle; (handle = next) != NULL; unit += handle->unit_count) {
        next = handle->next;
        if (!handle->is_mapped) {
            add_stock(stock, handle);
            continue;
        }
        publish(heap, handle, unit);
    }
    while (hole != NULL) {
        struct flw_handle *handle = flw_heap_handle_at(heap, flw_run_begin(hole) << FLW_UNIT_LOG2);
        uint64_t page = flw_run_begin(hole) / heap->page_units, end = page;
        while (end * heap->page_units < flw_run_end(hole) && heap->page_handle[end] == handle) {
            end++;
        }
        uint32_t units = (uint32_t)((end - page) * heap->page_units);
        struct flw_span *rest =
            units < hole->u.run.unit_count ? flw_run_split(heap, hole, units) : NULL;
        bool is_cut = rest != NULL || units == hole->u.run.unit_count;
        struct flw_domain *unmap_only = handle != NULL ? flw_heap_unmap_only(heap) : NULL;
        if (is_cut && handle == NULL) {
            flw_run_put_back_unmapped(heap, hole);
        } else if (is_cut && unmap_only != NULL) {
            flw_heap_put_run_at_point(heap, unmap_only->index, flw_domain_free_seq(unmap_only),
                                      hole);
        }
        hole = rest;
    }
}

/* Put back the addresses of a failed growth. Unmapped addresses of a growable block return to the
 * block. Heap lock held. */
static void leave_hole(struct flw_heap *heap, struct stock *stock,
                       const struct flw_placement *place)
{
    bool is_mapped = false;
    for (struct flw_handle *handle = stock->handles; handle != NULL; handle = handle->next) {
        is_mapped |= handle->is_mapped;
    }
    if (place->growable != NULL && !is_mapped) {
        flw_growable_put_back(heap, place->growable, place->hole);
        return;
    }
    keep_mapped(heap, stock, place->hole);
    if (place->growable != NULL && place->growable->tail != NULL) {
        flw_run_put_back_unmapped(heap, place->growable->tail);
        place->growable->tail = NULL;
    }
}

void flw_heap_adopt_left(struct flw_heap *heap)
{
    struct flw_source *source = &heap->source;
    uint64_t bytes = source->granularity_bytes;
    struct flw_handle *handle =
        source->left_handle != 0 && bytes <= heap->limit_bytes ? flw_heap_new_handle(heap) : NULL;
    if (handle == NULL) {
        return;
    }
    *handle = (struct flw_handle){.id = source->left_handle,
                                  .unit_count = (uint32_t)(bytes >> FLW_UNIT_LOG2),
                                  .types = atomic_load(&source->kinds),
                                  .is_mapped = source->is_left_mapped};
    flw_heap_raise_reserved(heap, bytes);
    flw_heap_note_peak(heap);
    atomic_store(&heap->has_open_copies, source->is_left_busy);
    if (handle->is_mapped) {
        struct stock stock = {.handles = handle};
        struct flw_span *hole = heap->ranges.first.edge->u.run.right;
        flw_run_set_busy(heap, hole);
        keep_mapped(heap, &stock, hole);
    } else {
        flw_handle_link_idle(heap, handle);
    }
}

/* Choose how much to map beyond the need, within hole and budget. */
static void extend_ahead(const struct flw_heap *heap, const struct flw_grow_request *request,
                         struct flw_placement *place)
{
    uint64_t need_units = place->map_end - place->map_begin;
    uint64_t need_bytes = need_units << FLW_UNIT_LOG2;
    uint64_t reserved = atomic_load(&heap->reserved_bytes);
    uint64_t room = flw_min(request->budget_bytes, heap->limit_bytes);
    room = room > reserved ? room - reserved : 0;
    uint64_t wanted = flw_max(request->ahead_bytes, need_bytes + request->beyond_bytes);
    wanted = flw_min(wanted, room) >> FLW_UNIT_LOG2;
    wanted = flw_align_down(wanted, heap->page_units);
    if (heap->idle_bytes >= need_bytes || wanted <= need_units || place->right != NULL ||
        request->is_single_handle || request->is_exact) {
        return;
    }
    place->map_end = flw_min(flw_run_end(place->hole), place->map_begin + wanted);
}

/* Return the smallest idle handle that fits and holds so many units; the rest becomes
 * free memory. */
static struct flw_handle *idle_for(const struct flw_heap *heap, uint64_t need_units,
                                   uint64_t most_units, uint32_t kinds)
{
    struct flw_handle *best = NULL;
    for (struct flw_handle *handle = heap->idle_handles; handle != NULL; handle = handle->next) {
        if (handle->unit_count >= need_units && handle->unit_count <= most_units &&
            (best == NULL || handle->unit_count < best->unit_count) &&
            (handle->types & kinds) == kinds && !handle->is_exported) {
            best = handle;
        }
    }
    return best;
}

/* Take the missing units from one larger idle handle; the rest becomes free memory. With a single
 * stream a new handle would hold less. */
static void take_larger(struct flw_heap *heap, struct flw_placement *place, struct stock *stock,
                        uint64_t *need_units, uint32_t types)
{
    uint64_t room = flw_run_end(place->hole) - (place->map_end - *need_units);
    bool may_take = *need_units > 0 && place->right == NULL &&
                    atomic_load_explicit(&heap->stream_count, memory_order_relaxed) > 1;
    struct flw_handle *idle = may_take ? idle_for(heap, *need_units, room, types) : NULL;
    if (idle != NULL) {
        flw_handle_unlink_idle(heap, idle);
        add_stock(stock, idle);
        place->map_end += idle->unit_count - *need_units;
        *need_units = 0;
    }
}

/* If the driver will probably create no other, an idle handle that is too large serves too. */
static bool plan_stock(struct flw_heap *heap, const struct flw_grow_request *request,
                       struct flw_placement *place, struct stock *stock)
{
    uint64_t need_units = place->map_end - place->map_begin;
    uint64_t chunk = flw_max(heap->page_units, request->handle_bytes >> FLW_UNIT_LOG2);
    uint32_t types = request->handle_types | atomic_load(&heap->source.kinds);
    *stock = (struct stock){.end = &stock->handles};
    bool is_last = heap->refused.is_refused && !request->is_single_handle;
    struct flw_handle *idle =
        is_last ? idle_for(heap, need_units, flw_run_end(place->hole) - place->map_begin, types)
                : NULL;
    if (idle != NULL) {
        flw_handle_unlink_idle(heap, idle);
        add_stock(stock, idle);
        place->map_end = place->map_begin + idle->unit_count;
        need_units = 0;
    } else if (request->is_single_handle) {
        chunk = need_units;
    } else {
        take_idle(heap, stock, &need_units);
        take_larger(heap, place, stock, &need_units, types);
    }
    if (flw_refusal_covers(&heap->refused, 0)) {
        chunk = flw_max(need_units, heap->page_units); /* one, to see whether it is mapped now */
    }
    stock->end = stock->handles == NULL ? &stock->handles : stock->end;
    return add_new(heap, stock, need_units, chunk, types);
}

/* Record the driver's result of a growth. Heap lock held. */
static void note_answer(struct flw_heap *heap, const struct flw_grow_request *request,
                        fallow_status status, uint64_t asked_bytes, uint64_t refused_bytes)
{
    if (status == FALLOW_OK || status == FALLOW_OUT_OF_MEMORY) {
        flw_refusal_end(&heap->refused, asked_bytes);
    } else if (status == FALLOW_DRIVER || status == FALLOW_NOT_SUPPORTED) {
        flw_refusal_note(&heap->refused, refused_bytes, request->skips_backoff);
    }
}

/* Return the size of the largest handle that is still to be created; 0: none. */
static uint64_t largest_new(const struct stock *stock)
{
    uint64_t most = 0;
    for (const struct flw_handle *handle = stock->handles; handle != NULL; handle = handle->next) {
        most = handle->id == 0 ? flw_max(most, flw_handle_bytes(handle)) : most;
    }
    return most;
}

/* Cause of a failed growth, for another attempt. */
struct shortfall {
    bool had_extra;    /* requested more than the need */
    bool has_no_place; /* no range has room */
};

static fallow_status grow_remapping(struct flw_heap *heap, const struct flw_grow_request *request,
                                    struct flw_span **out_run, struct shortfall *out)
{
    struct flw_placement place;
    struct stock stock = {0};
    struct flw_driver_section section;
    const char *call = "";
    flw_lock_acquire(&heap->lock);
    if (!flw_place_find(heap, request, &place)) {
        out->has_no_place = true;
        flw_lock_release(&heap->lock);
        return FALLOW_OUT_OF_MEMORY;
    }
    uint64_t need_end = place.map_end;
    extend_ahead(heap, request, &place);
    bool has_extra = place.map_end > need_end;
    bool is_planned = plan_stock(heap, request, &place, &stock);
    uint64_t room = flw_min(request->budget_bytes, heap->limit_bytes);
    uint64_t reserved = atomic_load(&heap->reserved_bytes);
    if (FLW_MUTANT(LIMIT_PLUS_ONE_HANDLE)) {
        room += heap->source.granularity_bytes;
    }
    bool is_allowed = reserved + stock.new_bytes <= room || stock.new_bytes == 0;
    uint64_t asked_bytes = largest_new(&stock);
    bool is_spared = is_planned && is_allowed && !request->skips_backoff &&
                     flw_refusal_spares(&heap->refused, asked_bytes);
    if (!is_planned || !is_allowed || is_spared || !flw_place_set_aside(heap, &place)) {
        put_back_stock(heap, &stock);
        flw_lock_release(&heap->lock);
        return is_spared    ? FALLOW_WOULD_WAIT
               : is_allowed ? FALLOW_OUT_OF_HOST_MEMORY
                            : FALLOW_OUT_OF_MEMORY;
    }
    flw_heap_raise_reserved(heap, stock.new_bytes);
    uint64_t address = heap->map.base + (place.map_begin << FLW_UNIT_LOG2);
    flw_lock_release(&heap->lock);

    bool is_inside = flw_heap_enter_mode(heap, &section);
    CUresult result = is_inside ? map_stock(heap, &stock, address, &call) : CUDA_SUCCESS;
    if (is_inside) {
        flw_heap_leave_driver(heap, &section);
    }
    fallow_status status =
        is_inside ? flw_heap_answer(heap, result, call) : flw_heap_not_entered(heap);

    flw_lock_acquire(&heap->lock);
    if (is_inside) {
        note_answer(heap, request, status, asked_bytes, largest_new(&stock));
    }
    if (status == FALLOW_OK) {
        flw_heap_note_peak(heap);
        publish_stock(heap, &stock, place.map_begin);
        *out_run = flw_place_commit(heap, &place);
        if (request->is_dedicated && *out_run != NULL) {
            (*out_run)->u.run.is_dedicated = true;
        }
        atomic_fetch_add(&heap->count.grows, 1);
    } else {
        uint64_t missing = 0;
        for (struct flw_handle *handle = stock.handles; handle != NULL; handle = handle->next) {
            missing += handle->id == 0 ? flw_handle_bytes(handle) : 0;
        }
        flw_heap_lower_reserved(heap, missing);
        flw_heap_note_peak(heap); /* handles created before the failure are kept, idle */
        leave_hole(heap, &stock, &place);
        put_back_stock(heap, &stock);
        flw_run_put_back(heap, place.left);
        flw_run_put_back(heap, place.right);
    }
    flw_lock_release(&heap->lock);
    if (status != FALLOW_OK) {
        out->had_extra = has_extra;
        return status;
    }
    return *out_run != NULL ? FALLOW_OK : FALLOW_OUT_OF_HOST_MEMORY;
}

/* ---- sources of whole segments */

/* A dedicated run is exactly as large as the request, so that a cache serves the next request of
 * the size. */
static uint64_t needed_segment_bytes(const struct flw_heap *heap,
                                     const struct flw_grow_request *request)
{
    uint64_t units = (uint64_t)request->unit_count + request->align_units - 1;
    uint64_t bytes = (units + heap->segments.has_odd) << FLW_UNIT_LOG2;
    return request->is_dedicated ? bytes : flw_align_up(bytes, heap->source.granularity_bytes);
}

static uint64_t segment_bytes(const struct flw_heap *heap, const struct flw_grow_request *request)
{
    uint64_t need = needed_segment_bytes(heap, request);
    uint64_t reserved = atomic_load(&heap->reserved_bytes);
    uint64_t asked = (uint64_t)request->unit_count << FLW_UNIT_LOG2;
    bool is_large = asked >= FLW_MIB && (need - asked) * 8 <= asked; /* else much of it is waste */
    if (is_large || request->is_dedicated || request->is_single_handle || request->is_exact) {
        return need; /* an allocation of its own, so that the driver reports the base and size */
    }
    uint64_t wanted = flw_clamp(reserved / 16, 2 * FLW_MIB, 64 * FLW_MIB);
    wanted = flw_align_down(wanted, heap->source.granularity_bytes);
    uint64_t room = flw_min(request->budget_bytes, heap->limit_bytes);
    room = room > reserved ? room - reserved : 0;
    return flw_max(need, flw_min(wanted, flw_align_down(room, heap->source.granularity_bytes)));
}

static struct flw_span *publish_segment(struct flw_heap *heap, struct flw_segment *segment,
                                        struct flw_span *run,
                                        const struct flw_grow_request *request)
{
    run->u.run.begin_unit = segment->begin_unit;
    run->u.run.unit_count = segment->unit_count;
    run->u.run.is_dedicated = request->is_dedicated;
    run->u.run.state = FLW_RUN_BUSY;
    flw_run_open_stretch(segment->edge, run);
    flw_segment_link(heap, segment, run);
    flw_heap_put_run_at_point(heap, FLW_UNOWNED, 0, run); /* joins nothing: it stays this run */
    if (flw_run_is_dedicated(run) && heap->dedicated != NULL) {
        uint64_t address = flw_run_address(heap, run);
        bool fits = address == segment->address && run->u.run.unit_count >= request->unit_count;
        return fits ? flw_heap_take_dedicated(heap, run->u.run.unit_count, run->u.run.unit_count)
                    : NULL;
    }
    uint64_t gap = flw_run_align_gap(run, request->align_units, heap->base_unit);
    if (run->u.run.unit_count < request->unit_count + gap) {
        heap->segments.has_odd = true; /* the next one is a unit longer */
        return NULL;
    }
    return flw_run_is_dedicated(run)
               ? flw_heap_take_run(heap, request->domain, request->unit_count, request->align_units)
               : flw_heap_take_from(heap, run, request->unit_count, request->align_units);
}

/* Call in a driver section. */
static CUresult acquire_segment(struct flw_heap *heap, uint64_t bytes, uint64_t *out_address)
{
    CUresult result = heap->source.ops->acquire(&heap->source, bytes, out_address);
    if (result == CUDA_SUCCESS &&
        *out_address + bytes - 1 > heap->map.mask) { /* beyond the tables */
        CUresult kept = heap->source.ops->release_segment(&heap->source, *out_address);
        (void)flw_heap_refuse(heap, kept, "cuMemFree");
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return result;
}

/* Undo a failed acquisition; NULL: that failed too. */
static void drop_segment(struct flw_heap *heap, struct flw_segment *segment, struct flw_span *edge)
{
    if (edge != NULL) {
        flw_page_map_drop_run(&heap->map, edge);
    }
    if (segment != NULL) {
        flw_heap_drop_segment(heap, segment);
    }
}

static fallow_status grow_segment(struct flw_heap *heap, const struct flw_grow_request *request,
                                  struct flw_span **out_run, struct shortfall *out)
{
    struct flw_driver_section section;
    flw_lock_acquire(&heap->lock);
    uint64_t bytes = segment_bytes(heap, request);
    uint64_t counted_bytes = flw_align_up(bytes, heap->source.granularity_bytes);
    bool has_extra = bytes > needed_segment_bytes(heap, request);
    uint64_t room = flw_min(request->budget_bytes, heap->limit_bytes);
    bool is_allowed = atomic_load(&heap->reserved_bytes) + counted_bytes <= room;
    bool is_spared =
        is_allowed && !request->skips_backoff && flw_refusal_spares(&heap->refused, bytes);
    is_allowed = is_allowed && !is_spared;
    struct flw_segment *segment = is_allowed ? flw_heap_new_segment(heap) : NULL;
    struct flw_span *edge = segment != NULL ? flw_page_map_new_run(&heap->map) : NULL;
    struct flw_span *run = edge != NULL ? flw_page_map_new_run(&heap->map) : NULL;
    if (run != NULL) {
        flw_heap_raise_reserved(heap, counted_bytes);
    } else {
        drop_segment(heap, segment, edge);
    }
    flw_lock_release(&heap->lock);
    if (run == NULL) {
        return is_spared    ? FALLOW_WOULD_WAIT
               : is_allowed ? FALLOW_OUT_OF_HOST_MEMORY
                            : FALLOW_OUT_OF_MEMORY;
    }
    uint64_t address = 0;
    bool is_inside = flw_heap_enter_driver(heap, &section);
    CUresult result = is_inside ? acquire_segment(heap, bytes, &address) : CUDA_SUCCESS;
    if (is_inside) {
        flw_heap_leave_driver(heap, &section);
    }
    fallow_status status =
        is_inside ? flw_heap_answer(heap, result, "cuMemAlloc") : flw_heap_not_entered(heap);
    flw_lock_acquire(&heap->lock);
    if (is_inside) {
        note_answer(heap, request, status, bytes, bytes);
    }
    if (status == FALLOW_OK) {
        flw_heap_note_peak(heap);
        uint64_t begin = flw_align_up(address, FLW_UNIT_BYTES);
        *segment = (struct flw_segment){.edge = edge,
                                        .address = address,
                                        .bytes = counted_bytes,
                                        .begin_unit = (uint32_t)(begin >> FLW_UNIT_LOG2),
                                        .unit_count =
                                            (uint32_t)((address + bytes - begin) >> FLW_UNIT_LOG2)};
        *out_run = publish_segment(heap, segment, run, request);
        atomic_fetch_add(&heap->count.grows, 1);
    } else {
        flw_heap_lower_reserved(heap, counted_bytes);
        flw_page_map_drop_run(&heap->map, run);
        drop_segment(heap, segment, edge);
    }
    flw_lock_release(&heap->lock);
    if (status != FALLOW_OK) {
        out->had_extra = has_extra;
        return status;
    }
    return *out_run != NULL ? FALLOW_OK : FALLOW_OUT_OF_MEMORY;
}

static fallow_status grow(struct flw_heap *heap, const struct flw_grow_request *request,
                          struct flw_span **out_run, struct shortfall *out)
{
    *out = (struct shortfall){.had_extra = false};
    return heap->source.ops->remaps ? grow_remapping(heap, request, out_run, out)
                                    : grow_segment(heap, request, out_run, out);
}

fallow_status flw_heap_grow(struct flw_heap *heap, const struct flw_grow_request *request,
                            struct flw_span **out_run)
{
    struct flw_grow_request whole = *request;
    struct shortfall shortfall;
    *out_run = NULL;
    bool is_taken_whole = !heap->source.ops->remaps && whole.is_dedicated; /* of any size */
    if (whole.is_single_handle && !is_taken_whole) { /* all of it: otherwise others would get
                                                         the rest */
        whole.unit_count = (uint32_t)flw_align_up(whole.unit_count, heap->page_units);
    }
    fallow_status status = grow(heap, &whole, out_run, &shortfall);
    if (shortfall.has_no_place && whole.growable == NULL && flw_place_would_serve(heap, &whole)) {
        status = flw_ranges_make_place(heap, &whole);
        status = status == FALLOW_OK ? grow(heap, &whole, out_run, &shortfall) : status;
    }
    if (status == FALLOW_OUT_OF_MEMORY && shortfall.had_extra) {
        whole.is_exact = true;
        status = grow(heap, &whole, out_run, &shortfall);
    }
    return status;
}

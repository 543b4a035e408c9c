/* SPDX-License-Identifier: Apache-2.0 */
#include "heap/physical/range.h"

#include "heap/physical/place.h"
#include "heap/space/run.h"

/* A range begins and ends on a page, so that handles fit, and on a cell, so that no two ranges
 * share one. */
static uint64_t range_grain(const struct flw_heap *heap)
{
    return flw_max(heap->source.granularity_bytes, FLW_CELL_BYTES);
}

/* True if the driver may reserve less, or elsewhere. */
static bool may_reserve_other(CUresult result)
{
    return result == CUDA_ERROR_OUT_OF_MEMORY || flw_source_is_refused(result);
}

/* `range` covers the part of a reservation from `begin` on, in a window that begins at `base`. */
static void fill_range(struct flw_range *range, uint64_t reservation, uint64_t reservation_bytes,
                       uint64_t begin, uint64_t bytes, uint64_t base)
{
    *range = (struct flw_range){.reservation = reservation,
                                .reservation_bytes = reservation_bytes,
                                .begin_unit = (begin - base) >> FLW_UNIT_LOG2,
                                .unit_count = bytes >> FLW_UNIT_LOG2};
}

/* Reserve the range with the smallest window that holds it: a power of two, aligned to its own
 * size, so that offsets are the low bits of addresses. If the driver cannot align so far, reserve
 * as much more. */
static CUresult reserve_in_own_window(struct flw_heap *heap, uint64_t bytes)
{
    struct flw_source *source = &heap->source;
    uint64_t window = 1ull << flw_log2_floor(2 * bytes - 1), base = 0, held_bytes = bytes;
    CUresult result = source->ops->reserve(source, bytes, window, &base);
    bool is_aligned = result == CUDA_SUCCESS && base % window == 0;
    if (result == CUDA_SUCCESS && !is_aligned) {
        (void)source->ops->unreserve(source, base, bytes);
    }
    if (!is_aligned && (result == CUDA_SUCCESS || may_reserve_other(result))) {
        held_bytes = bytes + window;
        result = source->ops->reserve(source, held_bytes, 0, &base);
    }
    if (result == CUDA_SUCCESS) {
        heap->map.base = flw_align_up(base, window);
        heap->ranges.window_bytes = window;
        fill_range(&heap->ranges.first, base, held_bytes, heap->map.base, bytes, heap->map.base);
    }
    return result;
}

/* Reserve a range anywhere in the window of all addresses. A range beyond the window counts as
 * refused. */
static CUresult reserve_anywhere(struct flw_heap *heap, uint64_t bytes, struct flw_range *out)
{
    struct flw_source *source = &heap->source;
    uint64_t grain = range_grain(heap), base = 0;
    CUresult result = source->ops->reserve(source, bytes, grain, &base);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    uint64_t begin = flw_align_up(base, grain), end = flw_align_down(base + bytes, grain);
    if (end > FLW_ADDRESS_SPACE_BYTES || end <= begin) {
        (void)source->ops->unreserve(source, base, bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    fill_range(out, base, bytes, begin, end - begin, 0);
    return CUDA_SUCCESS;
}

CUresult flw_ranges_begin(struct flw_heap *heap, uint64_t device_bytes, uint64_t least_bytes,
                          bool may_extend)
{
    uint64_t grain = range_grain(heap);
    uint64_t least = flw_align_up(flw_max(least_bytes, FLW_RANGE_BYTES_LEAST), grain);
    uint64_t wanted = flw_min(8 * device_bytes, FLW_ADDRESS_SPACE_BYTES / 2);
    uint64_t bytes = flw_max(flw_align_up(wanted, grain), least);
    CUresult result = reserve_in_own_window(heap, bytes);
    while (may_reserve_other(result) && bytes > least) {
        bytes = flw_max(flw_align_down(bytes / 2, grain), least);
        if (may_extend) {
            heap->map.base = 0;
            heap->ranges.window_bytes = FLW_ADDRESS_SPACE_BYTES;
            result = reserve_anywhere(heap, bytes, &heap->ranges.first);
        } else {
            result = reserve_in_own_window(heap, bytes);
        }
    }
    heap->ranges.lowest = result == CUDA_SUCCESS ? &heap->ranges.first : NULL;
    return result;
}

/* Make the range one run of addresses without memory. False: no host memory. Heap lock held. */
static bool open_range(struct flw_heap *heap, struct flw_range *range)
{
    struct flw_span *edge = flw_page_map_new_run(&heap->map);
    struct flw_span *run = edge != NULL ? flw_page_map_new_run(&heap->map) : NULL;
    if (run == NULL) {
        if (edge != NULL) {
            flw_page_map_drop_run(&heap->map, edge);
        }
        return false;
    }
    range->edge = edge;
    flw_run_open_stretch(edge, run);
    run->u.run.state = FLW_RUN_UNMAPPED;
    run->u.run.begin_unit = (uint32_t)range->begin_unit;
    run->u.run.unit_count = (uint32_t)range->unit_count;
    flw_run_index_by_state(heap, run);
    return true;
}

bool flw_ranges_open(struct flw_heap *heap)
{
    return open_range(heap, &heap->ranges.first);
}

/* Add a copy of the range to the list. False: no host memory. Heap lock held. */
static bool add_range(struct flw_heap *heap, const struct flw_range *given)
{
    struct flw_range *range = flw_meta_extend(&heap->objects.meta, sizeof *range, 16);
    if (range == NULL) {
        return false;
    }
    *range = *given;
    if (!open_range(heap, range)) {
        return false;
    }
    struct flw_range **link = &heap->ranges.lowest;
    while (*link != NULL && (*link)->begin_unit < range->begin_unit) {
        link = &(*link)->next;
    }
    range->next = *link;
    *link = range;
    return true;
}

/* Reserve as much as for the first range, or less if the driver refuses, but at least need_bytes.
 * In a driver section. */
static CUresult reserve_further(struct flw_heap *heap, uint64_t need_bytes, struct flw_range *out)
{
    uint64_t grain = range_grain(heap);
    uint64_t bytes = flw_max(need_bytes, heap->ranges.first.unit_count << FLW_UNIT_LOG2);
    CUresult result = reserve_anywhere(heap, bytes, out);
    while (may_reserve_other(result) && bytes > need_bytes) {
        bytes = flw_max(flw_align_down(bytes / 2, grain), need_bytes);
        result = reserve_anywhere(heap, bytes, out);
    }
    return result;
}

/* Reserve a further range with room for the request. OUT_OF_MEMORY: the window cannot name a
 * further range, the driver refuses, or it refused lately and is not called now. */
static fallow_status extend(struct flw_heap *heap, const struct flw_grow_request *request)
{
    struct flw_ranges *ranges = &heap->ranges;
    struct flw_range range = {.reservation_bytes = 0};
    struct flw_driver_section section;
    uint64_t units = (uint64_t)request->unit_count + request->align_units - 1;
    uint64_t need_bytes = flw_align_up(units << FLW_UNIT_LOG2, range_grain(heap));
    flw_lock_acquire(&heap->lock);
    bool may_ask = ranges->window_bytes == FLW_ADDRESS_SPACE_BYTES &&
                   (request->skips_backoff || !flw_refusal_spares(&ranges->refused, need_bytes));
    flw_lock_release(&heap->lock);
    if (!may_ask) {
        return FALLOW_OUT_OF_MEMORY;
    }
    if (!flw_heap_enter_mode(heap, &section)) {
        return flw_heap_not_entered(heap);
    }
    CUresult result = reserve_further(heap, need_bytes, &range);
    bool is_added = false;
    flw_lock_acquire(&heap->lock);
    if (result == CUDA_SUCCESS) {
        flw_refusal_end(&ranges->refused, need_bytes);
        is_added = add_range(heap, &range);
    } else {
        flw_refusal_note(&ranges->refused, need_bytes, request->skips_backoff);
        atomic_store(&ranges->refused_answer, (int)result);
    }
    flw_lock_release(&heap->lock);
    if (result == CUDA_SUCCESS && !is_added) {
        (void)heap->source.ops->unreserve(&heap->source, range.reservation,
                                          range.reservation_bytes);
    }
    flw_heap_leave_driver(heap, &section);
    if (result != CUDA_SUCCESS) {
        return may_reserve_other(result) ? FALLOW_OUT_OF_MEMORY
                                         : flw_heap_refuse(heap, result, "cuMemAddressReserve");
    }
    return is_added ? FALLOW_OK : FALLOW_OUT_OF_HOST_MEMORY;
}

/* The largest alignment of a layout. */
#define RESERVED_ALIGN_BYTES (2 * FLW_MIB)

static uint32_t reserved_align_units(const struct flw_heap *heap)
{
    return (uint32_t)(flw_max(heap->source.granularity_bytes, RESERVED_ALIGN_BYTES) >>
                      FLW_UNIT_LOG2);
}

/* Cut the upper half, RESERVED, off the largest tail of a growable block. NULL: that half has less
 * than least_units, or host memory ran out. Heap lock held. */
static struct flw_span *halve_tail(struct flw_heap *heap, uint64_t least_units)
{
    struct flw_span *largest = NULL;
    for (const struct flw_range *range = heap->ranges.lowest; range != NULL; range = range->next) {
        struct flw_span *run = range->edge->u.run.right;
        for (; run != range->edge; run = run->u.run.right) {
            bool is_larger = largest == NULL || run->u.run.unit_count > largest->u.run.unit_count;
            largest = run->u.run.state == FLW_RUN_RESERVED && is_larger ? run : largest;
        }
    }
    if (largest == NULL) {
        return NULL;
    }
    uint64_t begin = heap->base_unit + flw_run_begin(largest), units = largest->u.run.unit_count;
    uint64_t keep = flw_align_up(begin + units / 2, reserved_align_units(heap)) - begin;
    return keep + least_units <= units ? flw_run_split(heap, largest, (uint32_t)keep) : NULL;
}

/* Take back addresses of growable blocks until the request fits. False: none are left and it does
 * not fit. */
static bool take_back_reserved(struct flw_heap *heap, const struct flw_grow_request *request)
{
    struct flw_placement place;
    struct flw_span *half;
    bool fits;
    flw_lock_acquire(&heap->lock);
    while (!(fits = flw_place_find(heap, request, &place)) &&
           (half = halve_tail(heap, heap->page_units)) != NULL) {
        flw_run_put_back_unmapped(heap, half);
    }
    flw_lock_release(&heap->lock);
    return fits;
}

fallow_status flw_ranges_make_place(struct flw_heap *heap, const struct flw_grow_request *request)
{
    fallow_status status = extend(heap, request);
    if (status == FALLOW_OUT_OF_MEMORY && take_back_reserved(heap, request)) {
        return FALLOW_OK;
    }
    bool may_unmap = status == FALLOW_OUT_OF_MEMORY && request->skips_backoff;
    return may_unmap && flw_heap_unmap_idle(heap, UINT64_MAX, false) > 0 ? FALLOW_OK : status;
}

/* ---- addresses for growable blocks */

/* Reserve request->unit_count units: half of a tail, or part of the smallest hole that has
 * beside_units more. In a hole, leave apart_units free at the begin, for other growths, or reserve
 * the end if the hole is too small for that. NULL: no tail and no hole is large enough, or host
 * memory ran out. */
static struct flw_span *reserve(struct flw_heap *heap, const struct flw_grow_request *request,
                                uint64_t beside_units, uint64_t apart_units)
{
    uint64_t base = heap->base_unit, align = request->align_units, units = request->unit_count;
    flw_lock_acquire(&heap->lock);
    struct flw_span *half = halve_tail(heap, units);
    struct flw_placement place = {.hole = half};
    if (half == NULL) {
        place.hole = flw_run_index_find(&heap->ranges.unmapped, (uint32_t)(units + beside_units),
                                        request->align_units, base);
    }
    if (half == NULL && place.hole != NULL) {
        uint64_t last = flw_align_down(base + flw_run_end(place.hole) - units, align) - base;
        uint64_t begin = flw_align_up(base + flw_run_begin(place.hole) + apart_units, align) - base;
        place.map_begin = flw_min(begin, last);
        place.map_end = place.map_begin + units;
        place.hole = flw_place_set_aside(heap, &place) ? place.hole : NULL;
    }
    if (place.hole != NULL) {
        place.hole->u.run.state = FLW_RUN_RESERVED;
    }
    flw_lock_release(&heap->lock);
    return place.hole;
}

/* Return the units of a hole to leave to other memory: most_units, at most a quarter of all
 * addresses. */
static uint64_t beside_units(struct flw_heap *heap, uint64_t most_units)
{
    uint64_t units = 0;
    flw_lock_acquire(&heap->lock);
    for (const struct flw_range *range = heap->ranges.lowest; range != NULL; range = range->next) {
        units += range->unit_count;
    }
    flw_lock_release(&heap->lock);
    return flw_min(most_units, units / 4);
}

fallow_status flw_growable_reserve(struct flw_heap *heap, uint64_t most_bytes, uint64_t least_bytes,
                                   struct flw_growable *out)
{
    uint64_t page = heap->source.granularity_bytes;
    uint64_t least = flw_align_up(least_bytes, page) >> FLW_UNIT_LOG2;
    uint64_t most = flw_max(flw_align_down(most_bytes, page) >> FLW_UNIT_LOG2, least);
    struct flw_grow_request request = {.domain = heap->domains[FLW_UNOWNED],
                                       .align_units = reserved_align_units(heap),
                                       .budget_bytes = UINT64_MAX,
                                       .is_single_handle = true,
                                       .skips_backoff = true};
    *out = (struct flw_growable){NULL, NULL};
    fallow_status status = heap->source.ops->remaps ? FALLOW_OK : FALLOW_NOT_SUPPORTED;
    bool is_last = false;
    for (uint64_t units = most; status != FALLOW_NOT_SUPPORTED && out->tail == NULL && !is_last;
         units = flw_max(flw_align_down(units / 2, heap->page_units), least)) {
        is_last = units == least;
        request.unit_count = (uint32_t)units;
        uint64_t beside = is_last ? 0 : beside_units(heap, most);
        out->tail = reserve(heap, &request, beside, most);
        status = out->tail != NULL ? FALLOW_OK
                 : is_last         ? flw_ranges_make_place(heap, &request)
                                   : extend(heap, &request);
        if (out->tail == NULL && status == FALLOW_OK) {
            out->tail = reserve(heap, &request, beside, most);
        }
    }
    return out->tail != NULL || status != FALLOW_OK ? status : FALLOW_OUT_OF_MEMORY;
}

#define FREE_ROUNDS 3

/* The source may have changed since the range was reserved. */
static CUresult free_range(struct flw_heap *heap, struct flw_range *range)
{
    const struct flw_source_ops *ops = heap->source.ops;
    ops = ops != NULL && ops->remaps ? ops : &flw_source_vmm;
    CUresult result = range->reservation_bytes == 0 ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
    for (unsigned n = 0; result != CUDA_SUCCESS && n < FREE_ROUNDS; n++) {
        result = ops->unreserve(&heap->source, range->reservation, range->reservation_bytes);
    }
    if (result == CUDA_SUCCESS) {
        range->reservation_bytes = 0;
    }
    return result;
}

CUresult flw_ranges_end(struct flw_heap *heap)
{
    CUresult last = CUDA_SUCCESS;
    for (struct flw_range *range = heap->ranges.lowest; range != NULL; range = range->next) {
        CUresult result = free_range(heap, range);
        last = result != CUDA_SUCCESS ? result : last;
    }
    heap->ranges.lowest = last == CUDA_SUCCESS ? NULL : heap->ranges.lowest;
    return last;
}

struct flw_range *flw_range_at(const struct flw_heap *heap, uint64_t unit)
{
    struct flw_range *range = heap->ranges.lowest;
    while (unit - range->begin_unit >= range->unit_count) {
        range = range->next;
    }
    return range;
}

uint64_t flw_ranges_touched_pages(const struct flw_heap *heap)
{
    uint64_t pages = 0;
    for (const struct flw_range *range = heap->ranges.lowest; range != NULL; range = range->next) {
        uint64_t begin = range->begin_unit / heap->page_units;
        pages += flw_max(begin, range->mapped_page_end) - begin;
    }
    return pages;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: physical memory: getting it, moving it, giving it back. Plans are made under the heap lock,
 * which sets the address range aside (state BUSY); the driver is called without it; the outcome is
 * published under it again. reserved_bytes is raised before the driver is asked, so the limit
 * always holds.
 */
#include <string.h>

#include "base/mutant.h"
#include "heap/heap.h"

struct flw_handle *flw_heap_handle_at(const struct flw_heap *heap, uint64_t offset)
{
    return heap->page_handle == NULL ? NULL
                                     : heap->page_handle[offset / heap->source.granularity_bytes];
}

static void raise_reserved(struct flw_heap *heap, uint64_t bytes)
{
    uint64_t now = atomic_load(&heap->reserved_bytes) + bytes;
    atomic_store(&heap->reserved_bytes, now);
    FLW_ASSERT(now <= heap->limit_bytes);
}

/* What the driver really gave counts for the peak, not what was asked in vain. */
static void note_peak(struct flw_heap *heap)
{
    uint64_t now = atomic_load(&heap->reserved_bytes);
    if (now > atomic_load(&heap->peak_reserved_bytes)) {
        atomic_store(&heap->peak_reserved_bytes, now);
    }
}

static void lower_reserved(struct flw_heap *heap, uint64_t bytes)
{
    atomic_store(&heap->reserved_bytes, atomic_load(&heap->reserved_bytes) - bytes);
}

static fallow_status driver_failure(struct flw_heap *heap, CUresult result, const char *call)
{
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        return FALLOW_OUT_OF_MEMORY;
    }
    flw_heap_lose_device(heap, result, call);
    return FALLOW_DEVICE_LOST;
}

/* ---- where: address space with the fewest missing pages */

/* left and right are free memory that the domain may use, or NULL; hole is unmapped between them.
 */
struct placement {
    struct flw_span *left, *hole, *right;
    uint64_t begin, end;         /* of the run to make, in units */
    uint64_t map_begin, map_end; /* what must get memory: whole pages of the hole */
};

static struct flw_span *usable(const struct flw_domain *domain, struct flw_span *run)
{
    bool is_usable = run != NULL && run->u.run.state == FLW_RUN_FREE &&
                     (run->u.run.owner == FLW_NOBODY ||
                      (run->u.run.owner == domain->index && domain->ops->reuses_at_once));
    return is_usable ? run : NULL;
}

static uint64_t begin_of(const struct flw_span *run)
{
    return run->u.run.begin_unit;
}

static uint64_t end_of(const struct flw_span *run)
{
    return (uint64_t)run->u.run.begin_unit + run->u.run.unit_count;
}

static uint64_t align_unit(const struct flw_heap *heap, uint64_t unit, uint32_t align_units)
{
    return flw_align_up(heap->base_unit + unit, align_units) - heap->base_unit;
}

/* Place the request at `begin` over left, hole and right; false if it does not fit there. */
static bool fit_at(const struct flw_heap *heap, struct placement *place, uint64_t begin,
                   const struct flw_grow_request *request)
{
    uint64_t hole_begin = begin_of(place->hole), hole_end = end_of(place->hole);
    uint64_t end = begin + request->unit_count;
    uint64_t last = place->right != NULL ? end_of(place->right) : hole_end;
    if (end > last || end <= hole_begin || begin >= hole_end) {
        return false;
    }
    place->begin = begin;
    place->end = end;
    place->map_begin = flw_max(flw_align_down(begin, heap->page_units), hole_begin);
    place->map_end = flw_min(flw_align_up(end, heap->page_units), hole_end);
    if (begin >= hole_begin) {
        place->left = NULL;
    }
    if (end <= hole_end) {
        place->right = NULL;
    }
    return true;
}

static bool place_around(const struct flw_heap *heap, const struct flw_grow_request *request,
                         struct flw_span *hole, struct placement *out)
{
    struct flw_span *left = usable(request->domain, flw_run_left(heap, hole));
    struct flw_span *right = usable(request->domain, flw_run_right(heap, hole));
    struct placement best = {0};
    uint64_t starts[3];
    uint32_t count = 0;
    if (request->is_single_handle) {
        left = right = NULL;
    }
    if (left != NULL) {
        starts[count++] = align_unit(heap, begin_of(left), request->align_units);
    }
    starts[count++] = align_unit(heap, begin_of(hole), request->align_units);
    if (right != NULL && end_of(right) >= begin_of(hole) + request->unit_count) {
        starts[count++] = (heap->base_unit + end_of(right) - request->unit_count) /
                              request->align_units * request->align_units -
                          heap->base_unit;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct placement place = {.left = left, .hole = hole, .right = right};
        if (left == NULL && starts[i] < begin_of(hole)) {
            continue;
        }
        if (fit_at(heap, &place, starts[i], request) &&
            (best.hole == NULL ||
             place.map_end - place.map_begin < best.map_end - best.map_begin)) {
            best = place;
        }
    }
    *out = best;
    return best.hole != NULL;
}

#define HOLE_SCAN 256

static bool find_place(const struct flw_heap *heap, const struct flw_grow_request *request,
                       struct placement *out)
{
    struct placement place;
    struct flw_span *hole = heap->unmapped.newest;
    out->hole = NULL;
    for (uint32_t i = 0; hole != NULL && i < HOLE_SCAN; i++, hole = hole->u.run.age_prev) {
        if (place_around(heap, request, hole, &place) &&
            (out->hole == NULL ||
             place.map_end - place.map_begin < out->map_end - out->map_begin)) {
            *out = place;
        }
    }
    /* The untouched end of the range, however old. */
    hole = flw_page_map_span_at(&heap->map, heap->map.mask);
    if (hole->kind == FLW_SPAN_RUN && hole->u.run.state == FLW_RUN_UNMAPPED &&
        place_around(heap, request, hole, &place) &&
        (out->hole == NULL || place.map_end - place.map_begin < out->map_end - out->map_begin)) {
        *out = place;
    }
    return out->hole != NULL;
}

/* ---- set aside, restore, settle */

static void set_busy(struct flw_heap *heap, struct flw_span *run)
{
    flw_run_unindex(heap, run);
    run->u.run.state = FLW_RUN_BUSY;
}

/* Cut an unmapped stretch of the hole off, back to the index. */
static void return_unmapped(struct flw_heap *heap, struct flw_span *run)
{
    run->u.run.state = FLW_RUN_UNMAPPED;
    run->u.run.ticket = 0;
    run->u.run.owner = FLW_NOBODY;
    flw_run_index_by_state(heap, flw_run_join(heap, run));
}

/* Reduce the hole to [map_begin, map_end) and set all three aside. False: host memory. */
static bool set_aside(struct flw_heap *heap, struct placement *place)
{
    struct flw_span *hole = place->hole, *rest;
    set_busy(heap, hole);
    if (place->map_end < end_of(hole)) {
        rest = flw_run_split(heap, hole, (uint32_t)(place->map_end - begin_of(hole)));
        if (rest == NULL) {
            return_unmapped(heap, hole);
            return false;
        }
        return_unmapped(heap, rest);
    }
    if (place->map_begin > begin_of(hole)) {
        rest = flw_run_split(heap, hole, (uint32_t)(place->map_begin - begin_of(hole)));
        if (rest == NULL) {
            return_unmapped(heap, hole);
            return false;
        }
        return_unmapped(heap, hole);
        place->hole = rest;
    }
    if (place->left != NULL) {
        set_busy(heap, place->left);
    }
    if (place->right != NULL) {
        set_busy(heap, place->right);
    }
    return true;
}

static void put_back(struct flw_heap *heap, struct flw_span *run)
{
    if (run != NULL) {
        flw_heap_put_run_stamped(heap, run->u.run.owner, run->u.run.ticket, run);
    }
}

static void undo_place(struct flw_heap *heap, const struct placement *place)
{
    return_unmapped(heap, place->hole);
    put_back(heap, place->left);
    put_back(heap, place->right);
}

static struct flw_span *absorb(struct flw_heap *heap, struct flw_span *run, struct flw_span *right)
{
    if (run == NULL || right == NULL) {
        return run == NULL ? right : run;
    }
    run->u.run.unit_count += right->u.run.unit_count;
    flw_page_map_drop_run(&heap->map, right);
    flw_run_set_map(heap, run);
    return run;
}

/* The mapped pieces become one LIVE run [begin, end); what lies before and after is free. */
static struct flw_span *settle_place(struct flw_heap *heap, const struct placement *place)
{
    uint32_t front_owner = place->left != NULL ? place->left->u.run.owner : FLW_NOBODY;
    uint64_t front_ticket = place->left != NULL ? place->left->u.run.ticket : 0;
    uint32_t back_owner = place->right != NULL ? place->right->u.run.owner : FLW_NOBODY;
    uint64_t back_ticket = place->right != NULL ? place->right->u.run.ticket : 0;
    struct flw_span *run = absorb(heap, absorb(heap, place->left, place->hole), place->right);
    struct flw_span *rest;
    if (end_of(run) > place->end) {
        rest = flw_run_split(heap, run, (uint32_t)(place->end - begin_of(run)));
        if (rest != NULL) {
            flw_heap_put_run_stamped(heap, back_owner, back_ticket, rest);
        } /* else the run is larger than asked for: harmless */
    }
    if (begin_of(run) < place->begin) {
        rest = flw_run_split(heap, run, (uint32_t)(place->begin - begin_of(run)));
        if (rest != NULL) {
            flw_heap_put_run_stamped(heap, front_owner, front_ticket, run);
            run = rest;
        }
    }
    run->u.run.state = FLW_RUN_LIVE;
    run->u.run.owner = FLW_NOBODY;
    run->u.run.ticket = flw_max(front_ticket, back_ticket); /* of the taker, where not complete */
    heap->live_run_bytes += flw_run_bytes(run);
    flw_run_arm_slot(heap, run);
    return run;
}

/* ---- with what: idle handles first, then new ones */

struct stock {
    struct flw_handle *handles; /* in address order of use; chained by next */
    struct flw_handle **end;
    uint64_t new_bytes; /* of those that must be created */
};

static uint64_t handle_bytes(const struct flw_handle *handle)
{
    return (uint64_t)handle->unit_count << FLW_UNIT_LOG2;
}

static void unlink_idle(struct flw_heap *heap, struct flw_handle *handle)
{
    *(handle->prev != NULL ? &handle->prev->next : &heap->idle_handles) = handle->next;
    if (handle->next != NULL) {
        handle->next->prev = handle->prev;
    }
    heap->idle_bytes -= handle_bytes(handle);
}

static void link_idle(struct flw_heap *heap, struct flw_handle *handle)
{
    handle->is_mapped = false;
    handle->prev = NULL;
    handle->next = heap->idle_handles;
    if (handle->next != NULL) {
        handle->next->prev = handle;
    }
    heap->idle_handles = handle;
    heap->idle_bytes += handle_bytes(handle);
}

static void add_stock(struct stock *stock, struct flw_handle *handle)
{
    handle->next = NULL;
    *stock->end = handle;
    stock->end = &handle->next;
}

static void take_idle(struct flw_heap *heap, struct stock *stock, uint64_t *need_units)
{
    for (struct flw_handle *handle = heap->idle_handles, *next; handle != NULL && *need_units > 0;
         handle = next) {
        next = handle->next;
        if (handle->unit_count <= *need_units && handle->types == heap->source.handle_types) {
            unlink_idle(heap, handle);
            *need_units -= handle->unit_count;
            add_stock(stock, handle);
        }
    }
}

/* Descriptors for handles that are still to be created: id 0. False: host memory. */
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

static void return_stock(struct flw_heap *heap, struct stock *stock)
{
    for (struct flw_handle *handle = stock->handles, *next; handle != NULL; handle = next) {
        next = handle->next;
        if (handle->id != 0) {
            link_idle(heap, handle);
        } else {
            flw_heap_drop_handle(heap, handle);
        }
    }
    stock->handles = NULL;
}

/* Driver calls. On failure everything is unmapped again; created handles keep their id. */
static CUresult map_stock(struct flw_heap *heap, const struct stock *stock, uint64_t address,
                          const char **out_call)
{
    struct flw_source *source = &heap->source;
    uint64_t at = address;
    CUresult result = CUDA_SUCCESS;
    struct flw_handle *handle = stock->handles;
    for (; handle != NULL; handle = handle->next) {
        if (handle->id == 0) {
            *out_call = "cuMemCreate";
            result = source->ops->create(source, handle_bytes(handle), handle->types, &handle->id);
            if (result != CUDA_SUCCESS) {
                handle->id = 0;
                break;
            }
        }
        *out_call = "cuMemMap";
        result = source->ops->map(source, at, handle_bytes(handle), handle->id);
        if (result != CUDA_SUCCESS) {
            break;
        }
        at += handle_bytes(handle);
    }
    if (result == CUDA_SUCCESS && !FLW_MUTANT(MAPS_WITHOUT_ACCESS)) {
        *out_call = "cuMemSetAccess";
        result = source->ops->set_access(source, address, at - address);
    }
    if (result != CUDA_SUCCESS) {
        at = address;
        for (struct flw_handle *h = stock->handles; h != handle; h = h->next) {
            (void)source->ops->unmap(source, at, handle_bytes(h));
            at += handle_bytes(h);
        }
    }
    return result;
}

static void publish_stock(struct flw_heap *heap, const struct stock *stock, uint64_t begin_unit)
{
    for (struct flw_handle *handle = stock->handles, *next; handle != NULL; handle = next) {
        next = handle->next;
        handle->begin_unit = (uint32_t)begin_unit;
        handle->is_mapped = true;
        begin_unit += handle->unit_count;
        for (uint64_t page = handle->begin_unit / heap->page_units;
             page < begin_unit / heap->page_units; page++) {
            heap->page_handle[page] = handle;
        }
    }
    heap->mapped_page_end = flw_max(heap->mapped_page_end, begin_unit / heap->page_units);
}

/* How far to map beyond the need: to the preferred handle size, within hole and budget. */
static void extend_ahead(const struct flw_heap *heap, const struct flw_grow_request *request,
                         struct placement *place)
{
    uint64_t need_units = place->map_end - place->map_begin;
    uint64_t need_bytes = need_units << FLW_UNIT_LOG2;
    uint64_t reserved = atomic_load(&heap->reserved_bytes);
    uint64_t room = flw_min(request->budget_bytes, heap->limit_bytes);
    room = room > reserved ? room - reserved : 0;
    uint64_t wanted = flw_min(request->ahead_bytes, room) >> FLW_UNIT_LOG2;
    wanted = flw_align_down(wanted, heap->page_units);
    if (heap->idle_bytes >= need_bytes || wanted <= need_units || place->right != NULL ||
        request->is_single_handle) {
        return;
    }
    place->map_end = flw_min(end_of(place->hole), place->map_begin + wanted);
}

static bool plan_stock(struct flw_heap *heap, const struct flw_grow_request *request,
                       const struct placement *place, struct stock *stock)
{
    uint64_t need_units = place->map_end - place->map_begin;
    uint64_t chunk = flw_max(heap->page_units, request->ahead_bytes >> FLW_UNIT_LOG2);
    uint32_t types = request->handle_types | heap->source.handle_types;
    *stock = (struct stock){.end = &stock->handles};
    if (request->is_single_handle) {
        chunk = need_units;
    } else {
        take_idle(heap, stock, &need_units);
    }
    stock->end = stock->handles == NULL ? &stock->handles : stock->end;
    return add_new(heap, stock, need_units, chunk, types);
}

static fallow_status grow_remapping(struct flw_heap *heap, const struct flw_grow_request *request,
                                    struct flw_span **out_run)
{
    struct placement place;
    struct stock stock = {0};
    struct flw_driver_section section;
    const char *call = "";
    flw_lock_acquire(&heap->lock);
    if (!find_place(heap, request, &place)) {
        flw_lock_release(&heap->lock);
        return FALLOW_OUT_OF_MEMORY;
    }
    extend_ahead(heap, request, &place);
    bool is_planned = plan_stock(heap, request, &place, &stock);
    uint64_t room = flw_min(request->budget_bytes, heap->limit_bytes);
    uint64_t reserved = atomic_load(&heap->reserved_bytes);
    if (FLW_MUTANT(LIMIT_PLUS_ONE_HANDLE)) {
        room += heap->source.granularity_bytes;
    }
    bool is_allowed = reserved + stock.new_bytes <= room || stock.new_bytes == 0;
    if (!is_planned || !is_allowed || !set_aside(heap, &place)) {
        return_stock(heap, &stock);
        flw_lock_release(&heap->lock);
        return is_allowed ? FALLOW_OUT_OF_HOST_MEMORY : FALLOW_OUT_OF_MEMORY;
    }
    raise_reserved(heap, stock.new_bytes);
    uint64_t address = heap->map.base + (place.map_begin << FLW_UNIT_LOG2);
    flw_lock_release(&heap->lock);

    CUresult result = CUDA_ERROR_UNKNOWN;
    if (flw_heap_enter_driver(heap, &section)) {
        result = map_stock(heap, &stock, address, &call);
        flw_heap_leave_driver(heap, &section);
    }

    flw_lock_acquire(&heap->lock);
    if (result == CUDA_SUCCESS) {
        note_peak(heap);
        publish_stock(heap, &stock, place.map_begin);
        *out_run = settle_place(heap, &place);
        atomic_fetch_add(&heap->count.grows, 1);
    } else {
        uint64_t missing = 0;
        for (struct flw_handle *handle = stock.handles; handle != NULL; handle = handle->next) {
            missing += handle->id == 0 ? handle_bytes(handle) : 0;
        }
        lower_reserved(heap, missing);
        note_peak(heap); /* what was made before the failure is kept, idle */
        return_stock(heap, &stock);
        undo_place(heap, &place);
    }
    flw_lock_release(&heap->lock);
    return result == CUDA_SUCCESS ? FALLOW_OK : driver_failure(heap, result, call);
}

/* ---- sources that give whole segments */

static uint64_t segment_bytes(const struct flw_heap *heap, const struct flw_grow_request *request)
{
    uint64_t need =
        flw_align_up((uint64_t)(request->unit_count + request->align_units - 1) << FLW_UNIT_LOG2,
                     heap->source.granularity_bytes);
    uint64_t reserved = atomic_load(&heap->reserved_bytes);
    if (request->unit_count >= FLW_MIB >> FLW_UNIT_LOG2 || request->is_single_handle) {
        return need; /* its own allocation, so that base and size are what the driver says */
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
    run->u.run.is_segment_begin = 1;
    run->u.run.state = FLW_RUN_BUSY;
    flw_run_set_map(heap, run);
    segment->next = heap->segments;
    segment->link = &heap->segments;
    if (segment->next != NULL) {
        segment->next->link = &segment->next;
    }
    heap->segments = segment;
    flw_heap_put_run_stamped(heap, FLW_NOBODY, 0, run);
    return flw_heap_take_run(heap, request->domain, request->unit_count, request->align_units);
}

static fallow_status grow_segment(struct flw_heap *heap, const struct flw_grow_request *request,
                                  struct flw_span **out_run)
{
    struct flw_driver_section section;
    flw_lock_acquire(&heap->lock);
    uint64_t bytes = segment_bytes(heap, request);
    uint64_t room = flw_min(request->budget_bytes, heap->limit_bytes);
    bool is_allowed = atomic_load(&heap->reserved_bytes) + bytes <= room;
    struct flw_segment *segment = is_allowed ? flw_heap_new_segment(heap) : NULL;
    struct flw_span *run = segment != NULL ? flw_page_map_new_run(&heap->map) : NULL;
    if (run != NULL) {
        raise_reserved(heap, bytes);
    }
    flw_lock_release(&heap->lock);
    if (run == NULL) {
        return is_allowed ? FALLOW_OUT_OF_HOST_MEMORY : FALLOW_OUT_OF_MEMORY;
    }
    uint64_t address = 0;
    CUresult result = CUDA_ERROR_UNKNOWN;
    if (flw_heap_enter_driver(heap, &section)) {
        result = heap->source.ops->acquire(&heap->source, bytes, &address);
        flw_heap_leave_driver(heap, &section);
    }
    flw_lock_acquire(&heap->lock);
    if (result == CUDA_SUCCESS) {
        note_peak(heap);
        uint64_t begin = flw_align_up(address, FLW_UNIT_BYTES);
        *segment = (struct flw_segment){.address = address,
                                        .begin_unit = (uint32_t)(begin >> FLW_UNIT_LOG2),
                                        .unit_count =
                                            (uint32_t)((address + bytes - begin) >> FLW_UNIT_LOG2)};
        *out_run = publish_segment(heap, segment, run, request);
        atomic_fetch_add(&heap->count.grows, 1);
    } else {
        lower_reserved(heap, bytes);
        flw_page_map_drop_run(&heap->map, run);
        flw_heap_drop_segment(heap, segment);
    }
    flw_lock_release(&heap->lock);
    if (result != CUDA_SUCCESS) {
        return driver_failure(heap, result, "cuMemAlloc");
    }
    return *out_run != NULL ? FALLOW_OK : FALLOW_OUT_OF_MEMORY;
}

fallow_status flw_heap_grow(struct flw_heap *heap, const struct flw_grow_request *request,
                            struct flw_span **out_run)
{
    struct flw_grow_request whole = *request;
    *out_run = NULL;
    if (whole.is_single_handle) { /* all of it: the rest would be lent to others */
        whole.unit_count = (uint32_t)flw_align_up(whole.unit_count, heap->page_units);
    }
    return heap->source.ops->remaps ? grow_remapping(heap, &whole, out_run)
                                    : grow_segment(heap, &whole, out_run);
}

/* ---- taking memory out again */

/* lock. The first handle that lies wholly inside a run at or after `unit`; NULL. */
static struct flw_handle *handle_inside(const struct flw_heap *heap, const struct flw_span *run)
{
    uint64_t page = flw_div_up(begin_of(run), heap->page_units);
    while ((page + 1) * heap->page_units <= end_of(run)) {
        struct flw_handle *handle = heap->page_handle[page];
        uint64_t handle_end =
            handle == NULL ? 0 : (uint64_t)handle->begin_unit + handle->unit_count;
        if (handle != NULL && handle->begin_unit >= begin_of(run) && handle_end <= end_of(run)) {
            return handle;
        }
        page = handle != NULL ? handle_end / heap->page_units : page + 1;
    }
    return NULL;
}

/* lock. Cut the handle's stretch out of nobody's run, BUSY. NULL: host memory. */
static struct flw_span *cut_handle(struct flw_heap *heap, struct flw_span *run,
                                   const struct flw_handle *handle)
{
    uint64_t handle_end = (uint64_t)handle->begin_unit + handle->unit_count;
    struct flw_span *middle = run, *rest = NULL;
    set_busy(heap, run);
    if (handle_end < end_of(run)) {
        rest = flw_run_split(heap, run, (uint32_t)(handle_end - begin_of(run)));
        if (rest == NULL) {
            put_back(heap, run);
            return NULL;
        }
    }
    if (handle->begin_unit > begin_of(run)) {
        middle = flw_run_split(heap, run, (uint32_t)(handle->begin_unit - begin_of(run)));
        if (middle == NULL) {
            run = rest != NULL ? absorb(heap, run, rest) : run;
            put_back(heap, run);
            return NULL;
        }
        put_back(heap, run);
    }
    if (rest != NULL) {
        put_back(heap, rest);
    }
    return middle;
}

#define UNMAP_BATCH 64

uint64_t flw_heap_unmap_idle(struct flw_heap *heap, uint64_t want_bytes)
{
    struct flw_span *cut[UNMAP_BATCH];
    uint64_t done_bytes = 0;
    struct flw_driver_section section;
    if (!heap->source.ops->remaps || !flw_heap_enter_driver(heap, &section)) {
        return 0;
    }
    for (uint32_t count = 1; done_bytes < want_bytes && count > 0;) {
        uint64_t planned_bytes = 0;
        count = 0;
        flw_lock_acquire(&heap->lock);
        struct flw_span *run =
            heap->domains[FLW_MUTANT(UNMAPS_BUSY_HANDLE) ? heap->domain_end - 1 : FLW_NOBODY]
                ->runs.oldest;
        while (run != NULL && count < UNMAP_BATCH && done_bytes + planned_bytes < want_bytes) {
            struct flw_span *next = run->u.run.age_next;
            struct flw_handle *handle =
                run->u.run.unit_count >= heap->page_units ? handle_inside(heap, run) : NULL;
            struct flw_span *middle = handle != NULL ? cut_handle(heap, run, handle) : NULL;
            if (middle != NULL) {
                planned_bytes += flw_run_bytes(middle);
                cut[count++] = middle;
                /* What was cut off went back to the index at the young end: it is met again. */
                next = next != NULL ? next : heap->domains[FLW_NOBODY]->runs.oldest;
            }
            run = next;
        }
        flw_lock_release(&heap->lock);
        for (uint32_t i = 0; i < count; i++) {
            CUresult result = heap->source.ops->unmap(&heap->source, flw_run_address(heap, cut[i]),
                                                      flw_run_bytes(cut[i]));
            struct flw_handle *handle =
                flw_heap_handle_at(heap, (uint64_t)cut[i]->u.run.begin_unit << FLW_UNIT_LOG2);
            if (result != CUDA_SUCCESS) {
                flw_heap_lose_device(heap, result, "cuMemUnmap");
            }
            flw_lock_acquire(&heap->lock);
            for (uint64_t page = handle->begin_unit / heap->page_units, n = 0;
                 n < handle->unit_count / heap->page_units; n++) {
                heap->page_handle[page + n] = NULL;
            }
            link_idle(heap, handle);
            atomic_fetch_add(&heap->count.remaps, 1);
            done_bytes += flw_run_bytes(cut[i]);
            return_unmapped(heap, cut[i]);
            flw_lock_release(&heap->lock);
        }
    }
    flw_heap_leave_driver(heap, &section);
    return done_bytes;
}

static bool release_one_handle(struct flw_heap *heap)
{
    flw_lock_acquire(&heap->lock);
    struct flw_handle *handle = heap->idle_handles;
    for (; handle != NULL && handle->next != NULL; handle = handle->next) {
    }
    if (handle != NULL) {
        unlink_idle(heap, handle);
    }
    flw_lock_release(&heap->lock);
    if (handle == NULL) {
        return false;
    }
    CUresult result = heap->source.ops->release(&heap->source, handle->id);
    if (result != CUDA_SUCCESS) {
        flw_heap_lose_device(heap, result, "cuMemRelease");
    }
    flw_lock_acquire(&heap->lock);
    if (!FLW_MUTANT(RELEASE_NOT_COUNTED)) {
        lower_reserved(heap, handle_bytes(handle));
    }
    atomic_fetch_add(&heap->count.trims, 1);
    flw_heap_drop_handle(heap, handle);
    flw_lock_release(&heap->lock);
    return true;
}

static bool release_one_segment(struct flw_heap *heap)
{
    flw_lock_acquire(&heap->lock);
    struct flw_segment *segment = heap->segments;
    for (; segment != NULL; segment = segment->next) {
        struct flw_span *run =
            flw_page_map_span_at(&heap->map, (uint64_t)segment->begin_unit << FLW_UNIT_LOG2);
        if (run->kind == FLW_SPAN_RUN && run->u.run.state == FLW_RUN_FREE &&
            run->u.run.owner == FLW_NOBODY && run->u.run.unit_count == segment->unit_count) {
            flw_run_unindex(heap, run);
            /* Cleared before the driver may give the addresses to somebody else. */
            heap->map.units[segment->begin_unit] = 0;
            heap->map.units[segment->begin_unit + segment->unit_count - 1] = 0;
            flw_page_map_drop_run(&heap->map, run);
            *segment->link = segment->next;
            if (segment->next != NULL) {
                segment->next->link = segment->link;
            }
            break;
        }
    }
    flw_lock_release(&heap->lock);
    if (segment == NULL) {
        return false;
    }
    uint64_t bytes = flw_align_up((uint64_t)segment->unit_count << FLW_UNIT_LOG2,
                                  heap->source.granularity_bytes);
    CUresult result = heap->source.ops->give_back(&heap->source, segment->address);
    if (result != CUDA_SUCCESS) {
        flw_heap_lose_device(heap, result, "cuMemFree");
    }
    flw_lock_acquire(&heap->lock);
    lower_reserved(heap, bytes);
    atomic_fetch_add(&heap->count.trims, 1);
    flw_heap_drop_segment(heap, segment);
    flw_lock_release(&heap->lock);
    return true;
}

uint64_t flw_heap_release_idle(struct flw_heap *heap, uint64_t keep_bytes)
{
    uint64_t before = atomic_load(&heap->reserved_bytes);
    struct flw_driver_section section;
    if (heap->source.ops->remaps && before > keep_bytes && heap->idle_bytes < before - keep_bytes) {
        flw_heap_unmap_idle(heap, before - keep_bytes - heap->idle_bytes);
    }
    if (!flw_heap_enter_driver(heap, &section)) {
        return 0;
    }
    while (atomic_load(&heap->reserved_bytes) > keep_bytes && !flw_heap_is_lost(heap)) {
        bool is_released =
            heap->source.ops->remaps ? release_one_handle(heap) : release_one_segment(heap);
        if (!is_released) {
            break;
        }
    }
    flw_heap_leave_driver(heap, &section);
    return before - atomic_load(&heap->reserved_bytes);
}

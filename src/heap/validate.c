/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the checker of heap.h's invariants: it recomputes every total from the runs and lists up.
 */
#include "heap/heap.h"

static const char *check_indexes(const struct flw_heap *heap)
{
    for (uint32_t i = 0; i < heap->domain_end; i++) {
        const struct flw_domain *domain = heap->domains[i];
        if (!flw_run_index_is_valid(&domain->runs)) {
            return "an index of free runs disagrees with its runs";
        }
        if (i != FLW_NOBODY && domain->ops != NULL && domain->completed >= domain->ticket) {
            return "a domain's completed ticket is not below its next";
        }
        uint64_t last = domain->completed;
        for (const struct flw_fence *fence = domain->oldest; fence != NULL; fence = fence->next) {
            if (fence->ticket <= last || fence->ticket >= domain->ticket) {
                return "a fence's ticket is out of order";
            }
            last = fence->ticket;
        }
    }
    return flw_run_index_is_valid(&heap->unmapped) ? NULL : "the index of unmapped runs is broken";
}

static uint64_t counted_slots(const struct flw_heap *heap)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < heap->domain_end; i++) {
        for (unsigned c = 0; c < FLW_CLASS_COUNT; c++) {
            const struct flw_batch *batch = heap->domains[i]->batches[c].head;
            for (; batch != NULL; batch = batch->next) {
                count += batch->is_counted ? batch->count : 0;
            }
        }
    }
    return count;
}

/* Remapping sources: walk the address space run by run. */
static const char *check_partition(const struct flw_heap *heap)
{
    uint64_t unit = 0, end = heap->range_bytes >> FLW_UNIT_LOG2, live = 0;
    uint64_t indexed = heap->unmapped.run_count, met = 0, in_slabs = 0;
    const struct flw_span *previous = NULL;
    for (uint32_t i = 0; i < heap->domain_end; i++) {
        indexed += heap->domains[i]->runs.run_count;
    }
    while (unit < end) {
        const struct flw_span *span = flw_page_map_span_at(&heap->map, unit << FLW_UNIT_LOG2);
        const struct flw_span *run = span->kind == FLW_SPAN_SLAB ? span->u.slab.run : span;
        if (run->kind != FLW_SPAN_RUN || run->u.run.begin_unit != unit ||
            run->u.run.unit_count == 0) {
            return "the runs do not partition the address space";
        }
        uint64_t last = unit + run->u.run.unit_count - 1;
        const struct flw_span *at_last = flw_page_map_span_at(&heap->map, last << FLW_UNIT_LOG2);
        if (at_last != span) {
            return "a run's last unit maps to another span";
        }
        if (span->kind == FLW_SPAN_SLAB) {
            const struct flw_slab_part *slab = &span->u.slab;
            in_slabs += slab->free_count - (slab->slot_count - slab->carved_count);
        }
        bool is_indexed = run->u.run.state == FLW_RUN_FREE || run->u.run.state == FLW_RUN_UNMAPPED;
        met += is_indexed;
        live += run->u.run.state == FLW_RUN_LIVE ? flw_run_bytes(run) : 0;
        if (previous != NULL && is_indexed && previous->u.run.state == run->u.run.state &&
            !run->u.run.is_segment_begin &&
            (run->u.run.state == FLW_RUN_UNMAPPED || previous->u.run.owner == run->u.run.owner)) {
            return "two neighbours of one owner were not joined";
        }
        bool is_mapped = run->u.run.state != FLW_RUN_UNMAPPED && run->u.run.state != FLW_RUN_BUSY;
        for (uint64_t page = unit / heap->page_units; page <= last / heap->page_units; page++) {
            bool has_handle = heap->page_handle[page] != NULL;
            if (run->u.run.state != FLW_RUN_BUSY && has_handle != is_mapped) {
                return is_mapped ? "mapped memory without a handle"
                                 : "a handle where none is mapped";
            }
            if (!is_mapped && page >= heap->mapped_page_end) {
                break;
            }
        }
        previous = run;
        unit = last + 1;
    }
    if (met != indexed) {
        return "a free run is in no index, or an index holds one that is not free";
    }
    if (in_slabs != counted_slots(heap)) {
        return "the slabs' free slots are not those of the counted batches";
    }
    return live == heap->live_run_bytes ? NULL : "live_run_bytes is not the sum of the live runs";
}

static const char *check_handles(const struct flw_heap *heap)
{
    uint64_t bytes = 0, asleep = 0, exported = 0;
    for (uint64_t page = 0; page < heap->mapped_page_end;) {
        const struct flw_handle *handle = heap->page_handle[page];
        if (handle == NULL) {
            page++;
            continue;
        }
        if (handle->begin_unit != page * heap->page_units) {
            return "a page names a handle that begins elsewhere";
        }
        uint64_t own = (uint64_t)handle->unit_count << FLW_UNIT_LOG2;
        bytes += handle->id != 0 ? own : 0;
        asleep += handle->is_asleep ? own : 0;
        exported += handle->is_exported ? own : 0;
        if (handle->id == 0 && !handle->is_asleep) {
            return "a mapped handle was never created";
        }
        page += handle->unit_count / heap->page_units;
    }
    if (asleep != atomic_load(&heap->asleep_bytes)) {
        return "asleep_bytes is not the sum of the sleeping handles";
    }
    if (exported != atomic_load(&heap->exported_bytes)) {
        return "exported_bytes is not the sum of the exported handles";
    }
    uint64_t idle = 0;
    for (const struct flw_handle *handle = heap->idle_handles; handle; handle = handle->next) {
        idle += (uint64_t)handle->unit_count << FLW_UNIT_LOG2;
    }
    if (idle != heap->idle_bytes) {
        return "idle_bytes is not the sum of the idle handles";
    }
    return bytes + idle == atomic_load(&heap->reserved_bytes)
               ? NULL
               : "reserved_bytes is not the sum over handles";
}

static const char *check_batches(const struct flw_heap *heap)
{
    for (uint32_t i = 0; i < heap->domain_end; i++) {
        for (unsigned c = 0; c < FLW_CLASS_COUNT; c++) {
            const struct flw_batch *batch = heap->domains[i]->batches[c].head;
            for (; batch != NULL; batch = batch->next) {
                for (uint32_t s = 0; s < batch->count; s++) {
                    const struct flw_slot *slot = batch->slots[s];
                    const struct flw_span *slab = flw_slot_span(&heap->map, slot);
                    if ((slot->word & FLW_SLOT_STATE_MASK) != FLW_SLOT_FREE) {
                        return "a batch holds a slot that is not free";
                    }
                    if (slab->kind != FLW_SPAN_SLAB || slab->u.slab.class_index != c) {
                        return "a batch holds a slot of another class";
                    }
                }
                if (batch->count == 0) {
                    return "an empty batch is listed";
                }
            }
        }
    }
    return NULL;
}

const char *flw_heap_broken_invariant(const struct flw_heap *heap)
{
    const char *broken = check_indexes(heap);
    if (broken == NULL && heap->source.ops->remaps) {
        broken = check_partition(heap);
    }
    if (broken == NULL && heap->source.ops->remaps) {
        broken = check_handles(heap);
    }
    if (broken == NULL && atomic_load(&heap->reserved_bytes) > heap->limit_bytes) {
        broken = "more is reserved than the limit";
    }
    return broken != NULL ? broken : check_batches(heap);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mutant.h"
#include "heap/space/deferred.h"
#include "heap/space/run.h"
#include "heap/space/slab.h"

static void list_empty(struct flw_slabs *slabs, struct flw_span *slab)
{
    unsigned class_index = slab->u.slab.class_index;
    struct flw_span *next = slabs->empty[class_index];
    slab->u.slab.empty_prev = NULL;
    slab->u.slab.empty_next = next;
    if (next != NULL) {
        next->u.slab.empty_prev = slab;
    }
    slabs->empty[class_index] = slab;
    flw_class_set_add(&slabs->with_empty, class_index);
}

static void unlist_empty(struct flw_slabs *slabs, const struct flw_span *slab)
{
    unsigned class_index = slab->u.slab.class_index;
    struct flw_span *next = slab->u.slab.empty_next, *prev = slab->u.slab.empty_prev;
    if (next != NULL) {
        next->u.slab.empty_prev = prev;
    }
    if (prev != NULL) {
        prev->u.slab.empty_next = next;
        return;
    }
    slabs->empty[class_index] = next;
    if (next == NULL) {
        flw_class_set_remove(&slabs->with_empty, class_index);
    }
}

static void count_out(struct flw_heap *heap, struct flw_span *slab, uint32_t count)
{
    struct flw_slab_part *part = &slab->u.slab;
    if (count > 0 && part->free_count == part->slot_count) {
        unlist_empty(&heap->slabs, slab);
    }
    FLW_ASSERT(part->free_count >= count);
    part->free_count -= count;
}

static void count_in(struct flw_heap *heap, struct flw_span *slab, uint32_t count)
{
    struct flw_slab_part *part = &slab->u.slab;
    part->free_count += count;
    if (part->free_count == part->slot_count) {
        list_empty(&heap->slabs, slab);
    }
    FLW_ASSERT(part->free_count <= part->slot_count);
}

/* Return the slab of the first of some slots, and how many of the following slots are in it:
 * usually all. */
static struct flw_span *slab_of(const struct flw_heap *heap, struct flw_slot *const *slots,
                                uint32_t count, uint32_t *out_count)
{
    struct flw_span *slab = flw_slot_span(&heap->map, slots[0]);
    const struct flw_slot *first = flw_span_slot(&heap->map, slab, 0);
    uint32_t own = 1;
    while (own < count && (uint64_t)(slots[own] - first) < slab->u.slab.slot_count) {
        own++;
    }
    *out_count = own;
    return slab;
}

/* Join a point: everything ever freed from the slab must be complete before the memory changes
 * owners. */
static void join_point(const struct flw_heap *heap, struct flw_slab_part *slab,
                       struct flw_point point)
{
    uint32_t at = slab->point_count;
    for (uint32_t i = 0; i < slab->point_count; i++) {
        if (slab->points[i].domain == point.domain) {
            slab->points[i].seq = flw_max(slab->points[i].seq, point.seq);
            return;
        }
        if (flw_point_is_complete(heap, &slab->points[i])) {
            at = i; /* the place is free */
        }
    }
    if (at == FLW_POINTS_MAX) {
        slab->points_overflowed = !FLW_MUTANT(SLAB_FORGETS_OVERFLOW);
        return;
    }
    slab->point_count += at == slab->point_count;
    slab->points[at] = point;
}

/* ---- counting: updating slabs with the slots of batches */

static void hide(struct flw_heap *heap, struct flw_batch *batch)
{
    struct flw_batch *newest = heap->slabs.newest_uncounted;
    batch->is_counted = false;
    batch->uncounted_next = NULL;
    batch->uncounted_prev = newest;
    *(newest != NULL ? &newest->uncounted_next : &heap->slabs.oldest_uncounted) = batch;
    heap->slabs.newest_uncounted = batch;
}

static void unhide(struct flw_heap *heap, struct flw_batch *batch)
{
    struct flw_batch *next = batch->uncounted_next, *prev = batch->uncounted_prev;
    *(prev != NULL ? &prev->uncounted_next : &heap->slabs.oldest_uncounted) = next;
    *(next != NULL ? &next->uncounted_prev : &heap->slabs.newest_uncounted) = prev;
    batch->is_counted = true;
}

static void join_batch(struct flw_heap *heap, const struct flw_batch *batch, bool counts_in)
{
    struct flw_point point = {.domain = batch->domain, .seq = batch->seq};
    bool joins = batch->domain != FLW_UNOWNED && !flw_point_is_complete(heap, &point) &&
                 !FLW_MUTANT(SLAB_FORGETS_JOIN);
    for (uint32_t i = 0, own; i < batch->count; i += own) {
        struct flw_span *slab = slab_of(heap, &batch->slots[i], batch->count - i, &own);
        if (joins) {
            join_point(heap, &slab->u.slab, point);
        }
        if (counts_in) {
            count_in(heap, slab, own);
        }
    }
}

static void count_batches(struct flw_heap *heap)
{
    for (struct flw_batch *batch; (batch = heap->slabs.oldest_uncounted) != NULL;) {
        unhide(heap, batch);
        join_batch(heap, batch, true);
    }
}

/* ---- batches */

static void drop_batch(struct flw_heap *heap, struct flw_batch_list *list, struct flw_batch *batch)
{
    flw_batch_remove(list, batch);
    if (!batch->is_counted) {
        unhide(heap, batch);
    }
    flw_heap_drop_batch(heap, batch);
}

static uint32_t take_from_list(struct flw_heap *heap, struct flw_batch_list *list, uint32_t want,
                               struct flw_slot **out)
{
    uint32_t taken = 0;
    while (taken < want && list->head != NULL) {
        struct flw_batch *batch = list->head;
        uint32_t count = (uint32_t)flw_min(want - taken, batch->count);
        struct flw_slot **slots = &batch->slots[batch->count - count];
        memcpy(out + taken, slots, count * sizeof *slots);
        for (uint32_t i = 0, own; batch->is_counted && i < count; i += own) {
            struct flw_span *slab = slab_of(heap, &slots[i], count - i, &own);
            count_out(heap, slab, own);
        }
        taken += count;
        batch->count -= count;
        if (batch->count == 0) {
            drop_batch(heap, list, batch);
        }
    }
    return taken;
}

/* The domain has a slab of the class to carve. */
static uint32_t carve(struct flw_heap *heap, struct flw_domain *domain, unsigned class_index,
                      uint32_t want, struct flw_slot **out)
{
    struct flw_span *slab = domain->current[class_index];
    struct flw_slab_part *part = &slab->u.slab;
    uint64_t size = flw_class_bytes(class_index);
    uint32_t count = (uint32_t)flw_min(want, part->slot_count - part->carved_count);
    count_out(heap, slab, count);
    struct flw_slot *slot = flw_span_slot(&heap->map, slab, part->carved_count);
    uint64_t address = heap->map.base + slab->base + part->carved_count * size;
    part->carved_count += count;
    for (uint32_t i = 0; i < count; i++, slot++, address += size) {
        flw_slot_set_word(slot, address);
        flw_slot_set_allocation(slot, 0);
        out[i] = slot;
    }
    if (part->carved_count == part->slot_count) {
        domain->current[class_index] = NULL;
    }
    return count;
}

void flw_heap_carve_rest(struct flw_heap *heap, struct flw_domain *domain, unsigned class_index)
{
    struct flw_slot *slots[FLW_BATCH_SLOTS];
    while (domain->current[class_index] != NULL) {
        uint32_t count = carve(heap, domain, class_index, FLW_BATCH_SLOTS, slots);
        flw_heap_put_slots(heap, domain, class_index, slots, count);
    }
}

uint32_t flw_heap_take_slots(struct flw_heap *heap, struct flw_domain *domain, unsigned class_index,
                             uint32_t want, struct flw_slot **out)
{
    uint32_t taken = 0;
    struct flw_batch_list *own = &domain->batches[class_index];
    struct flw_batch_list *unowned = &heap->domains[FLW_UNOWNED]->batches[class_index];
    if (own->head != NULL && domain->ops->reuses_at_once) {
        taken = take_from_list(heap, own, want, out);
    }
    if (unowned->head != NULL && taken < want && domain->capture == 0) {
        taken += take_from_list(heap, unowned, want - taken, out + taken);
    }
    if (taken < want && domain->current[class_index] != NULL) {
        taken += carve(heap, domain, class_index, want - taken, out + taken);
    }
    return taken;
}

void flw_heap_put_slots(struct flw_heap *heap, struct flw_domain *domain, unsigned class_index,
                        struct flw_slot *const *slots, uint32_t count)
{
    uint64_t seq = flw_domain_free_seq(domain);
    if (seq <= domain->completed) { /* a retired, complete stream */
        domain = heap->domains[FLW_UNOWNED];
    }
    struct flw_batch_list *list = &domain->batches[class_index];
    struct flw_batch *batch = list->head;
    for (uint32_t done = 0, part; done < count; done += part) {
        if (batch == NULL || batch->is_counted || batch->count == FLW_BATCH_SLOTS ||
            batch->seq != seq || batch->domain != domain->index) {
            batch = flw_heap_new_batch(heap);
            if (batch == NULL) {
                return; /* the slots stay unused until the pool ends: lost memory, no error */
            }
            batch->seq = seq - FLW_MUTANT(SLOTS_MARKED_EARLY);
            batch->domain = domain->index;
            batch->class_index = class_index;
            batch->count = 0;
            hide(heap, batch);
            flw_heap_push_batch(heap, domain, batch);
        }
        part = (uint32_t)flw_min(count - done, FLW_BATCH_SLOTS - batch->count);
        memcpy(&batch->slots[batch->count], slots + done, part * sizeof(struct flw_slot *));
        batch->count += part;
    }
    flw_domain_want_fence(heap, domain, count * flw_class_bytes(class_index));
}

/* Return the largest step of a slab of at most so many units, the smallest having `units`. */
static unsigned step_within(uint32_t units, uint64_t most_units)
{
    return most_units < 2 * (uint64_t)units
               ? 0
               : (unsigned)flw_min(flw_log2_floor(most_units / units), FLW_SLAB_STEPS - 1);
}

/* A large slab keeps fewer handles in place than several small ones, but a slot of a large class that is free in it
 * serves only its class: where most memory is in slabs, those of large classes are small. */
static uint64_t most_slab_units(const struct flw_heap *heap, unsigned class_index)
{
    bool is_small = flw_class_bytes(class_index) > FLW_UNIT_BYTES &&
                    heap->slabs.bytes > atomic_load(&heap->reserved_bytes) / 2;
    return is_small ? 0 : FLW_SLAB_MAX_UNITS;
}

static unsigned slab_step(const struct flw_heap *heap, const struct flw_domain *domain,
                          unsigned class_index, uint32_t units, uint64_t most_units)
{
    /* A quarter of the domain's present memory of the class. */
    uint64_t usual = (uint64_t)units * (domain->slab_count[class_index] / 4);
    uint64_t many = FLW_SLAB_MANY_SLOTS * flw_class_bytes(class_index) / FLW_UNIT_BYTES;
    uint64_t more = flw_min(flw_min(most_units, many), domain->slab_units[class_index] / 256);
    return step_within(units, flw_max(flw_min(usual, most_slab_units(heap, class_index)), more));
}

unsigned flw_heap_slab_step(const struct flw_heap *heap, const struct flw_domain *domain,
                            unsigned class_index, uint64_t most_units)
{
    return slab_step(heap, domain, class_index, flw_class_slab_units(class_index), most_units);
}

struct flw_span *flw_heap_take_slab_run(struct flw_heap *heap, struct flw_domain *domain,
                                        unsigned class_index)
{
    uint32_t smallest = heap->map.slab_units[class_index];
    unsigned usual = slab_step(heap, domain, class_index, smallest, 0);
    struct flw_span *run = NULL;
    for (unsigned step = slab_step(heap, domain, class_index, smallest, UINT64_MAX);
         run == NULL && step > usual; step--) {
        run = flw_heap_take_run(heap, domain, smallest << step, 1);
    }
    if (run == NULL) {
        run = flw_heap_take_run(heap, domain, smallest << usual, 1);
    }
    if (run == NULL && usual > 0) {
        run = flw_heap_take_run(heap, domain, smallest, 1);
    }
    return run;
}

/* ---- slabs of a small pool */

/* The better of two runs: the one behind a slab on the same page, otherwise the lower one. */
struct crowd {
    struct flw_span *run;
    bool is_behind_slab;
};

#define CROWD_SCAN 256

static void look_for_crowd(const struct flw_heap *heap, const struct flw_run_index *index,
                           uint32_t unit_count, struct crowd *best)
{
    struct flw_span *run = index->oldest;
    for (uint32_t i = 0; run != NULL && i < CROWD_SCAN; i++, run = run->u.run.age_next) {
        const struct flw_run_part *left = &run->u.run.left->u.run;
        bool is_behind = left->state == FLW_RUN_LIVE && left->slab != NULL &&
                         flw_run_begin(run) % heap->page_units != 0;
        bool is_better = best->run == NULL || (is_behind != best->is_behind_slab
                                                   ? is_behind
                                                   : flw_run_begin(run) < flw_run_begin(best->run));
        if (run->u.run.unit_count >= unit_count && is_better) {
            *best = (struct crowd){.run = run, .is_behind_slab = is_behind};
        }
    }
}

struct flw_span *flw_heap_take_crowded(struct flw_heap *heap, struct flw_domain *domain,
                                       uint32_t unit_count)
{
    struct crowd best = {0};
    look_for_crowd(heap, &heap->domains[FLW_UNOWNED]->runs, unit_count, &best);
    if (domain->ops->reuses_at_once) {
        look_for_crowd(heap, &domain->runs, unit_count, &best);
    }
    return best.run != NULL ? flw_heap_take_from(heap, best.run, unit_count, 1) : NULL;
}

/* ---- creating and releasing slabs */

/* Atomic: a free of any pointer may read it. */
static void set_bin(const struct flw_heap *heap, struct flw_span *slab, unsigned class_index)
{
    __atomic_store_n(&slab->bin, heap->slabs.bin_offsets[class_index], __ATOMIC_RELAXED);
}

void flw_heap_open_slab(const struct flw_heap *heap, struct flw_span *slab)
{
    set_bin(heap, slab, slab->u.slab.class_index);
    slab->u.slab.capture = 0;
}

void flw_heap_adopt_batch(struct flw_heap *heap, struct flw_domain *domain, struct flw_batch *batch)
{
    uint64_t seq = flw_domain_free_seq(domain);
    if (seq <= domain->completed) { /* a retired, complete stream */
        domain = heap->domains[FLW_UNOWNED];
    }
    batch->seq = seq;
    batch->domain = domain->index;
    for (uint32_t i = 0; i < batch->count; i++) {
        flw_heap_open_slab(heap, flw_slot_span(&heap->map, batch->slots[i]));
    }
    if (batch->is_counted) {
        join_batch(heap, batch, false);
    }
    flw_domain_want_fence(heap, domain, batch->count * flw_class_bytes(batch->class_index));
    flw_heap_push_batch(heap, domain, batch);
}

bool flw_heap_adopt_slab(struct flw_heap *heap, struct flw_domain *domain, unsigned class_index,
                         struct flw_span *run)
{
    uint32_t smallest = heap->map.slab_units[class_index];
    unsigned step = step_within(smallest, run->u.run.unit_count);
    if (domain->current[class_index] != NULL || smallest << step != run->u.run.unit_count) {
        /* Another thread was faster: the slab is carved first. */
        flw_heap_put_run(heap, domain, run);
        return domain->current[class_index] != NULL;
    }
    struct flw_span *slab = flw_page_map_new_slab(&heap->map, class_index, step);
    if (slab == NULL) {
        flw_heap_put_run(heap, domain, run);
        return false;
    }
    struct flw_slab_part *part = &slab->u.slab;
    set_bin(heap, slab, domain->capture != 0 ? FLW_CLASS_COUNT : class_index);
    part->run = run;
    part->capture = (uint16_t)domain->capture;
    part->domain = domain->index;
    /* The run may be the domain's own memory: then the point joins from the start. */
    part->points[0] = (struct flw_point){.domain = domain->index, .seq = run->u.run.seq};
    part->point_count = run->u.run.seq > domain->completed;
    slab->base = (uint64_t)run->u.run.begin_unit << FLW_UNIT_LOG2;
    flw_slot_set_word(flw_span_slot(&heap->map, run, 0), 0);
    run->u.run.slab = slab;
    flw_page_map_set_slab(&heap->map, slab);
    heap->slabs.bytes += flw_run_bytes(run);
    list_empty(&heap->slabs, slab);
    domain->slab_count[class_index]++;
    domain->slab_units[class_index] += run->u.run.unit_count;
    domain->captured_bytes += domain->capture != 0 ? flw_run_bytes(run) : 0;
    FLW_ASSERT(domain->current[class_index] == NULL);
    domain->current[class_index] = slab;
    return true;
}

static bool is_empty(const struct flw_span *slab)
{
    return slab->u.slab.free_count == slab->u.slab.slot_count;
}

/* Remove the slots of empty slabs from a list of their class. */
static void filter_list(struct flw_heap *heap, struct flw_batch_list *list)
{
    for (struct flw_batch *batch = list->head, *next; batch != NULL; batch = next) {
        next = batch->next;
        uint32_t kept = 0;
        for (uint32_t i = 0, own; i < batch->count; i += own) {
            if (!is_empty(slab_of(heap, &batch->slots[i], batch->count - i, &own))) {
                memmove(&batch->slots[kept], &batch->slots[i], own * sizeof *batch->slots);
                kept += own;
            }
        }
        batch->count = kept;
        if (kept == 0) {
            drop_batch(heap, list, batch);
        }
    }
}

static void forget_slots(struct flw_heap *heap, struct flw_span *slab)
{
    struct flw_slab_part *part = &slab->u.slab;
    struct flw_domain *maker = heap->domains[part->domain];
    struct flw_slot *slot = flw_span_slot(&heap->map, slab, 0), *end = slot + part->carved_count;
    for (; slot < end; slot++) { /* the words of the others are 0 */
        flw_slot_set_word(slot, 0);
    }
    if (maker->current[part->class_index] == slab) {
        maker->current[part->class_index] = NULL;
    }
    maker->slab_count[part->class_index] -= maker->slab_count[part->class_index] > 0;
    maker->slab_units[part->class_index] -=
        (uint32_t)flw_min(maker->slab_units[part->class_index], part->run->u.run.unit_count);
    unlist_empty(&heap->slabs, slab);
}

/* Find the owners of the empty slabs of a class, if complete memory keeps its owner: lists have
 * their slots, and uncarved slots are the creator's. */
static void note_owners(struct flw_heap *heap, unsigned class_index)
{
    struct flw_span *slab = heap->slabs.empty[class_index];
    for (; slab != NULL; slab = slab->u.slab.empty_next) {
        struct flw_slab_part *part = &slab->u.slab;
        part->owner = part->carved_count < part->slot_count ? part->domain : FLW_UNOWNED;
    }
    for (uint32_t d = 1; d < heap->domain_end; d++) {
        const struct flw_batch *batch = heap->domains[d]->batches[class_index].head;
        for (; batch != NULL; batch = batch->next) {
            for (uint32_t i = 0; i < batch->count; i++) {
                uint32_t *owner = &flw_slot_span(&heap->map, batch->slots[i])->u.slab.owner;
                *owner = *owner == FLW_UNOWNED || *owner == d ? d : heap->multi_stream->index;
            }
        }
    }
}

static uint32_t owner_of(const struct flw_heap *heap, const struct flw_slab_part *part)
{
    return heap->multi_stream != NULL ? part->owner
           : part->point_count == 1   ? part->points[0].domain
                                      : FLW_UNOWNED;
}

/* Memory that waits for several domains needs a fence of each. */
static void want_fences(struct flw_heap *heap, const struct flw_slab_part *part)
{
    for (uint32_t i = 0; i < part->point_count; i++) {
        struct flw_domain *domain = heap->domains[part->points[i].domain];
        if (part->points[i].seq == domain->seq) { /* open */
            domain->unfenced_bytes++;
            flw_domain_set_add(&heap->open_users, domain);
            flw_domain_owe(heap, domain);
        }
    }
}

/* Make the slab's run free memory: of one domain, unowned, or deferred on several. */
static bool release_slab(struct flw_heap *heap, struct flw_span *slab)
{
    struct flw_slab_part *part = &slab->u.slab;
    struct flw_span *run = part->run;
    struct flw_deferred *deferred = NULL;
    uint32_t live = 0;
    for (uint32_t i = 0; i < part->point_count; i++) {
        if (!flw_point_is_complete(heap, &part->points[i])) {
            part->points[live++] = part->points[i];
        }
    }
    part->point_count = (uint16_t)live;
    uint32_t owner = owner_of(heap, part), kept = heap->multi_stream != NULL ? owner : FLW_UNOWNED;
    if (live > 1 || part->points_overflowed || (live == 1 && part->points[0].domain != owner)) {
        deferred = flw_heap_new_deferred(heap);
        if (deferred == NULL) {
            return false;
        }
        want_fences(heap, part);
    }
    forget_slots(heap, slab);
    if (!FLW_MUTANT(PAGE_MAP_NOT_CLEARED)) {
        flw_page_map_clear_slab(&heap->map, slab);
    }
    run->u.run.slab = NULL;
    if (part->capture != 0) {
        heap->domains[part->domain]->captured_bytes -= flw_run_bytes(run);
    }
    heap->slabs.bytes -= flw_run_bytes(run);
    heap->live_run_bytes -= flw_run_bytes(run);
    if (deferred != NULL) {
        run->u.run.state = FLW_RUN_DEFERRED;
        run->u.run.deferred = deferred;
        *deferred = (struct flw_deferred){.run = run,
                                          .bytes = flw_run_bytes(run),
                                          .domain = kept,
                                          .sweep_next = part->points_overflowed,
                                          .point_count = live};
        memcpy(deferred->points, part->points, live * sizeof *part->points);
        flw_heap_hold_deferred(heap, deferred);
    } else {
        uint64_t seq = live == 1 ? part->points[0].seq : heap->domains[owner]->completed;
        flw_heap_put_run_at_point(heap, owner, seq, run);
    }
    flw_page_map_drop_slab(&heap->map, slab);
    return true;
}

static bool release_class(struct flw_heap *heap, unsigned class_index)
{
    bool any = false;
    for (struct flw_span *slab = heap->slabs.empty[class_index], *next; slab != NULL; slab = next) {
        next = slab->u.slab.empty_next;
        any |= release_slab(heap, slab);
    }
    return any;
}

/* Remove the slots of empty slabs from all lists. Cost: the domains with batches, and their lists
 * of the classes with such slabs. */
static void filter_lists(struct flw_heap *heap)
{
    struct flw_domain_set *holders = &heap->slabs.holders;
    for (uint32_t d = 0; (d = flw_domain_set_next(holders, d)) < FLW_DOMAIN_COUNT; d++) {
        struct flw_domain *domain = heap->domains[d];
        bool holds_any = false;
        FLW_EACH_CLASS (c, &domain->with_batches) {
            if (flw_class_set_has(&heap->slabs.with_empty, c)) {
                filter_list(heap, &domain->batches[c]);
            }
            holds_any |= domain->batches[c].head != NULL;
        }
        if (!holds_any) {
            (void)flw_domain_set_remove(holders, domain);
        }
    }
}

bool flw_heap_reclaim_slabs(struct flw_heap *heap)
{
    bool any = false;
    count_batches(heap);
    if (flw_class_set_next(&heap->slabs.with_empty, 0) == FLW_CLASS_COUNT) {
        return false;
    }
    if (heap->multi_stream != NULL) {
        FLW_EACH_CLASS (c, &heap->slabs.with_empty) {
            note_owners(heap, c);
        }
    }
    filter_lists(heap);
    FLW_EACH_CLASS (c, &heap->slabs.with_empty) {
        any |= release_class(heap, c);
    }
    return any;
}

void flw_heap_move_slots(struct flw_heap *heap, struct flw_domain *from, struct flw_domain *to)
{
    for (unsigned c = 0; c < FLW_CLASS_COUNT; c++) {
        struct flw_batch_list *list = &from->batches[c];
        while (list->head != NULL) {
            struct flw_batch *batch = list->head;
            flw_batch_remove(list, batch);
            flw_heap_adopt_batch(heap, to, batch);
        }
    }
}

void flw_heap_put_block(struct flw_heap *heap, struct flw_domain *domain, struct flw_slot *slot)
{
    struct flw_span *span = flw_slot_span(&heap->map, slot);
    flw_slot_set_word(slot, flw_slot_address(slot));
    if (span->kind == FLW_SPAN_RUN) {
        flw_heap_put_run(heap, domain, span);
    } else {
        flw_heap_put_slots(heap, domain, span->u.slab.class_index, &slot, 1);
    }
}

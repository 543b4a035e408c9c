/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the order of accesses: for every range of memory the last write and the reads since, each
 * as (slot, sequence). An access with an order clock that does not include the previous one is a
 * race if one of the two writes. The established order decides, not the order in which the
 * scheduler happened to run the operations. Does not: record owners of memory (report.c has the
 * messages, shadow.c the bytes).
 *
 * INVARIANTS  ranges never overlap; a range has a writer, a reader, or both */
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "simcuda/check.h"
#include "simcuda/host.h"
#include "simcuda/mempool.h"
#include "simcuda/storage.h"

const char flw_check_allocates[] = "pool allocation";
const char flw_check_frees[] = "pool free";

struct access {
    uint64_t sequence; /* 0: none */
    uint64_t stream_id;
    const char *what;
    uint32_t slot;
};

struct stretch {
    struct flw_tree_node node;
    struct access writer;
    struct access reader; /* the first of the readers, stored here: most ranges have one */
    struct access *more;  /* further readers */
    uint32_t more_count, more_capacity;
    uint64_t legal_version; /* region_version for which the whole range may be accessed */
    const struct flw_context *legal_context;
    bool is_legal_to_write;
    struct stretch *next_free;
};

struct flw_checker {
    struct flw_tree stretches;
    struct stretch *free;
};

static struct flw_checker *checker(void)
{
    if (flw_world.checker == NULL) {
        flw_world.checker = flw_host_get(sizeof *flw_world.checker);
    }
    return flw_world.checker;
}

/* NULL: none. */
static struct stretch *stretch_of(struct flw_tree_node *node)
{
    return node != NULL ? FLW_CONTAINER(node, struct stretch, node) : NULL;
}

static struct stretch *add_stretch(uint64_t begin, uint64_t end)
{
    struct flw_checker *c = checker();
    struct stretch *stretch = c->free;
    if (stretch != NULL) {
        c->free = stretch->next_free;
        struct access *more = stretch->more;
        uint32_t capacity = stretch->more_capacity;
        memset(stretch, 0, sizeof *stretch);
        stretch->more = more;
        stretch->more_capacity = capacity;
    } else {
        stretch = flw_host_get(sizeof *stretch);
    }
    stretch->node.begin = begin;
    stretch->node.end = end;
    stretch->legal_version = ~0ull;
    flw_tree_insert(&c->stretches, &stretch->node);
    return stretch;
}

static void drop_stretch(struct stretch *stretch)
{
    struct flw_checker *c = checker();
    flw_tree_remove(&c->stretches, &stretch->node);
    stretch->next_free = c->free;
    c->free = stretch;
}

void flw_check_finish(void)
{
    struct flw_checker *c = flw_world.checker;
    if (c != NULL) {
        while (c->stretches.root != NULL) {
            drop_stretch(stretch_of(c->stretches.root));
        }
        while (c->free != NULL) {
            struct stretch *stretch = c->free;
            c->free = stretch->next_free;
            free(stretch->more);
            free(stretch);
        }
        free(c);
        flw_world.checker = NULL;
    }
    flw_report_finish();
}

static struct stretch *stretch_from(uint64_t address)
{
    return stretch_of(flw_tree_from(&checker()->stretches, address));
}

/* Cut in two at `at`; return the right part. */
static struct stretch *cut(struct stretch *left, uint64_t at)
{
    uint64_t end = left->node.end;
    left->node.end = at;
    struct stretch *right = add_stretch(at, end);
    right->writer = left->writer;
    right->reader = left->reader;
    right->legal_version = left->legal_version;
    right->legal_context = left->legal_context;
    right->is_legal_to_write = left->is_legal_to_write;
    if (left->more_count > 0) {
        if (right->more_capacity < left->more_count) {
            right->more = flw_host_resize(right->more, left->more_count * sizeof *right->more);
            right->more_capacity = left->more_count;
        }
        memcpy(right->more, left->more, left->more_count * sizeof *right->more);
        right->more_count = left->more_count;
    }
    return right;
}

/* ---- permission ---- */

static unsigned needed_access(bool is_write)
{
    return is_write ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ;
}

/* Return the end of the adjacent mappings from `at` in `mapping` that may be accessed, up to
 * `end`. */
static uint64_t mapped_until(const struct flw_device *device, const struct flw_mapping *mapping,
                             uint64_t at, uint64_t end, bool is_write)
{
    unsigned needed = needed_access(is_write);
    while (at < end && mapping->access[device->ordinal] >= needed) {
        const struct flw_tree_node *next = mapping->node.next;
        at = mapping->node.end;
        if (next == NULL || next->begin != at) {
            return at;
        }
        mapping = FLW_CONTAINER(next, const struct flw_mapping, node);
    }
    return at;
}

/* Return the end of the memory from `at` that the context may access; `at` itself: none. */
static uint64_t legal_until(const struct flw_context *context, uint64_t at, uint64_t end,
                            bool is_write, const char **why)
{
    struct flw_region *region = flw_region_find(at);
    *why = "nothing is mapped there";
    if (region == NULL) {
        return !is_write && flw_profile_reads(at) ? (at | (FLW_PAGE - 1)) + 1 : at;
    }
    struct flw_mapping *mapping;
    switch (region->kind) {
    case FLW_REGION_RESERVATION:
        mapping = flw_mapping_find(at);
        if (mapping == NULL) {
            return at;
        }
        *why = "the device has no such access";
        return mapped_until(context->device, mapping, at, flw_min(end, region->node.end), is_write);
    case FLW_REGION_POOLED:
        *why = "the device has no access to the pool";
        if (context->device != region->device &&
            region->pool->access[context->device->ordinal] < needed_access(is_write)) {
            return at;
        }
        return region->node.end; /* the time of a block's allocation is a matter of order:
                                     test_stretch */
    case FLW_REGION_ALLOCATION:
        *why = "the memory belongs to another device, and its context is not an enabled peer";
        if (!flw_context_reaches(context, region->context)) {
            return at;
        }
        *why = "the address is after the end of the allocation";
        return flw_max(at, region->node.begin + region->bytes);
    default:
        return region->node.end;
    }
}

static bool is_legal(struct flw_stream *stream, const char *what, uint64_t sequence,
                     const struct flw_sim_range *range)
{
    uint64_t end = range->address + range->bytes;
    uint64_t at = range->address;
    while (at < end) {
        const char *why;
        uint64_t until = legal_until(stream->context, at, end, range->is_write != 0, &why);
        if (until <= at) {
            char name[160];
            flw_check_describe(at, name, sizeof name);
            flw_check_violation("illegal address: operation %llu of stream %llu (%s) %s %#llx%s of "
                                "its range [%#llx, +%llu), but %s",
                                (unsigned long long)sequence, (unsigned long long)stream->id, what,
                                range->is_write ? "writes" : "reads", (unsigned long long)at, name,
                                (unsigned long long)range->address,
                                (unsigned long long)range->bytes, why);
            return false;
        }
        at = until;
    }
    return true;
}

/* ---- order ---- */

static bool may_overlap(const struct flw_sim_range *range)
{
    return (range->flags & FLW_SIM_RANGE_EARLY) != 0 && !flw_world_is_mild(FLW_SIM_MILD_OVERLAP);
}

static bool comes_before(const struct access *access, const struct flw_order_clock *clock,
                         const struct access *self, bool is_early)
{
    if (is_early && access->slot == self->slot && access->sequence + 1 == self->sequence) {
        return false; /* launched with programmatic serialisation: the two may overlap */
    }
    return flw_clock_get(clock, access->slot) >= access->sequence;
}

static void report_race(const struct stretch *stretch, const struct access *before,
                        const struct access *self, const struct flw_sim_range *range,
                        const char *did)
{
    char name[160];
    uint64_t at = flw_max(stretch->node.begin, range->address);
    uint64_t end = flw_min(stretch->node.end, range->address + range->bytes);
    flw_check_describe(at, name, sizeof name);
    flw_check_violation("race: operation %llu of stream %llu (%s) %s [%#llx, +%llu)%s, which "
                        "operation %llu of stream %llu (%s) %s, and nothing orders the two",
                        (unsigned long long)self->sequence, (unsigned long long)self->stream_id,
                        self->what, range->is_write ? "writes" : "reads", (unsigned long long)at,
                        (unsigned long long)(end - at), name, (unsigned long long)before->sequence,
                        (unsigned long long)before->stream_id, before->what, did);
}

static void test_readers(const struct stretch *stretch, const struct access *self,
                         const struct flw_order_clock *clock, const struct flw_sim_range *range)
{
    bool is_early = may_overlap(range);
    if (stretch->reader.sequence != 0 && !comes_before(&stretch->reader, clock, self, is_early)) {
        report_race(stretch, &stretch->reader, self, range, "reads");
        return;
    }
    for (uint32_t i = 0; i < stretch->more_count; i++) {
        if (!comes_before(&stretch->more[i], clock, self, is_early)) {
            report_race(stretch, &stretch->more[i], self, range, "reads");
            return;
        }
    }
}

static void test_stretch(const struct stretch *stretch, const struct access *self,
                         const struct flw_order_clock *clock, const struct flw_sim_range *range)
{
    bool is_early = may_overlap(range);
    if (stretch->writer.what == flw_check_frees && (range->flags & FLW_RANGE_OWNERSHIP) == 0) {
        flw_check_violation("use after free: operation %llu of stream %llu (%s) touches [%#llx, "
                            "+%llu), which operation %llu of stream %llu freed to its pool",
                            (unsigned long long)self->sequence, (unsigned long long)self->stream_id,
                            self->what, (unsigned long long)range->address,
                            (unsigned long long)range->bytes,
                            (unsigned long long)stretch->writer.sequence,
                            (unsigned long long)stretch->writer.stream_id);
    } else if (stretch->writer.sequence != 0 &&
               !comes_before(&stretch->writer, clock, self, is_early)) {
        report_race(stretch, &stretch->writer, self, range, "writes");
    } else if (range->is_write) {
        test_readers(stretch, self, clock, range);
    }
}

/* Readers ordered before the new one need not be kept: operations after it also follow them. */
static void add_reader(struct stretch *stretch, const struct access *self,
                       const struct flw_order_clock *clock)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < stretch->more_count; i++) {
        if (flw_clock_get(clock, stretch->more[i].slot) < stretch->more[i].sequence) {
            stretch->more[kept++] = stretch->more[i];
        }
    }
    stretch->more_count = kept;
    struct access first = stretch->reader;
    stretch->reader = *self;
    if (first.sequence == 0 || flw_clock_get(clock, first.slot) >= first.sequence) {
        return;
    }
    FLW_HOST_FIT(stretch->more, stretch->more_count, stretch->more_capacity);
    stretch->more[stretch->more_count++] = first;
}

static void set_writer(struct stretch *stretch, const struct access *self)
{
    stretch->writer = *self;
    stretch->reader.sequence = 0;
    stretch->more_count = 0;
}

static bool is_same(const struct access *a, const struct access *b)
{
    return a->sequence == b->sequence && (a->sequence == 0 || a->slot == b->slot);
}

/* A kernel's loads and stores arrive byte by byte: accesses of one operation stay one range. */
static void merge_left(struct stretch *stretch)
{
    struct stretch *left = stretch_of(stretch->node.previous);
    if (left == NULL || left->node.end != stretch->node.begin || left->more_count != 0 ||
        stretch->more_count != 0 || !is_same(&left->writer, &stretch->writer) ||
        !is_same(&left->reader, &stretch->reader)) {
        return;
    }
    if (left->legal_version != stretch->legal_version ||
        left->legal_context != stretch->legal_context) {
        left->legal_version = ~0ull;
    }
    left->is_legal_to_write = left->is_legal_to_write && stretch->is_legal_to_write;
    uint64_t end = stretch->node.end;
    drop_stretch(stretch);
    left->node.end = end;
}

/* Make the range one stretch: the first overlapping one grows. */
static void write_range(const struct access *self, const struct flw_order_clock *clock,
                        const struct flw_sim_range *range, const struct flw_context *context)
{
    uint64_t begin = range->address;
    uint64_t end = begin + range->bytes;
    struct stretch *whole = NULL;
    struct stretch *s = stretch_from(begin);
    if (s != NULL && s->node.begin < begin) {
        s = cut(s, begin);
    }
    while (s != NULL && s->node.begin < end) {
        if (s->node.end > end) {
            cut(s, end);
        }
        test_stretch(s, self, clock, range);
        struct stretch *next = stretch_of(s->node.next);
        if (whole == NULL) {
            whole = s;
        } else {
            drop_stretch(s);
        }
        s = next;
    }
    if (whole == NULL) {
        whole = add_stretch(begin, end);
    }
    whole->node.begin = begin;
    whole->node.end = end;
    set_writer(whole, self);
    whole->legal_version = flw_world.region_version;
    whole->legal_context = context;
    whole->is_legal_to_write = true;
    merge_left(whole);
}

static void read_range(const struct access *self, const struct flw_order_clock *clock,
                       const struct flw_sim_range *range)
{
    uint64_t at = range->address;
    uint64_t end = at + range->bytes;
    struct stretch *s = stretch_from(at);
    while (at < end) {
        if (s == NULL || s->node.begin > at) {
            s = add_stretch(at, s == NULL ? end : flw_min(end, s->node.begin));
        } else {
            if (s->node.begin < at) {
                s = cut(s, at);
            }
            if (s->node.end > end) {
                cut(s, end);
            }
            test_stretch(s, self, clock, range);
        }
        add_reader(s, self, clock);
        at = s->node.end;
        struct stretch *next = stretch_of(s->node.next);
        merge_left(s);
        s = next;
    }
}

static bool is_exact(const struct stretch *stretch, const struct flw_sim_range *range)
{
    return stretch != NULL && stretch->node.begin == range->address &&
           stretch->node.end == range->address + range->bytes;
}

static bool is_known_legal(const struct stretch *stretch, const struct flw_context *context,
                           bool is_write)
{
    return stretch->legal_version == flw_world.region_version &&
           stretch->legal_context == context && (!is_write || stretch->is_legal_to_write);
}

CUresult flw_check_access(struct flw_stream *stream, const char *what, uint64_t sequence,
                          const struct flw_order_clock *clock, const struct flw_sim_range *range)
{
    if (range->bytes == 0) {
        return CUDA_SUCCESS;
    }
    const struct flw_context *context = stream->context;
    struct access self = {
        .sequence = sequence, .stream_id = stream->id, .what = what, .slot = stream->slot};
    bool is_write = range->is_write != 0;
    struct stretch *same = stretch_from(range->address);
    bool exact = is_exact(same, range);
    if (!(exact && is_known_legal(same, context, is_write))) {
        FLW_REFUSE_IF((range->flags & FLW_RANGE_OWNERSHIP) == 0 &&
                          (range->address + range->bytes < range->address ||
                           !is_legal(stream, what, sequence, range)),
                      CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    if (!exact) {
        if (is_write) {
            write_range(&self, clock, range, context);
        } else {
            read_range(&self, clock, range);
        }
        return CUDA_SUCCESS;
    }
    test_stretch(same, &self, clock, range);
    same->is_legal_to_write =
        is_write || (same->is_legal_to_write && is_known_legal(same, context, true));
    same->legal_version = flw_world.region_version;
    same->legal_context = context;
    if (is_write) {
        set_writer(same, &self);
    } else {
        add_reader(same, &self, clock);
    }
    return CUDA_SUCCESS;
}

/* ---- released memory ---- */

void flw_check_forget(uint64_t begin, uint64_t end)
{
    if (!flw_check_is_on()) {
        return;
    }
    for (struct stretch *s = stretch_from(begin); s != NULL && s->node.begin < end;
         s = stretch_from(begin)) {
        if (s->node.begin < begin) {
            s = cut(s, begin);
        }
        if (s->node.end > end) {
            cut(s, end);
        }
        drop_stretch(s);
    }
}

static const struct access *find_unseen(const struct stretch *stretch)
{
    const struct flw_order_clock *host = &flw_world.host_clock;
    if (flw_clock_get(host, stretch->writer.slot) < stretch->writer.sequence) {
        return &stretch->writer;
    }
    if (flw_clock_get(host, stretch->reader.slot) < stretch->reader.sequence) {
        return &stretch->reader;
    }
    for (uint32_t i = 0; i < stretch->more_count; i++) {
        if (flw_clock_get(host, stretch->more[i].slot) < stretch->more[i].sequence) {
            return &stretch->more[i];
        }
    }
    return NULL;
}

static bool touches(const struct flw_work *work, uint64_t begin, uint64_t end)
{
    for (size_t i = 0; i < work->range_count; i++) {
        const struct flw_sim_range *range = &work->ranges[i];
        if (range->address < end && begin < range->address + range->bytes) {
            return true;
        }
    }
    return work->program != NULL && flw_program_touches(work->program, begin, end);
}

/* Report an operation that still waits in a queue and uses the range. */
static bool report_waiting(uint64_t begin, uint64_t end, const char *by)
{
    for (uint32_t i = 0; i < flw_world.active_count; i++) {
        const struct flw_stream *stream = flw_world.active[i];
        for (const struct flw_operation *o = stream->head; o != NULL; o = o->next) {
            if (touches(&o->work, begin, end)) {
                flw_check_violation(
                    "unfinished work: %s of [%#llx, +%llu) while operation %llu of "
                    "stream %llu (%s) that touches it has not run",
                    by, (unsigned long long)begin, (unsigned long long)(end - begin),
                    (unsigned long long)o->sequence, (unsigned long long)stream->id, o->work.name);
                return true;
            }
        }
    }
    return false;
}

void flw_check_takes_away(uint64_t begin, uint64_t end, const char *by)
{
    if (!flw_check_is_on()) {
        return;
    }
    bool is_reported = report_waiting(begin, end, by);
    for (struct stretch *s = stretch_from(begin); s != NULL && s->node.begin < end && !is_reported;
         s = stretch_of(s->node.next)) {
        const struct access *unseen = find_unseen(s);
        if (unseen != NULL) {
            flw_check_violation(
                "unfinished work: %s of [%#llx, +%llu) while the host has not seen "
                "operation %llu of stream %llu (%s) complete, which touches [%#llx, "
                "+%llu)",
                by, (unsigned long long)begin, (unsigned long long)(end - begin),
                (unsigned long long)unseen->sequence, (unsigned long long)unseen->stream_id,
                unseen->what, (unsigned long long)s->node.begin,
                (unsigned long long)(s->node.end - s->node.begin));
            is_reported = true;
        }
    }
    flw_check_forget(begin, end);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: renumbering, and finding an event's pool from the address.
 */
#include "trace/formats/poolids.h"

#include <stdlib.h>

#include "base/compare.h"
#include "trace/formats/pickle.h"

/* ---- renumbering ---- */

struct place {
    struct flw_pickle_pair pair;
    size_t index; /* number of the pair */
};

static int compare_places(const void *a, const void *b)
{
    const struct flw_pickle_pair *x = &((const struct place *)a)->pair;
    const struct flw_pickle_pair *y = &((const struct place *)b)->pair;
    int order = flw_compare_u64(&x->first, &y->first);
    return order != 0 ? order : flw_compare_u64(&x->second, &y->second);
}

/* Mark the number of each pool of a recording as used, or replace each pool by its number. */
static void map_pools(struct flw_history *history, struct flw_trace *trace, uint32_t *numbers,
                      bool marks)
{
    size_t context_end = trace->context_count, block_end = context_end + history->block_count;
    for (size_t i = 0; i < block_end + trace->segment_count; i++) {
        uint32_t *pool = i < context_end ? &trace->contexts[i].pool
                         : i < block_end ? &history->blocks[i - context_end].pool
                                         : &trace->segments[i - block_end].pool;
        if (marks) {
            numbers[*pool] = 1;
        } else {
            *pool = numbers[*pool];
        }
    }
}

static bool number_pools(struct flw_history *history, struct flw_trace *trace,
                         const struct flw_intern *pairs)
{
    uint32_t *numbers = calloc(pairs->count + 1, sizeof(*numbers)), next = 0;
    struct place *places = calloc(pairs->count + 1, sizeof(*places));
    bool has_memory = numbers != NULL && places != NULL;
    if (has_memory) {
        size_t count = 0;
        map_pools(history, trace, numbers, true);
        const struct flw_pickle_pair *list = (const void *)pairs->bytes;
        for (size_t i = 0; i < pairs->count; i++) {
            if (numbers[i + 1] != 0) {
                places[count++] = (struct place){list[i], i};
            }
        }
        qsort(places, count, sizeof(*places), compare_places);
        numbers[0] = 0;
        for (size_t i = 0; i < count; i++) {
            bool is_common = places[i].pair.first == 0 && places[i].pair.second == 0;
            numbers[places[i].index + 1] = is_common ? 0 : ++next;
        }
        map_pools(history, trace, numbers, false);
    }
    free(numbers);
    free(places);
    return has_memory;
}

/* ---- events without a pool ---- */

struct range {
    uint64_t begin, end; /* ordered by flw_compare_u64 of `begin` */
    uint32_t pool;
    bool is_over; /* the allocation was found on the way back */
};

/* Return the last range that begins at or below an address. */
static struct range *find_range(struct range *ranges, size_t count, uint64_t address)
{
    size_t low = flw_count_below(ranges, count, sizeof *ranges, address + 1);
    return low > 0 && address < ranges[low - 1].end ? &ranges[low - 1] : NULL;
}

static void place_events(const struct flw_trace *trace, struct range *ranges, size_t count,
                         uint32_t *pools)
{
    for (size_t i = trace->event_count; i-- > 0;) {
        const struct flw_trace_event *event = &trace->events[i];
        if (event->op > FLW_TRACE_SEGMENT_UNMAP) {
            continue;
        }
        struct range *range = find_range(ranges, count, event->address);
        if (range != NULL && !range->is_over) {
            pools[i] = range->pool;
            range->is_over = event->op == FLW_TRACE_SEGMENT_ALLOC;
        }
    }
}

static bool tell_pools(struct flw_build *build)
{
    const struct flw_trace *trace = build->trace;
    struct range *ranges = calloc(trace->segment_count + 1, sizeof(*ranges));
    uint32_t *pools = calloc(trace->event_count + 1, sizeof(*pools));
    bool has_memory = ranges != NULL && pools != NULL;
    size_t count = 0;
    for (size_t i = 0; has_memory && i < trace->segment_count; i++) {
        const struct flw_trace_segment *segment = &trace->segments[i];
        if (segment->pool != 0) {
            ranges[count++] = (struct range){
                segment->address, segment->address + segment->size_bytes, segment->pool, false};
        }
    }
    if (count != 0) {
        qsort(ranges, count, sizeof(*ranges), flw_compare_u64);
        place_events(trace, ranges, count, pools);
    }
    for (size_t i = 0; has_memory && count != 0 && i < trace->event_count; i++) {
        has_memory = flw_build_add_context(
            build, &(struct flw_trace_context){.record = i, .pool = pools[i]});
    }
    free(ranges);
    free(pools);
    return has_memory;
}

bool flw_poolids_renumber(struct flw_history *history, struct flw_build *build,
                          const struct flw_intern *pairs, bool events_say)
{
    return number_pools(history, build->trace, pairs) && (events_say || tell_pools(build));
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the operations of the run index on the fast path of runs. See run_index.h. */
#ifndef FLW_HEAP_STATE_RUN_INDEX_INL_H
#define FLW_HEAP_STATE_RUN_INDEX_INL_H

#include "heap/state/run_index.h"

/* Return the bin of a run: the unit count if below 16, else the exponent of the count and the four
 * bits after the highest one. */
static inline unsigned flw_run_bin(uint32_t unit_count)
{
    unsigned shift = flw_log2_floor(unit_count | FLW_INDEX_SECOND) - 4;
    return (shift << 4) + (unit_count >> shift);
}

static inline void flw_run_bin_link(struct flw_run_index *index, struct flw_span *run, unsigned bin)
{
    struct flw_span *head = index->bins[bin];
    run->u.run.bin = (uint16_t)bin;
    run->u.run.index_prev = NULL;
    run->u.run.index_next = head;
    index->bins[bin] = run;
    if (head != NULL) {
        head->u.run.index_prev = run;
    } else {
        index->first_bits |= 1ull << (bin / 64);
        index->second_bits[bin / 64] |= 1ull << (bin % 64);
    }
}

static inline void flw_run_bin_unlink(struct flw_run_index *index, const struct flw_span *run)
{
    unsigned bin = run->u.run.bin;
    struct flw_span *next = run->u.run.index_next, *prev = run->u.run.index_prev;
    if (next != NULL) {
        next->u.run.index_prev = prev;
    }
    if (prev != NULL) {
        prev->u.run.index_next = next;
        return;
    }
    index->bins[bin] = next;
    if (next == NULL) {
        index->second_bits[bin / 64] &= ~(1ull << (bin % 64));
        if (index->second_bits[bin / 64] == 0) {
            index->first_bits &= ~(1ull << (bin / 64));
        }
    }
}

/* True if that bin or a later one has a run. */
static inline bool flw_run_index_reaches(const struct flw_run_index *index, unsigned bin)
{
    if (index->first_bits == 0) {
        return false;
    }
    unsigned word = flw_log2_floor(index->first_bits);
    return word * 64 + flw_log2_floor(index->second_bits[word]) >= bin;
}

/* As flw_run_index_find_any. */
static inline struct flw_span *flw_run_index_fit(const struct flw_run_index *index,
                                                 uint32_t unit_count)
{
    unsigned bin = flw_run_bin(unit_count);
    uint64_t second = index->second_bits[bin / 64] & (~0ull << (bin % 64));
    if (FLW_LIKELY(second != 0)) {
        struct flw_span *head = index->bins[bin / 64 * 64 + flw_lowest_bit(second)];
        uint32_t found = head->u.run.unit_count;
        if (found == unit_count || (found > unit_count && head->u.run.index_next == NULL)) {
            return head;
        }
    }
    return flw_run_index_find_any(index, unit_count);
}

static inline void flw_run_index_remove(struct flw_run_index *index, const struct flw_span *run)
{
    const struct flw_run_part *part = &run->u.run;
    flw_run_bin_unlink(index, run);
    *(part->age_prev != NULL ? &part->age_prev->u.run.age_next : &index->oldest) = part->age_next;
    *(part->age_next != NULL ? &part->age_next->u.run.age_prev : &index->newest) = part->age_prev;
    index->unit_count_total -= part->unit_count;
    index->run_count--;
}

/* Move the oldest run to another index, with sequence number `seq`, which must not be below the
 * newest there. As remove and insert, in a third of the instructions. */
static inline void flw_run_index_pass_oldest(struct flw_run_index *from, struct flw_run_index *to,
                                             uint64_t seq)
{
    struct flw_span *run = from->oldest, *newest = to->newest;
    struct flw_run_part *part = &run->u.run;
    flw_run_bin_unlink(from, run);
    from->oldest = part->age_next;
    *(part->age_next != NULL ? &part->age_next->u.run.age_prev : &from->newest) = NULL;
    from->unit_count_total -= part->unit_count;
    from->run_count--;
    part->seq = seq;
    flw_run_bin_link(to, run, part->bin);
    part->age_prev = newest;
    part->age_next = NULL;
    *(newest != NULL ? &newest->u.run.age_next : &to->oldest) = run;
    to->newest = run;
    to->unit_count_total += part->unit_count;
    to->run_count++;
}

/* Shrink a run in place: it keeps the age. */
static inline void flw_run_index_resize(struct flw_run_index *index, struct flw_span *run,
                                        uint32_t begin_unit, uint32_t unit_count)
{
    struct flw_run_part *part = &run->u.run;
    unsigned bin = flw_run_bin(unit_count);
    index->unit_count_total += (uint64_t)unit_count - part->unit_count;
    part->begin_unit = begin_unit;
    part->unit_count = unit_count;
    if (part->bin != bin) {
        flw_run_bin_unlink(index, run);
        flw_run_bin_link(index, run, bin);
    }
}

#endif

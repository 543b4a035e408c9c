/* SPDX-License-Identifier: Apache-2.0 */
#include "heap/run_index.h"

#include "base/check.h"

struct place {
    unsigned first, second;
};

static struct place place_of(uint32_t unit_count)
{
    if (unit_count < FLW_INDEX_SECOND) {
        return (struct place){0, unit_count};
    }
    unsigned log2 = flw_log2_floor(unit_count);
    return (struct place){log2 - 3, (unit_count >> (log2 - 4)) & (FLW_INDEX_SECOND - 1)};
}

static void bin_link(struct flw_run_index *index, struct flw_span *run)
{
    struct flw_run_part *part = &run->u.run;
    struct place at = place_of(part->unit_count);
    struct flw_span **bin = &index->bins[at.first][at.second];
    part->index_prev = NULL;
    part->index_next = *bin;
    if (*bin != NULL) {
        (*bin)->u.run.index_prev = run;
    }
    *bin = run;
    index->first_bits |= 1u << at.first;
    index->second_bits[at.first] |= (uint16_t)(1u << at.second);
    index->unit_count_total += part->unit_count;
}

static void bin_unlink(struct flw_run_index *index, struct flw_span *run)
{
    struct flw_run_part *part = &run->u.run;
    struct place at = place_of(part->unit_count);
    struct flw_span **bin = &index->bins[at.first][at.second];
    *(part->index_prev != NULL ? &part->index_prev->u.run.index_next : bin) = part->index_next;
    if (part->index_next != NULL) {
        part->index_next->u.run.index_prev = part->index_prev;
    }
    if (*bin == NULL) {
        index->second_bits[at.first] &= (uint16_t) ~(1u << at.second);
        if (index->second_bits[at.first] == 0) {
            index->first_bits &= ~(1u << at.first);
        }
    }
    index->unit_count_total -= part->unit_count;
}

void flw_run_index_insert(struct flw_run_index *index, struct flw_span *run)
{
    struct flw_run_part *part = &run->u.run;
    struct flw_span *older = index->newest;
    bin_link(index, run);
    /* Nearly always the newest: only memory that comes back with an old stamp walks. */
    while (older != NULL && older->u.run.ticket > part->ticket) {
        older = older->u.run.age_prev;
    }
    part->age_prev = older;
    part->age_next = older != NULL ? older->u.run.age_next : index->oldest;
    *(older != NULL ? &older->u.run.age_next : &index->oldest) = run;
    *(part->age_next != NULL ? &part->age_next->u.run.age_prev : &index->newest) = run;
    index->run_count++;
}

void flw_run_index_remove(struct flw_run_index *index, struct flw_span *run)
{
    struct flw_run_part *part = &run->u.run;
    bin_unlink(index, run);
    *(part->age_prev != NULL ? &part->age_prev->u.run.age_next : &index->oldest) = part->age_next;
    *(part->age_next != NULL ? &part->age_next->u.run.age_prev : &index->newest) = part->age_prev;
    index->run_count--;
}

void flw_run_index_resize(struct flw_run_index *index, struct flw_span *run, uint32_t begin_unit,
                          uint32_t unit_count)
{
    bin_unlink(index, run);
    run->u.run.begin_unit = begin_unit;
    run->u.run.unit_count = unit_count;
    bin_link(index, run);
}

static struct flw_span *best_of_bin(struct flw_span *run, uint32_t unit_count, uint32_t align_units,
                                    uint64_t base_unit)
{
    struct flw_span *best = NULL;
    for (unsigned i = 0; run != NULL && i < FLW_BIN_SCAN; i++, run = run->u.run.index_next) {
        uint64_t need = unit_count + (uint64_t)flw_run_align_gap(run, align_units, base_unit);
        if (run->u.run.unit_count >= need &&
            (best == NULL || run->u.run.unit_count < best->u.run.unit_count)) {
            best = run;
            if (run->u.run.unit_count == unit_count) {
                break;
            }
        }
    }
    return best;
}

struct flw_span *flw_run_index_find(const struct flw_run_index *index, uint32_t unit_count,
                                    uint32_t align_units, uint64_t base_unit)
{
    struct place at = place_of(unit_count);
    uint32_t second = (uint32_t)index->second_bits[at.first] & (~0u << at.second);
    uint32_t first = index->first_bits & (at.first + 1 < 32 ? ~0u << (at.first + 1) : 0);
    for (unsigned level = at.first;;) {
        while (second != 0) {
            struct flw_span *bin = index->bins[level][flw_lowest_bit(second)];
            struct flw_span *run = best_of_bin(bin, unit_count, align_units, base_unit);
            if (run != NULL) {
                return run;
            }
            second &= second - 1;
        }
        if (first == 0) {
            return NULL;
        }
        level = flw_lowest_bit(first);
        first &= first - 1;
        second = index->second_bits[level];
    }
}

uint32_t flw_run_index_largest(const struct flw_run_index *index)
{
    uint32_t largest = 0;
    if (index->first_bits != 0) {
        unsigned first = flw_log2_floor(index->first_bits);
        unsigned second = flw_log2_floor(index->second_bits[first]);
        for (const struct flw_span *run = index->bins[first][second]; run != NULL;
             run = run->u.run.index_next) {
            largest = run->u.run.unit_count > largest ? run->u.run.unit_count : largest;
        }
    }
    return largest;
}

bool flw_run_index_is_valid(const struct flw_run_index *index)
{
    uint64_t units = 0, runs = 0, aged = 0, ticket = 0;
    for (unsigned i = 0; i < FLW_INDEX_FIRST; i++) {
        if (((index->first_bits >> i) & 1) != (index->second_bits[i] != 0)) {
            return false;
        }
        for (unsigned j = 0; j < FLW_INDEX_SECOND; j++) {
            const struct flw_span *run = index->bins[i][j];
            if (((index->second_bits[i] >> j) & 1u) != (run != NULL)) {
                return false;
            }
            for (; run != NULL; run = run->u.run.index_next, runs++) {
                struct place at = place_of(run->u.run.unit_count);
                units += run->u.run.unit_count;
                if (at.first != i || at.second != j) {
                    return false;
                }
            }
        }
    }
    for (const struct flw_span *run = index->oldest; run != NULL; run = run->u.run.age_next) {
        if (run->u.run.ticket < ticket) {
            return false;
        }
        ticket = run->u.run.ticket;
        aged++;
    }
    return units == index->unit_count_total && runs == index->run_count && aged == runs;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "heap/state/run_index_inl.h"

void flw_run_index_insert(struct flw_run_index *index, struct flw_span *run)
{
    struct flw_run_part *part = &run->u.run;
    struct flw_span *older = index->newest;
    flw_run_bin_link(index, run, flw_run_bin(part->unit_count));
    index->unit_count_total += part->unit_count;
    /* Usually the newest: only memory freed with an old number walks. */
    while (older != NULL && older->u.run.seq > part->seq) {
        older = older->u.run.age_prev;
    }
    part->age_prev = older;
    part->age_next = older != NULL ? older->u.run.age_next : index->oldest;
    *(older != NULL ? &older->u.run.age_next : &index->oldest) = run;
    *(part->age_next != NULL ? &part->age_next->u.run.age_prev : &index->newest) = run;
    index->run_count++;
}

static FLW_INLINE struct flw_span *best_of_bin(struct flw_span *run, uint32_t unit_count,
                                               uint32_t align_units, uint64_t base_unit)
{
    struct flw_span *best = NULL;
    uint32_t least = UINT32_MAX;
    for (unsigned i = 0; run != NULL && i < FLW_BIN_SCAN; i++, run = run->u.run.index_next) {
        uint64_t need = unit_count;
        if (align_units > 1) {
            need += flw_run_align_gap(run, align_units, base_unit);
        }
        if (run->u.run.unit_count >= need && run->u.run.unit_count < least) {
            best = run;
            least = run->u.run.unit_count;
            if (least == unit_count) {
                break;
            }
        }
    }
    return best;
}

static FLW_INLINE struct flw_span *find(const struct flw_run_index *index, uint32_t unit_count,
                                        uint32_t align_units, uint64_t base_unit)
{
    unsigned bin = flw_run_bin(unit_count), word = bin / 64;
    uint64_t second = index->second_bits[word] & (~0ull << (bin % 64));
    uint64_t first = index->first_bits & (~1ull << word);
    for (;;) {
        while (second != 0) {
            struct flw_span *head = index->bins[word * 64 + flw_lowest_bit(second)];
            struct flw_span *run = best_of_bin(head, unit_count, align_units, base_unit);
            if (run != NULL) {
                return run;
            }
            second &= second - 1;
        }
        if (first == 0) {
            return NULL;
        }
        word = flw_lowest_bit(first);
        first &= first - 1;
        second = index->second_bits[word];
    }
}

struct flw_span *flw_run_index_find(const struct flw_run_index *index, uint32_t unit_count,
                                    uint32_t align_units, uint64_t base_unit)
{
    return find(index, unit_count, align_units, base_unit);
}

struct flw_span *flw_run_index_find_any(const struct flw_run_index *index, uint32_t unit_count)
{
    return find(index, unit_count, 1, 0);
}

uint32_t flw_run_index_largest(const struct flw_run_index *index)
{
    uint32_t largest = 0;
    if (index->first_bits != 0) {
        unsigned word = flw_log2_floor(index->first_bits);
        unsigned bit = flw_log2_floor(index->second_bits[word]);
        for (const struct flw_span *run = index->bins[word * 64 + bit]; run != NULL;
             run = run->u.run.index_next) {
            largest = run->u.run.unit_count > largest ? run->u.run.unit_count : largest;
        }
    }
    return largest;
}

bool flw_run_index_is_valid(const struct flw_run_index *index)
{
    uint64_t units = 0, runs = 0, aged = 0, seq = 0;
    for (unsigned word = 0; word < 64; word++) {
        bool is_used = word < FLW_INDEX_WORDS && index->second_bits[word] != 0;
        if (((index->first_bits >> word) & 1) != is_used) {
            return false;
        }
    }
    for (unsigned bin = 0; bin < FLW_INDEX_BINS; bin++) {
        const struct flw_span *run = index->bins[bin];
        if (((index->second_bits[bin / 64] >> (bin % 64)) & 1) != (run != NULL)) {
            return false;
        }
        for (; run != NULL; run = run->u.run.index_next, runs++) {
            units += run->u.run.unit_count;
            if (flw_run_bin(run->u.run.unit_count) != bin) {
                return false;
            }
        }
    }
    for (const struct flw_span *run = index->oldest; run != NULL; run = run->u.run.age_next) {
        if (run->u.run.seq < seq) {
            return false;
        }
        seq = run->u.run.seq;
        aged++;
    }
    return units == index->unit_count_total && runs == index->run_count && aged == runs;
}

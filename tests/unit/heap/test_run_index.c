/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the proof that the index of free runs finds the same as a plain list by the same rules,
 * and keeps its own invariants, over random programs. */
#include "support/test.h"

#include <stdbool.h>
#include <string.h>

#include "heap/state/run_index_inl.h"

#define RUNS 400

struct bed {
    struct flw_run_index index;
    struct flw_span spans[RUNS];
    bool is_in[RUNS];
    uint64_t seed, next_seq;
};

static struct bed bed;

static unsigned first_of(uint32_t units)
{
    return units < FLW_INDEX_SECOND ? 0 : flw_log2_floor(units) - 3;
}

/* The bin's number, all bins in one row: a greater one holds greater counts only. */
static unsigned bin_of(uint32_t units)
{
    unsigned second = units < FLW_INDEX_SECOND
                          ? units
                          : (units >> (flw_log2_floor(units) - 4)) & (FLW_INDEX_SECOND - 1);
    return first_of(units) * FLW_INDEX_SECOND + second;
}

static uint64_t room(const struct flw_span *run, uint32_t align, uint64_t base)
{
    uint64_t gap = flw_run_align_gap(run, align, base);
    return run->u.run.unit_count > gap ? run->u.run.unit_count - gap : 0;
}

/* Checks one answer of find against the whole list. */
static void check_find(uint32_t units, uint32_t align, uint64_t base)
{
    const struct flw_span *found = flw_run_index_find(&bed.index, units, align, base);
    unsigned crowd[FLW_INDEX_FIRST * FLW_INDEX_SECOND] = {0};
    const struct flw_span *best = NULL;
    for (unsigned i = 0; i < RUNS; i++) {
        if (bed.is_in[i]) {
            const struct flw_span *run = &bed.spans[i];
            crowd[bin_of(run->u.run.unit_count)]++;
            if (room(run, align, base) >= units &&
                (best == NULL || run->u.run.unit_count < best->u.run.unit_count)) {
                best = run;
            }
        }
    }
    if (found == NULL) {
        /* Only a bin too crowded to be scanned whole may hide a run that fits. */
        bool is_hidden = best != NULL && crowd[bin_of(best->u.run.unit_count)] > FLW_BIN_SCAN;
        assert_true(best == NULL || is_hidden);
        return;
    }
    assert_true(bed.is_in[found - bed.spans]);
    assert_true(room(found, align, base) >= units);
    unsigned own = bin_of(best->u.run.unit_count);
    if (crowd[own] <= FLW_BIN_SCAN) { /* scanned whole: the best fit of all */
        assert_int_equal(found->u.run.unit_count, best->u.run.unit_count);
    }
}

static void check_all(void)
{
    uint64_t units = 0, runs = 0;
    uint32_t largest = 0;
    for (unsigned i = 0; i < RUNS; i++) {
        if (bed.is_in[i]) {
            units += bed.spans[i].u.run.unit_count;
            runs++;
            largest = (uint32_t)flw_max(largest, bed.spans[i].u.run.unit_count);
        }
    }
    assert_true(flw_run_index_is_valid(&bed.index));
    assert_true(bed.index.unit_count_total == units && bed.index.run_count == runs);
    assert_int_equal(flw_run_index_largest(&bed.index), largest);
    /* Every run is met once by age, oldest sequence number first. */
    uint64_t met = 0, seq = 0;
    for (const struct flw_span *run = bed.index.oldest; run != NULL; run = run->u.run.age_next) {
        assert_true(bed.is_in[run - bed.spans] && run->u.run.seq >= seq);
        seq = run->u.run.seq;
        met++;
    }
    assert_true(met == runs);
}

/* Small, near powers of two, and anywhere; `crowd` makes many of one size. */
static uint32_t random_units(bool is_crowded)
{
    uint64_t r = flw_test_random(&bed.seed);
    if (is_crowded) {
        return 64 + (uint32_t)(r % 4);
    }
    switch (r % 4) {
    case 0:
        return 1 + (uint32_t)((r >> 8) % 40);
    case 1:
        return (1u << (4 + (r >> 8) % 20)) + (uint32_t)((r >> 40) % 3) - 1;
    case 2:
        return 1 + (uint32_t)((r >> 8) % (1u << ((r >> 40) % 31)));
    default:
        return 1 + (uint32_t)((r >> 8) % 5000);
    }
}

static void insert(unsigned i, bool is_crowded)
{
    uint64_t r = flw_test_random(&bed.seed);
    struct flw_run_part *part = &bed.spans[i].u.run;
    bed.next_seq += r % 3 == 0;
    part->unit_count = random_units(is_crowded);
    part->begin_unit = (uint32_t)((r >> 8) % (1u << 20));
    part->seq = (r >> 40) % 8 == 0 ? bed.next_seq / 2 : bed.next_seq; /* some are inserted late */
    flw_run_index_insert(&bed.index, &bed.spans[i]);
    bed.is_in[i] = true;
}

static void resize(unsigned i)
{
    struct flw_run_part *part = &bed.spans[i].u.run;
    struct flw_span *before = part->age_prev, *after = part->age_next;
    if (part->unit_count > 1) {
        uint32_t taken = 1 + (uint32_t)(flw_test_random(&bed.seed) % (part->unit_count - 1));
        flw_run_index_resize(&bed.index, &bed.spans[i], part->begin_unit + taken,
                             part->unit_count - taken);
        assert_true(part->age_prev == before && part->age_next == after); /* keeps the age */
    }
}

static void run_program(unsigned steps, bool is_crowded)
{
    memset(&bed.index, 0, sizeof bed.index);
    memset(bed.is_in, 0, sizeof bed.is_in);
    for (unsigned step = 0; step < steps; step++) {
        uint64_t r = flw_test_random(&bed.seed);
        unsigned i = (unsigned)((r >> 8) % RUNS);
        if (!bed.is_in[i]) {
            insert(i, is_crowded);
        } else if (r % 3 == 0) {
            resize(i);
        } else {
            flw_run_index_remove(&bed.index, &bed.spans[i]);
            bed.is_in[i] = false;
        }
        check_find(random_units(is_crowded), 1u << (r >> 50) % 8, (r >> 20) % 1024);
        if (step % 16 == 0) {
            check_all();
        }
    }
}

TEST(random_programs_agree_with_a_list)
{
    run_program(20000, false);
}

TEST(a_crowded_bin_never_yields_a_run_that_does_not_fit)
{
    run_program(10000, true);
}

TEST(a_damaged_index_is_not_valid)
{
    memset(&bed.index, 0, sizeof bed.index);
    bed.spans[0].u.run = (struct flw_run_part){.unit_count = 20};
    flw_run_index_insert(&bed.index, &bed.spans[0]);
    assert_true(flw_run_index_is_valid(&bed.index));
    bed.spans[0].u.run.unit_count = 40; /* in the wrong bin now */
    assert_false(flw_run_index_is_valid(&bed.index));
    bed.spans[0].u.run.unit_count = 20;
    bed.index.first_bits |= 1u << 9;
    assert_false(flw_run_index_is_valid(&bed.index));
}

int main(void)
{
    bed.seed = flw_test_seed("unit.run_index");
    return _cmocka_run_group_tests("tests", flw_tests()->rows, flw_tests()->count, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/leased.h"

#include <stdlib.h>
#include <string.h>

#define NOTES 256

struct flw_record {
    struct {
        char name[40];
        size_t bytes;
        unsigned char *held;
    } notes[NOTES];
    size_t count;
};

/* ---- regions */

static fallow_region find(const struct flw_leased *run, const char *name)
{
    fallow_region region = {0};
    size_t index = fallow_layout_find(run->layout, name);
    if (fallow_layout_region(run->layout, index, &region, NULL) != FALLOW_OK) {
        fprintf(stderr, "no region '%s'\n", name);
        exit(1);
    }
    return region;
}

size_t flw_leased_bytes(const struct flw_leased *run, const char *name)
{
    return find(run, name).size_bytes;
}

void *flw_leased_region(const struct flw_leased *run, const char *name)
{
    void *address = fallow_lease_region(run->lease, name);
    FLW_EXPECT(run->bed, address != NULL, "no region '%s'", name);
    return address;
}

void *flw_leased_claim(const struct flw_leased *run, const char *name)
{
    void *address = flw_leased_region(run, name);
    size_t bytes = flw_leased_bytes(run, name);
    if (run->fill >= 0) {
        flw_bed_dirty(run->bed, address, bytes, (unsigned char)run->fill);
    } else if (run->fill == FLW_LEASED_AS_LEFT) {
        flw_bed_forget(run->bed, address, bytes);
    }
    return address;
}

const void *flw_leased_note(const struct flw_leased *run, const char *name, const void *from,
                            size_t bytes)
{
    struct flw_record *record = run->record;
    if (record->count == NOTES) {
        fprintf(stderr, "more than %d notes\n", NOTES);
        exit(1);
    }
    size_t i = record->count++;
    snprintf(record->notes[i].name, sizeof record->notes[i].name, "%s", name);
    record->notes[i].bytes = bytes;
    record->notes[i].held = flw_bed_memory(run->bed, bytes);
    flw_bed_read(run->bed, record->notes[i].held, from, bytes);
    return record->notes[i].held;
}

const void *flw_leased_note_all(const struct flw_leased *run, const char *name)
{
    return flw_leased_note(run, name, flw_leased_region(run, name), flw_leased_bytes(run, name));
}

/* ---- the proof */

static void compare(struct flw_bed *bed, const struct flw_record *first,
                    const struct flw_record *now, const char *what)
{
    FLW_EXPECT(bed, first->count == now->count && first->count > 0, "%zu notes over %s, first %zu",
               now->count, what, first->count);
    for (size_t i = 0; i < first->count && i < now->count; i++) {
        size_t at = 0, bytes = first->notes[i].bytes;
        FLW_EXPECT(bed, bytes == now->notes[i].bytes, "'%s' has %zu bytes over %s, first %zu",
                   first->notes[i].name, now->notes[i].bytes, what, bytes);
        while (at < bytes && at < now->notes[i].bytes &&
               first->notes[i].held[at] == now->notes[i].held[at]) {
            at++;
        }
        FLW_EXPECT(bed, at == bytes, "'%s' differs over %s from byte %zu on", first->notes[i].name,
                   what, at);
    }
}

/* Check the contents of new persistent regions; after a use, only those of constants. */
static void expect_first_values(const struct flw_leased *run, bool is_used)
{
    for (size_t i = 0; i < fallow_layout_region_count(run->layout); i++) {
        fallow_region region = {0};
        FLW_EXPECT_OK(run->bed, fallow_layout_region(run->layout, i, &region, NULL));
        if ((region.flags & FALLOW_REGION_PERSISTENT) == 0 || region.init == FALLOW_INIT_DIRTY ||
            (is_used && region.init != FALLOW_INIT_ONCE)) {
            continue;
        }
        unsigned char *held = flw_bed_memory(run->bed, region.size_bytes);
        size_t each = region.element_bytes;
        flw_bed_read(run->bed, held, fallow_lease_region_at(run->lease, i), region.size_bytes);
        for (size_t k = 0; k < region.size_bytes / each; k++) {
            int64_t want = region.init_value;
            want += region.init == FALLOW_INIT_ONCE ? (int64_t)k * region.init_step : 0;
            FLW_EXPECT(run->bed, memcmp(held + k * each, &want, each) == 0,
                       "'%s' element %zu does not hold its first value", region.name, k);
        }
    }
}

enum {
    UNUSED = 1, /* persistent regions are looked at before */
    LAST = 2    /* constants after */
};

static void run_in_lease(struct flw_bed *bed, fallow_arena *arena,
                         const struct flw_leased_step *step, int fill, struct flw_record *record,
                         int looks)
{
    fallow_layout *layout = NULL;
    fallow_lease *lease = NULL;
    FLW_EXPECT_OK(bed, step->make(step->model, &step->sizes, &layout));
    FLW_EXPECT_OK(bed, fallow_lease_begin(arena, layout, flw_bed_stream(bed), &lease));
    struct flw_leased run = {.bed = bed,
                             .layout = layout,
                             .lease = lease,
                             .inputs = step->inputs,
                             .fill = fill,
                             .record = record};
    if (looks & UNUSED) {
        expect_first_values(&run, false);
    }
    step->run(&run);
    if (looks & LAST) {
        expect_first_values(&run, true);
    }
    FLW_EXPECT_OK(bed, fallow_lease_end(lease, flw_bed_stream(bed)));
    FLW_EXPECT(bed, flw_bed_violations(bed) == 0, "violations with fill %d", fill);
    fallow_layout_destroy(layout);
}

void flw_leased_prove(struct flw_bed *bed, const struct flw_leased_step *step,
                      const struct flw_leased_step *larger, const struct flw_leased_step *smaller,
                      const struct flw_leased_step *after)
{
    const struct {
        const char *what;
        const struct flw_leased_step *before;
        int fill;
    } runs[] = {{"zeros", NULL, 0},
                {"0xff", NULL, 0xff},
                {"0x7f", NULL, 0x7f},
                {"what a larger step left", larger, FLW_LEASED_AS_LEFT},
                {"what a smaller step left", smaller, FLW_LEASED_AS_LEFT}};
    struct flw_record *first = flw_bed_memory(bed, sizeof *first),
                      *now = flw_bed_memory(bed, sizeof *now);
    fallow_arena_config config;
    fallow_arena *arena = NULL;
    fallow_arena_config_init(&config);
    FLW_EXPECT_OK(bed, fallow_arena_create(flw_bed_pool(bed), &config, &arena));
    run_in_lease(bed, arena, step, 0, first, UNUSED);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        if (runs[i].before != NULL) {
            run_in_lease(bed, arena, runs[i].before, 0x7f, now, 0);
            now->count = 0;
        }
        run_in_lease(bed, arena, step, runs[i].fill, now, LAST);
        compare(bed, first, now, runs[i].what);
        now->count = 0;
    }
    if (after != NULL) {
        run_in_lease(bed, arena, after, FLW_LEASED_KEPT, now, LAST);
        now->count = 0;
    }
    fallow_arena_destroy(arena);
}

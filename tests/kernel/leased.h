/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a step in a lease of a ready layout: the regions claimed one by one as their lifetime
 * begins, the results recorded, and the proof that the arena's previous contents have no effect.
 * Independent of a path or a module. */
#ifndef FLW_TESTS_KERNEL_LEASED_H
#define FLW_TESTS_KERNEL_LEASED_H

#include "fallow/layouts.h"
#include "kernel/bed.h"

struct flw_record; /* the results of a run */

/* One run of a step. */
struct flw_leased {
    struct flw_bed *bed;
    const fallow_layout *layout;
    const fallow_lease *lease;
    void *inputs;
    int fill; /* fill claimed regions with a byte, or one of FLW_LEASED_ */
    struct flw_record *record;
};

enum {
    FLW_LEASED_AS_LEFT = -1, /* a claimed region keeps the bytes, marked as unwritten for the
                                 checker */
    FLW_LEASED_KEPT = -2     /* is not touched at all: the contents of persistent regions count */
};

/* A path with a step's sizes. `run` gives the path's work to the bed's stream. */
struct flw_leased_step {
    fallow_layout_function make;
    const fallow_model *model;
    fallow_step sizes;
    void *inputs;
    void (*run)(struct flw_leased *run);
};

/* Return the address of a region and the bytes. */
void *flw_leased_region(const struct flw_leased *run, const char *name);
size_t flw_leased_bytes(const struct flw_leased *run, const char *name);
/* The same at the beginning of the region's lifetime, before the first writer: it is dirty
 * afterwards. */
void *flw_leased_claim(const struct flw_leased *run, const char *name);
/* Read `bytes` and record them under a name; for a region, all the bytes. The result lives as long
 * as the run. */
const void *flw_leased_note(const struct flw_leased *run, const char *name, const void *from,
                            size_t bytes);
const void *flw_leased_note_all(const struct flw_leased *run, const char *name);

/* Take one lease after the other on one arena: `step` over claimed memory of zeros, 0xff, 0x7f,
 * and the contents after `larger` and after `smaller`. All recorded results are the same each
 * time; persistent regions hold their first values before the first lease, constants to the end;
 * no violations. `after`, if not NULL, then runs on the same arena with all contents. */
void flw_leased_prove(struct flw_bed *bed, const struct flw_leased_step *step,
                      const struct flw_leased_step *larger, const struct flw_leased_step *smaller,
                      const struct flw_leased_step *after);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: helpers of the ready layouts: a step with defaults filled in, and regions added one by one.
 * Does not: describe a path.
 */
#ifndef FLW_ARENA_READY_H
#define FLW_ARENA_READY_H

#include <stdbool.h>

#include "fallow/layouts.h"

#define FLW_READY_REGIONS 32

/* A layout under construction. Products of sizes are checked for 64-bit overflow; after the first overflow or failed
 * flw_ready_require, `status` is INVALID_ARGUMENT. */
struct flw_ready {
    const fallow_model *model;
    fallow_step step; /* defaults filled in */
    fallow_status status;
    uint64_t heads, kv_heads, experts; /* of this rank */
    size_t count;
    fallow_region regions[FLW_READY_REGIONS];
    fallow_region nowhere; /* returned for refused and empty regions; never read */
};

/* Create the layout that `fill` describes, with this name. */
fallow_status flw_ready_make(const char *name, const fallow_model *model, const fallow_step *step,
                             fallow_layout **out_layout, void (*fill)(struct flw_ready *ready));

/* Define fallow_layout_<name>, which creates a layout named `text`. The block after the macro is the body of `fill`.
 * */
#define FLW_READY_LAYOUT(name, text)                                                       \
    static void fill_##name(struct flw_ready *ready);                                      \
    fallow_status fallow_layout_##name(const fallow_model *model, const fallow_step *step, \
                                       fallow_layout **out_layout)                         \
    {                                                                                      \
        return flw_ready_make(text, model, step, out_layout, fill_##name);                 \
    }                                                                                      \
    static void fill_##name(struct flw_ready *ready)

void flw_ready_require(struct flw_ready *ready, bool is_so);

/* Add a region of rows and columns of elements, alive in the given phases. The name must live as long as `ready`. */
fallow_region *flw_ready_add(struct flw_ready *ready, const char *name, uint64_t rows,
                             uint64_t columns, uint32_t element_bytes, fallow_init_class init,
                             uint32_t first_phase, uint32_t last_phase);
/* Add a persistent region: element i holds value + i * step at first. */
void flw_ready_keep(struct flw_ready *ready, const char *name, uint64_t rows, uint64_t columns,
                    uint32_t element_bytes, fallow_init_class init, int64_t value, int64_t step);

static inline uint64_t flw_ready_divide_up(uint64_t a, uint64_t b)
{
    return b == 0 ? 0 : a / b + (a % b != 0);
}

static inline uint64_t flw_ready_round_up(uint64_t a, uint64_t b)
{
    return flw_ready_divide_up(a, b) * b;
}

#endif

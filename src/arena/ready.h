/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what the ready layouts share: a step with its defaults, and regions added one by one.
 * Does not: know a path.
 */
#ifndef FLW_ARENA_READY_H
#define FLW_ARENA_READY_H

#include <stdbool.h>

#include "fallow/layouts.h"

#define FLW_READY_REGIONS 32

/* A layout in the making. Sizes are 64-bit products that are checked: the first that does not fit, or that is
 * refused, makes the end INVALID_ARGUMENT. */
struct flw_ready {
    const fallow_model *model;
    fallow_step step; /* defaults filled in */
    fallow_status status;
    uint64_t heads, kv_heads, experts; /* of this rank */
    size_t count;
    fallow_region regions[FLW_READY_REGIONS];
    fallow_region nowhere; /* what a refused region is written to; never read */
};

/* Make the layout that `fill` describes and give it the name. */
fallow_status flw_ready_make(const char *name, const fallow_model *model, const fallow_step *step,
                             fallow_layout **out_layout, void (*fill)(struct flw_ready *ready));

/* Defines fallow_layout_<name>, a layout called `text`; what follows is the body of its `fill`. */
#define FLW_READY_LAYOUT(name, text)                                                       \
    static void fill_##name(struct flw_ready *ready);                                      \
    fallow_status fallow_layout_##name(const fallow_model *model, const fallow_step *step, \
                                       fallow_layout **out_layout)                         \
    {                                                                                      \
        return flw_ready_make(text, model, step, out_layout, fill_##name);                 \
    }                                                                                      \
    static void fill_##name(struct flw_ready *ready)

void flw_ready_require(struct flw_ready *ready, bool is_so);

/* Rows and columns of elements; alive from first to last. The name must live as long as `ready`. */
fallow_region *flw_ready_add(struct flw_ready *ready, const char *name, uint64_t rows,
                             uint64_t columns, uint32_t element_bytes, fallow_init_class init,
                             uint32_t first_phase, uint32_t last_phase);
/* Keeps contents: first element `value`, each next one `step` more. */
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

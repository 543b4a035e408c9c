/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: order clocks: for each stream's slot, the last operation known to precede.
 * Independent of the reason for the order. */
#include <stdlib.h>
#include <string.h>

#include "simcuda/host.h"
#include "simcuda/order.h"

static void widen(struct flw_order_clock *clock, uint32_t count)
{
    if (count > clock->count) {
        clock->at = flw_host_resize(clock->at, count * sizeof *clock->at);
        memset(clock->at + clock->count, 0, (count - clock->count) * sizeof *clock->at);
        clock->count = count;
    }
}

void flw_clock_join(struct flw_order_clock *clock, const struct flw_order_clock *other)
{
    widen(clock, other->count);
    for (uint32_t i = 0; i < other->count; i++) {
        if (clock->at[i] < other->at[i]) {
            clock->at[i] = other->at[i];
        }
    }
}

void flw_clock_raise(struct flw_order_clock *clock, uint32_t slot, uint64_t sequence)
{
    widen(clock, slot + 1);
    if (clock->at[slot] < sequence) {
        clock->at[slot] = sequence;
    }
}

void flw_clock_copy(struct flw_order_clock *clock, const struct flw_order_clock *other)
{
    widen(clock, other->count);
    if (other->count > 0) {
        memcpy(clock->at, other->at, other->count * sizeof *clock->at);
    }
    for (uint32_t i = other->count; i < clock->count; i++) {
        clock->at[i] = 0;
    }
}

void flw_clock_finish(struct flw_order_clock *clock)
{
    free(clock->at);
    *clock = (struct flw_order_clock){0};
}

void flw_clock_host_saw(const struct flw_order_clock *clock)
{
    for (uint32_t i = 0; i < clock->count; i++) {
        if (clock->at[i] > flw_clock_get(&flw_world.host_clock, i)) {
            flw_clock_join(&flw_world.host_clock, clock);
            flw_world.host_version++;
            return;
        }
    }
}

void flw_clock_host_saw_position(const struct flw_position *position)
{
    if (position->sequence > flw_clock_get(&flw_world.host_clock, position->slot)) {
        flw_clock_raise(&flw_world.host_clock, position->slot, position->sequence);
        flw_world.host_version++;
    }
}

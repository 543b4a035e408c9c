/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: detection of the counter, and calibration. */
#include "record/tsc.h"

#if defined(__x86_64__)
#include <cpuid.h>

#define LEAF_FEATURES  0x80000001u
#define HAS_RDTSCP     (1u << 27)
#define LEAF_POWER     0x80000007u
#define IS_INVARIANT   (1u << 8)
#define CALIBRATE_BEST 5

bool flw_tsc_is_usable(void)
{
    unsigned a, b, c, features = 0, power = 0;
    return __get_cpuid(LEAF_FEATURES, &a, &b, &c, &features) && (features & HAS_RDTSCP) != 0 &&
           __get_cpuid(LEAF_POWER, &a, &b, &c, &power) && (power & IS_INVARIANT) != 0;
}
#else
#define CALIBRATE_BEST 1

bool flw_tsc_is_usable(void)
{
    return false;
}
#endif

/* Take the attempt with the closest readings of the counter: the thread was not
 * interrupted there. */
struct flw_tsc_pair flw_tsc_pair_now(bool uses_tsc)
{
    struct flw_tsc_pair best = {0, 0};
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < CALIBRATE_BEST && uses_tsc; i++) {
        uint64_t before = flw_tsc_read(true, true);
        uint64_t ns = flw_clock_fine_ns();
        uint64_t after = flw_tsc_read(true, true);
        if (after - before < least) {
            least = after - before;
            best = (struct flw_tsc_pair){before + least / 2, ns};
        }
    }
    if (!uses_tsc) {
        best.ns = flw_clock_fine_ns();
        best.ticks = best.ns;
    }
    return best;
}

struct flw_tsc_line flw_tsc_line_through(const struct flw_tsc_pair *from,
                                         const struct flw_tsc_pair *to)
{
    struct flw_tsc_line line = {.from = *from};
    if (to->ticks > from->ticks && to->ns > from->ns) {
        flw_u128 span_ns = (flw_u128)(to->ns - from->ns) << FLW_TSC_SCALE_LOG2;
        flw_u128 scale = span_ns / (to->ticks - from->ticks);
        line.scale = scale > UINT64_MAX ? UINT64_MAX : (uint64_t)scale;
    }
    return line;
}

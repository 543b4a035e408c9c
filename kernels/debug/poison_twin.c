/* SPDX-License-Identifier: Apache-2.0
 *
 * The definition of poison: every byte is the pattern.
 */
#include "common/twin.h"

void flw_twin_poison(struct flw_twin *twin, const struct flw_poison_args *args)
{
    unsigned char pattern[4096];
    memset(pattern, (int)(args->pattern & 0xffu), sizeof pattern);
    for (int64_t at = 0; at < args->bytes; at += (int64_t)sizeof pattern) {
        int64_t left = args->bytes - at;
        flw_store(twin, "memory", args->memory, at, pattern,
                  left < (int64_t)sizeof pattern ? (size_t)left : sizeof pattern);
    }
}

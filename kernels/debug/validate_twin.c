/* SPDX-License-Identifier: Apache-2.0
 *
 * The definition of validate: elements of only the pattern and NaNs, or guard elements that differ
 * from the pattern. */
#include "debug/report.h"

static void look(const struct flw_validate_args *args, uint64_t element, int64_t offset,
                 struct flw_finding *poison, struct flw_finding *nan, struct flw_finding *damage)
{
    if (args->is_guard) {
        if (element != args->pattern) {
            flw_finding_add(damage, offset);
        }
        return;
    }
    if (element == args->pattern) {
        flw_finding_add(poison, offset);
    }
    if ((element & args->nan_mask) > args->nan_above) {
        flw_finding_add(nan, offset);
    }
}

void flw_twin_validate(struct flw_twin *twin, const struct flw_validate_args *args)
{
    struct flw_finding poison = {0}, nan = {0}, damage = {0};
    int64_t each = args->element_bytes;
    int64_t valid = args->valid_rows == NULL
                        ? args->rows
                        : flw_load_i32(twin, "valid_rows", args->valid_rows, 0);
    for (int64_t row = 0; row < args->rows && row < valid; row++) {
        for (int64_t i = 0; i < args->width; i++) {
            uint64_t element = 0;
            int64_t offset = (row * args->stride + i) * each;
            flw_load(twin, "data", args->data, offset, &element, (size_t)each); /* little endian */
            look(args, element, offset, &poison, &nan, &damage);
        }
    }
    flw_report(twin, &args->report->poison_count, &poison);
    flw_report(twin, &args->report->nan_count, &nan);
    flw_report(twin, &args->report->damage_count, &damage);
}

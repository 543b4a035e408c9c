/* SPDX-License-Identifier: Apache-2.0
 *
 * The definition of padded_copy: the first n rows are copied, the others hold a value.
 */
#include "common/twin.h"

void flw_twin_padded_copy(struct flw_twin *twin, const struct flw_padded_copy_args *args)
{
    fallow_dtype dtype = args->is_i64 ? FALLOW_I64 : FALLOW_I32;
    int64_t src_stride = args->is_flat ? args->width : args->src_stride;
    int64_t dst_stride = args->is_flat ? args->width : args->dst_stride;
    int64_t valid = args->valid_count == NULL
                        ? args->src_rows
                        : flw_load_i32(twin, "valid_count", args->valid_count, 0);
    valid = valid < 0 ? 0 : valid > args->src_rows ? args->src_rows : valid;
    for (int64_t row = 0; row < args->rows; row++) {
        for (int64_t i = 0; i < args->width; i++) {
            int64_t value = args->value;
            if (row < valid) {
                value = flw_load_int(twin, "src", args->src, row * src_stride + i, dtype);
            }
            flw_store_int(twin, "dst", args->dst, row * dst_stride + i, dtype, value);
        }
    }
}

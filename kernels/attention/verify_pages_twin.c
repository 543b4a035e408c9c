/* SPDX-License-Identifier: Apache-2.0
 *
 * The definition of verify_pages: row r D + i has the slots after request r's length: first those
 * that mask row r D + i selects, then the others, each in order. */
#include "common/table_twin.h"

/* Load the D slots of row r of the batch; fill for slots beyond the table. */
static void load_slots(struct flw_twin *twin, const struct flw_verify_pages_args *args, int64_t r,
                       int32_t *slots, int32_t *bits)
{
    fallow_dtype lengths_dtype = args->lengths_is_i64 ? FALLOW_I64 : FALLOW_I32;
    fallow_dtype requests_dtype = args->requests_is_i64 ? FALLOW_I64 : FALLOW_I32;
    int64_t length =
        flw_bound_length(flw_load_int(twin, "lengths", args->lengths, r, lengths_dtype),
                         flw_load_scalar(twin, "delta", args->delta, 0), args->stride, bits);
    int64_t found = flw_bound_length(args->draft_tokens, 0, args->stride - length, bits);
    int64_t request = flw_load_int(twin, "requests", args->requests, r, requests_dtype);
    for (int32_t j = 0; j < args->draft_tokens; j++) {
        slots[j] = args->fill;
    }
    if (request < 0 || request >= args->request_rows) {
        *bits |= FALLOW_FLAG_INDEX;
    } else if (found > 0) {
        flw_load(twin, "req_to_token", args->req_to_token, (request * args->stride + length) * 4,
                 slots, (size_t)found * 4);
    }
}

/* Store slots with a true mask, then the others; return the number of true ones. */
static int32_t partition(const unsigned char *mask, const int32_t *slots, int32_t count,
                         int32_t *columns)
{
    int32_t used = 0, length = 0;
    for (int32_t j = 0; j < count; j++) {
        if (mask[j] != 0) {
            columns[used++] = slots[j];
        }
    }
    length = used;
    for (int32_t j = 0; j < count; j++) {
        if (mask[j] == 0) {
            columns[used++] = slots[j];
        }
    }
    return length;
}

void flw_twin_verify_pages(struct flw_twin *twin, const struct flw_verify_pages_args *args)
{
    unsigned char mask[FLW_VERIFY_PAGES_MOST];
    int32_t slots[FLW_VERIFY_PAGES_MOST], columns[FLW_VERIFY_PAGES_MOST], bits = 0;
    struct flw_table_sum sum;
    size_t width = (size_t)args->draft_tokens;
    int64_t valid = flw_load_scalar(twin, "valid_count", args->valid_count, args->batch);
    flw_table_sum_begin(twin, &args->out, &sum);
    for (int64_t m = 0; m < (int64_t)args->batch * args->draft_tokens; m++) {
        int64_t r = m / args->draft_tokens;
        int32_t length = args->pad_len;
        if (r < valid) {
            /* NOLINTNEXTLINE(clang-analyzer-core*): D of 0 was refused */
            if (m % args->draft_tokens == 0) {
                load_slots(twin, args, r, slots, &bits);
            }
            flw_load(twin, "mask", args->mask, m * args->draft_tokens, mask, width);
            length = partition(mask, slots, args->draft_tokens, columns);
        } else {
            for (int32_t j = 0; j < args->draft_tokens; j++) {
                columns[j] = args->fill;
            }
        }
        flw_table_sum_add(twin, &args->out, &sum, length);
        flw_store(twin, "page_table", args->page_table, m * args->ld * 4, columns, width * 4);
    }
    flw_table_sum_end(twin, &args->out, &sum);
    flw_raise_flags(twin, args->out.flags, bits);
}

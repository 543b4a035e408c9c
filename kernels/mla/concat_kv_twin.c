/* SPDX-License-Identifier: Apache-2.0
 *
 * The definition of concat_kv: k[t, h] = kv[t, h] up to nope, then rope[t]; v[t, h] = kv[t, h] from nope
 * on, then 0.
 */
#include "common/twin.h"

#define WIDEST_BYTES (FLW_CONCAT_WIDEST * 4)

void flw_twin_concat_kv(struct flw_twin *twin, const struct flw_concat_kv_args *args)
{
    size_t unit = (size_t)args->unit_bytes;
    size_t nope_bytes = (size_t)args->nope_units * unit,
           rope_bytes = (size_t)args->rope_units * unit;
    size_t value_bytes = (size_t)args->value_units * unit, v_bytes = (size_t)args->v_units * unit;
    unsigned char rope[WIDEST_BYTES], part[WIDEST_BYTES];
    int32_t count = flw_load_scalar(twin, "token_count", args->token_count, args->tokens);
    count = count < args->tokens ? count : args->tokens;
    for (int64_t t = 0; t < count; t++) {
        flw_load(twin, "k_rope", args->k_rope, t * args->rope_token, rope, rope_bytes);
        for (int64_t h = 0; h < args->heads; h++) {
            int64_t kv_at = t * args->kv_token + h * args->kv_head;
            int64_t k_at = t * args->k_token + h * args->k_head;
            flw_load(twin, "kv", args->kv, kv_at, part, nope_bytes);
            flw_store(twin, "k", args->k, k_at, part, nope_bytes);
            flw_store(twin, "k", args->k, k_at + (int64_t)nope_bytes, rope, rope_bytes);
            if (args->v != NULL) {
                memset(part, 0, v_bytes);
                flw_load(twin, "kv", args->kv, kv_at + (int64_t)nope_bytes, part, value_bytes);
                flw_store(twin, "v", args->v, t * args->v_token + h * args->v_head, part, v_bytes);
            }
        }
    }
}

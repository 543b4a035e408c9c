/* SPDX-License-Identifier: Apache-2.0
 *
 * The definition of local_attention: each request is cut where the keys enter a new chunk, and
 * each piece becomes a request with the pages of its own chunk. */
#include "common/twin.h"

/* Data of a request. */
struct request {
    int64_t q, s;
    int64_t q_first; /* queries in the chunk of the first query */
    int64_t rows;    /* chunks with queries, one if there are none */
    int64_t last;    /* keys of the last chunk */
};

/* The rows written so far. */
struct written {
    int64_t rows,
        queries; /* virtual requests, including dropped ones; queries of those within capacity */
    int32_t bits;
};

static int64_t at_most(int64_t value, int64_t most)
{
    return value < most ? value : most;
}

static struct request load_request(struct flw_twin *twin,
                                   const struct flw_local_attention_args *args, int64_t i,
                                   int32_t *bits)
{
    int64_t begin = flw_load_i32(twin, "cu_seqlens_q", args->cu_seqlens_q, i);
    int64_t q = flw_load_i32(twin, "cu_seqlens_q", args->cu_seqlens_q, i + 1) - begin;
    int64_t s = flw_load_i32(twin, "lengths", args->lengths, i), chunk = args->chunk;
    *bits |= q < 0 || s < 0 ? FALLOW_FLAG_NEGATIVE : 0;
    q = q < 0 ? 0 : q;
    if (s <= 0) {
        return (struct request){.rows = 1};
    }
    *bits |= q > s ? FALLOW_FLAG_CLAMPED : 0;
    *bits |= (s - 1) / args->page_size >= args->table_columns ? FALLOW_FLAG_INDEX : 0;
    struct request request = {.q = at_most(q, s), .s = s, .last = (s - 1) % chunk + 1};
    request.q_first = at_most(chunk - (s - request.q) % chunk, request.q);
    request.rows = 1 + (request.q - request.q_first + chunk - 1) / chunk;
    return request;
}

/* Store the pages of virtual request `row`, chunk j of request i; zeros for a request without
 * keys. */
static void store_table(struct flw_twin *twin, const struct flw_local_attention_args *args,
                        int64_t row, int64_t i, const struct request *request, int64_t j)
{
    int64_t first_key = request->s - request->last - (request->rows - 1 - j) * args->chunk;
    int64_t columns = args->columns, first_page = first_key / args->page_size;
    for (int64_t c = 0; c < columns; c++) {
        int32_t page = 0;
        if (request->s > 0) {
            int64_t inside = at_most(first_page + c, args->table_columns - 1);
            page = flw_load_i32(twin, "block_table", args->block_table,
                                i * args->table_stride + inside);
        }
        flw_store_i32(twin, "local_table", args->local_table, row * columns + c, page);
    }
}

static void store_request(struct flw_twin *twin, const struct flw_local_attention_args *args,
                          int64_t i, struct written *written)
{
    struct request request = load_request(twin, args, i, &written->bits);
    int64_t queries = written->queries;
    for (int64_t j = 0; j < request.rows && written->rows + j < args->capacity; j++) {
        int64_t row = written->rows + j;
        bool is_last = j == request.rows - 1;
        written->queries = queries + at_most(request.q_first + j * args->chunk, request.q);
        flw_store_i32(twin, "cu_q_local", args->cu_q_local, row + 1,
                      flw_saturate_i32(written->queries, &written->bits));
        flw_store_i32(twin, "seqused_k", args->seqused_k, row,
                      (int32_t)(is_last ? request.last : args->chunk));
        store_table(twin, args, row, i, &request, j);
    }
    written->rows += request.rows;
}

void flw_twin_local_attention(struct flw_twin *twin, const struct flw_local_attention_args *args)
{
    const struct request none = {.rows = 1};
    struct written written = {.rows = 0};
    int64_t valid = flw_clamp(flw_load_scalar(twin, "valid_count", args->valid_count, args->batch),
                              0, args->batch);
    flw_store_i32(twin, "cu_q_local", args->cu_q_local, 0, 0);
    for (int64_t i = 0; i < valid; i++) {
        store_request(twin, args, i, &written);
    }
    for (int64_t row = written.rows; row < args->capacity; row++) {
        flw_store_i32(twin, "cu_q_local", args->cu_q_local, row + 1,
                      flw_saturate_i32(written.queries, &written.bits));
        flw_store_i32(twin, "seqused_k", args->seqused_k, row, 0);
        store_table(twin, args, row, 0, &none, 0);
    }
    if (args->virtual_count != NULL) {
        flw_store_i32(twin, "virtual_count", args->virtual_count, 0,
                      (int32_t)at_most(written.rows, args->capacity));
    }
    written.bits |= written.rows > args->capacity ? FALLOW_FLAG_DROPPED : 0;
    flw_raise_flags(twin, args->flags, written.bits);
}

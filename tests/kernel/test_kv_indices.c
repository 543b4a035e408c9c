/* SPDX-License-Identifier: Apache-2.0 */
#include "fallow/attention.h"
#include "kernel/call.h"

#define REQUESTS 4

FLW_MODULE(kv_indices, fallow_attention_kv_indices, fallow_kv_indices, FLW_IN(cu_seqlens),
           FLW_IN_MAYBE(lengths), FLW_IN_MAYBE(starts), FLW_IN_MAYBE(valid_count), FLW_IN(requests),
           FLW_IN(req_to_token), FLW_OUT(kv_indices), FLW_OUT_MAYBE(flags),
           FLW_COUNT(batch, 0, 65536), FLW_COUNT(capacity, 0, INT32_MAX),
           FLW_COUNT(stride, 1, INT32_MAX), FLW_COUNT(request_rows, 1, INT32_MAX),
           FLW_DTYPE(requests_dtype, FLW_INTEGERS))

struct fixture {
    struct flw_call call;
    fallow_kv_indices_params params;
    int32_t *cu, *lengths, *starts; /* [batch + 1], [batch], [batch] */
    int64_t *requests;              /* [batch] */
    int32_t *slots;                 /* [request_rows, stride] */
    int32_t valid;
    bool has_lengths, has_starts;
    int32_t *indices; /* expected, as many as the call writes */
    int32_t flags;    /* expected */
};

/* An independent oracle: everything is fill, then each token is put where it belongs. */
static void expect(struct fixture *fixture)
{
    const fallow_kv_indices_params *params = &fixture->params;
    int32_t n = fixture->valid < 0               ? 0
                : fixture->valid < params->batch ? fixture->valid
                                                 : params->batch;
    int64_t extent = fixture->cu[n] < params->capacity ? fixture->cu[n] : params->capacity;
    fixture->flags = fixture->cu[n] > params->capacity ? FALLOW_FLAG_CLAMPED : 0;
    fixture->call.limit[0] = (size_t)extent * 4;
    fixture->indices = flw_bed_memory(fixture->call.bed, (size_t)extent * 4);
    for (int64_t i = 0; i < extent; i++) {
        fixture->indices[i] = params->fill;
    }
    for (int32_t b = 0; b < n; b++) {
        int64_t width = fixture->cu[b + 1] - fixture->cu[b], request = fixture->requests[b];
        int64_t wanted = fixture->has_lengths ? fixture->lengths[b] : width;
        int64_t start = fixture->has_starts ? fixture->starts[b] : 0;
        fixture->flags |= wanted < 0 ? FALLOW_FLAG_NEGATIVE : 0;
        fixture->flags |= wanted > width ? FALLOW_FLAG_CLAMPED : 0;
        if (wanted <= 0 || width == 0) {
            continue;
        }
        fixture->flags |= start < 0 ? FALLOW_FLAG_NEGATIVE : 0;
        fixture->flags |= start > params->stride ? FALLOW_FLAG_CLAMPED : 0;
        start = start < 0 ? 0 : start > params->stride ? params->stride : start;
        bool is_known = request >= 0 && request < params->request_rows;
        fixture->flags |= is_known ? 0 : FALLOW_FLAG_INDEX;
        for (int64_t t = 0; t < wanted && t < width; t++) {
            if (start + t >= params->stride) {
                fixture->flags |= FALLOW_FLAG_CLAMPED;
            } else if (is_known && fixture->cu[b] + t < extent) {
                fixture->indices[fixture->cu[b] + t] =
                    fixture->slots[request * params->stride + start + t];
            }
        }
    }
    fixture->call.want_flags = fixture->flags;
}

/* Random rows: lengths and starts that fit, the sums rounded up to `round_to`. */
static struct fixture *make(struct flw_bed *bed, int32_t batch, int32_t longest, int32_t round_to)
{
    struct fixture *fixture = flw_bed_memory(bed, sizeof *fixture);
    struct flw_call *call = &fixture->call;
    fallow_kv_indices_params *params = &fixture->params;
    size_t rows = (size_t)batch;
    flw_call_init(bed, call, kv_indices(), params);
    params->batch = batch;
    params->fill = -1;
    params->request_rows = REQUESTS;
    params->stride = longest + 50;
    params->requests_dtype = FALLOW_I64;
    fixture->valid = batch;
    fixture->has_starts = fixture->has_lengths = true;
    fixture->cu = flw_call_input(call, "cu_seqlens", rows + 1, 4);
    fixture->lengths = flw_call_draw(call, "lengths", rows, longest + 1);
    fixture->starts = flw_call_input(call, "starts", rows, 4);
    fixture->requests =
        flw_call_draw_typed(call, "requests", rows, &params->requests_dtype, REQUESTS);
    fixture->slots =
        flw_call_draw(call, "req_to_token", (size_t)(REQUESTS * params->stride), INT32_MAX);
    flw_call_bind(call, "valid_count", &fixture->valid, 1, 4);
    for (size_t b = 0; b < rows; b++) {
        int32_t length = flw_bed_random_below(bed, 3) == 0 ? 0 : fixture->lengths[b];
        fixture->lengths[b] = length;
        fixture->starts[b] = (int32_t)flw_bed_random_below(bed, params->stride - length + 1);
        fixture->cu[b + 1] = fixture->cu[b] + (length + round_to - 1) / round_to * round_to;
    }
    params->capacity = fixture->cu[batch] + 40;
    return fixture;
}

/* Prove a case; the flags are these. */
static void check(struct flw_bed *bed, struct fixture *fixture, int32_t flags)
{
    expect(fixture);
    flw_call_prove(&fixture->call);
    flw_call_expect(&fixture->call, "kv_indices", fixture->indices);
    FLW_EXPECT(bed, fixture->flags == flags, "the oracle has flags 0x%x, not 0x%x",
               (unsigned)fixture->flags, (unsigned)flags);
}

FLW_TEST(indices_are_exact_for_every_batch)
{
    static const int32_t batches[] = {0, 1, 2, 7, 8, 64, 256, 512};
    for (int k = 0; k < 64; k++) {
        struct fixture *fixture = make(bed, batches[k / 8], 70, 1);
        fixture->has_lengths = (k & 1) != 0;
        fixture->has_starts = (k & 2) != 0;
        fixture->params.requests_dtype = (k & 4) != 0 ? FALLOW_I32 : FALLOW_I64;
        if (!fixture->has_lengths) {
            flw_call_omit(&fixture->call, "lengths");
        }
        if (!fixture->has_starts) {
            flw_call_omit(&fixture->call, "starts");
        }
        check(bed, fixture, 0);
    }
}

FLW_TEST(a_chunk_of_131072_tokens_is_exact)
{
    static const int32_t batches[] = {1, 3, 65536};
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        check(bed, make(bed, batches[i], 2 * 131072 / batches[i], 1), 0);
    }
}

/* Chunk after chunk of 40 tokens; the chunks together have every token of a prefix once. */
FLW_TEST(chunks_of_a_prefix_follow_each_other)
{
    static const int32_t prefixes[] = {100, 0, 41};
    struct fixture *fixture = make(bed, 3, 100, 1);
    fixture->params.capacity = 3 * 40;
    for (int c = 0; c < 3; c++) {
        for (int b = 0; b < 3; b++) {
            int32_t left = prefixes[b] - c * 40;
            fixture->starts[b] = c * 40;
            fixture->lengths[b] = left < 0 ? 0 : left < 40 ? left : 40;
            fixture->cu[b + 1] = fixture->cu[b] + fixture->lengths[b];
        }
        check(bed, fixture, 0);
        for (int b = 0; b < 3; b++) {
            const int32_t *row = fixture->slots + fixture->requests[b] * fixture->params.stride;
            FLW_EXPECT(bed,
                       memcmp((int32_t *)fixture->call.out[0] + fixture->cu[b], row + c * 40,
                              (size_t)fixture->lengths[b] * 4) == 0,
                       "chunk %d of row %d", c, b);
        }
    }
}

FLW_TEST(room_that_rows_leave_is_filled)
{
    for (int32_t valid = -1; valid <= 9; valid++) {
        struct fixture *fixture = make(bed, 8, 300, 128);
        fixture->valid = valid;
        check(bed, fixture, 0);
    }
}

FLW_TEST(rows_of_length_zero_have_nothing_looked_up)
{
    struct fixture *fixture = make(bed, 6, 20, 1);
    for (int b = 0; b < 6; b++) {
        if (b % 2 == 0) {
            fixture->lengths[b] = 0;
            fixture->starts[b] = -100;
            fixture->requests[b] = 1 << 20;
        }
        fixture->cu[b + 1] = fixture->cu[b] + fixture->lengths[b];
    }
    check(bed, fixture, 0);
    memset(fixture->cu, 0, 7 * 4);
    memset(fixture->lengths, 0, 6 * 4);
    check(bed, fixture, 0);
}

FLW_TEST(indices_past_the_extent_keep_their_values)
{
    struct fixture *fixture = make(bed, 5, 30, 1);
    fixture->valid = 3;
    expect(fixture);
    flw_call_run(&fixture->call);
    const int32_t *out = fixture->call.out[0];
    for (int64_t i = 0; i < fixture->params.capacity; i++) {
        bool is_written = (size_t)i * 4 < fixture->call.limit[0];
        FLW_EXPECT(bed, out[i] == (is_written ? fixture->indices[i] : 0x5a5a5a5a), "index %lld",
                   (long long)i);
    }
}

FLW_TEST(values_out_of_bounds_are_flagged_and_defined)
{
    static const struct {
        int32_t length, start;
        int64_t request, capacity;
        int32_t flags;
    } cases[] = {{10, 60, 2, 44, 0}, /* stride 70: the last slot is the last one */
                 {-3, 60, 2, 44, FALLOW_FLAG_NEGATIVE},
                 {11, 60, 2, 44, FALLOW_FLAG_CLAMPED},
                 {10, 61, 2, 44, FALLOW_FLAG_CLAMPED},
                 {10, INT32_MAX, 2, 44, FALLOW_FLAG_CLAMPED},
                 {10, INT32_MIN, 2, 44, FALLOW_FLAG_NEGATIVE},
                 {10, 0, 4, 44, FALLOW_FLAG_INDEX},
                 {10, 0, INT64_MIN, 44, FALLOW_FLAG_INDEX},
                 {10, 0, 0, 33, FALLOW_FLAG_CLAMPED},
                 {10, 0, 0, 0, FALLOW_FLAG_CLAMPED}};
    struct fixture *fixture = make(bed, 4, 20, 1);
    for (int b = 0; b < 4; b++) {
        fixture->lengths[b] = 10;
        fixture->starts[b] = 60 * (b % 2);
        fixture->requests[b] = b;
        fixture->cu[b + 1] = fixture->cu[b] + 10;
    }
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        fixture->lengths[1] = cases[c].length;
        fixture->starts[1] = cases[c].start;
        fixture->requests[2] = cases[c].request;
        fixture->params.capacity = cases[c].capacity;
        check(bed, fixture, cases[c].flags);
    }
}

/* If sums do not ascend, the indices are undefined, and writes stay within the extent. */
FLW_TEST(sums_that_do_not_ascend_stay_within_the_extent)
{
    for (int round = 0; round < 50; round++) {
        struct fixture *fixture = make(bed, 12, 20, 1);
        for (int b = 0; b <= 12; b++) {
            fixture->cu[b] = (int32_t)flw_bed_random(bed);
        }
        (void)flw_call_need(&fixture->call);
        flw_call_give(&fixture->call);
        size_t bytes = (size_t)fixture->params.capacity * 4;
        flw_call_launch(&fixture->call, (void *[]){flw_bed_buffer(bed, "kv_indices", bytes)});
        flw_bed_read(bed, fixture->cu, fixture->params.cu_seqlens, 4); /* waits */
        FLW_EXPECT(bed, flw_bed_violations(bed) == 0, "round %d", round);
    }
}

FLW_TEST(a_graph_takes_rows_and_lengths_from_the_device)
{
    struct fixture *fixture = make(bed, 64, 60, 1);
    fixture->params.capacity = (int64_t)64 * 60;
    flw_call_capture(&fixture->call);
    for (fixture->valid = 64; fixture->valid >= 0; fixture->valid -= 16) {
        for (int b = 0; b < 64; b++) {
            bool is_valid = b < fixture->valid;
            fixture->lengths[b] = (int32_t)flw_bed_random_below(bed, 61);
            fixture->starts[b] = (int32_t)flw_bed_random_below(bed, 50);
            fixture->requests[b] = is_valid ? flw_bed_random_below(bed, REQUESTS) : -9;
            fixture->cu[b + 1] = fixture->cu[b] + (is_valid ? fixture->lengths[b] : 0);
        }
        expect(fixture);
        flw_call_replay(&fixture->call);
        flw_call_expect(&fixture->call, "kv_indices", fixture->indices);
    }
}

FLW_TEST(mistakes_are_refused_by_name)
{
    struct fixture *fixture = make(bed, 4, 30, 1);
    fixture->params.capacity = 64;
    FLW_CALL_REFUSE(&fixture->call, "flags=@kv_indices+252: kv_indices and flags overlap");
    fixture->params.stride = 16;
    fixture->params.requests_dtype = FALLOW_I32;
    fallow_workspace_need need = flw_call_need(&fixture->call);
    FLW_EXPECT(bed, need.launch_count == 1 && need.write_bytes == 64 * 4, "write_bytes");
    FLW_EXPECT(bed, need.read_bytes == 64 * 4 + 5 * 4 + 4 * 12, "read_bytes");
}

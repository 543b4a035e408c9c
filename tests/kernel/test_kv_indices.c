/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "fallow/attention.h"
#include "kernel/bed.h"

#define FILL -1

/* Inputs of a call on the host, and the expected outputs. */
struct fixture {
    fallow_kv_indices_params params;
    int32_t *cu, *lengths, *starts; /* [batch + 1], [batch], [batch] */
    int64_t *requests;              /* [batch] */
    int32_t *slots;                 /* [request_rows, stride] */
    int32_t valid;
    bool has_lengths, has_starts;
    int32_t *indices; /* expected, [capacity] */
    int64_t extent;   /* number of declared indices */
    int32_t flags;
};

/* An independent oracle: everything is fill, then each token is put where it belongs. */
static void expect(struct fixture *fixture)
{
    const fallow_kv_indices_params *params = &fixture->params;
    int32_t n = fixture->valid < 0               ? 0
                : fixture->valid < params->batch ? fixture->valid
                                                 : params->batch;
    fixture->flags = fixture->cu[n] > params->capacity ? FALLOW_FLAG_CLAMPED : 0;
    fixture->extent = fixture->cu[n] < params->capacity ? fixture->cu[n] : params->capacity;
    for (int64_t i = 0; i < fixture->extent; i++) {
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
            } else if (is_known && fixture->cu[b] + t < fixture->extent) {
                fixture->indices[fixture->cu[b] + t] =
                    fixture->slots[request * params->stride + start + t];
            }
        }
    }
}

/* Random rows: lengths and starts that fit, the sums rounded up to `round_to`. */
static void make(struct flw_bed *bed, struct fixture *fixture, int32_t batch, int32_t longest,
                 int32_t round_to)
{
    enum {
        ROWS = 4
    };
    memset(fixture, 0, sizeof *fixture);
    fallow_kv_indices_params *params = &fixture->params;
    fallow_kv_indices_params_init(params);
    params->batch = batch;
    params->fill = FILL;
    params->request_rows = ROWS;
    params->stride = longest + 50;
    params->requests_dtype = FALLOW_I64;
    fixture->valid = batch;
    fixture->has_starts = fixture->has_lengths = true;
    size_t rows = (size_t)batch, slot_count = ROWS * (size_t)params->stride;
    fixture->cu = flw_bed_host((rows + 1) * 4);
    fixture->lengths = flw_bed_host(rows * 4);
    fixture->starts = flw_bed_host(rows * 4);
    fixture->requests = flw_bed_host(rows * 8);
    fixture->slots = flw_bed_host(slot_count * 4);
    for (size_t b = 0; b < rows; b++) {
        int32_t length = (int32_t)flw_bed_random_below(bed, longest + 1);
        length = flw_bed_random_below(bed, 3) == 0 ? 0 : length;
        fixture->lengths[b] = length;
        fixture->starts[b] = (int32_t)flw_bed_random_below(bed, params->stride - length + 1);
        fixture->requests[b] = flw_bed_random_below(bed, ROWS);
        fixture->cu[b + 1] = fixture->cu[b] + (length + round_to - 1) / round_to * round_to;
    }
    for (size_t i = 0; i < slot_count; i++) {
        fixture->slots[i] = (int32_t)flw_bed_random_below(bed, INT32_MAX);
    }
    params->capacity = fixture->cu[batch] + 40;
    fixture->indices = flw_bed_host((size_t)params->capacity * 4);
}

static void drop(struct fixture *fixture)
{
    free(fixture->cu);
    free(fixture->lengths);
    free(fixture->starts);
    free(fixture->requests);
    free(fixture->slots);
    free(fixture->indices);
}

static void give_inputs(struct flw_bed *bed, struct fixture *fixture)
{
    fallow_kv_indices_params *params = &fixture->params;
    size_t rows = (size_t)params->batch;
    params->cu_seqlens = flw_bed_upload(bed, "cu_seqlens", fixture->cu, (rows + 1) * 4);
    params->lengths =
        fixture->has_lengths ? flw_bed_upload(bed, "lengths", fixture->lengths, rows * 4) : NULL;
    params->starts =
        fixture->has_starts ? flw_bed_upload(bed, "starts", fixture->starts, rows * 4) : NULL;
    params->valid_count = flw_bed_upload(bed, "valid_count", &fixture->valid, 4);
    params->requests =
        flw_bed_upload_ints(bed, "requests", fixture->requests, rows, params->requests_dtype);
    params->req_to_token =
        flw_bed_upload(bed, "req_to_token", fixture->slots,
                       (size_t)params->request_rows * (size_t)params->stride * 4);
}

static void launch(struct flw_bed *bed, void *inputs, void *const outputs[])
{
    fallow_kv_indices_params params = ((struct fixture *)inputs)->params;
    params.kv_indices = outputs[0];
    FLW_EXPECT_OK(bed,
                  fallow_attention_kv_indices(flw_bed_kernels(bed), &params, flw_bed_stream(bed)));
}

static struct flw_bed_step step_of(struct flw_bed *bed, struct fixture *fixture)
{
    fallow_workspace_need need = {.struct_size = sizeof need};
    struct flw_bed_step step = {.inputs = fixture, .launch = launch};
    flw_bed_declare(bed, &step, fallow_attention_kv_indices_query(&fixture->params, &need), &need);
    expect(fixture);
    step.declared_bytes[0] = (size_t)fixture->extent * 4;
    return step;
}

/* Prove a case, compare with the oracle; the flags too. */
static void check(struct flw_bed *bed, struct fixture *fixture)
{
    struct fixture larger, smaller;
    int32_t *indices = flw_bed_host((size_t)fixture->params.capacity * 4);
    make(bed, &larger, 30, fixture->params.batch + 20, 1);
    make(bed, &smaller, 2, 5, 1);
    fixture->params.flags = flw_bed_flags(bed);
    give_inputs(bed, fixture);
    give_inputs(bed, &larger);
    give_inputs(bed, &smaller);
    struct flw_bed_step step = step_of(bed, fixture), before = step_of(bed, &larger),
                        after = step_of(bed, &smaller);
    flw_bed_prove(bed, &step, &before, &after, (void *[]){indices});
    int32_t flags = flw_bed_read_flags(bed, fixture->params.flags);
    for (int64_t i = 0; i < fixture->extent; i++) {
        if (indices[i] != fixture->indices[i]) {
            FLW_EXPECT(bed, false, "kv_indices[%lld] of %d rows is %d, expected %d", (long long)i,
                       fixture->params.batch, indices[i], fixture->indices[i]);
            break;
        }
    }
    FLW_EXPECT(bed, flags == fixture->flags, "flags are 0x%x, expected 0x%x", (unsigned)flags,
               (unsigned)fixture->flags);
    free(indices);
    drop(&larger);
    drop(&smaller);
}

static void indices_are_exact_for_every_batch(struct flw_bed *bed)
{
    static const int32_t batches[] = {0, 1, 2, 7, 8, 64, 256, 512};
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        for (int bits = 0; bits < 8; bits++) {
            struct fixture fixture;
            make(bed, &fixture, batches[i], 70, 1);
            fixture.has_lengths = (bits & 1) != 0;
            fixture.has_starts = (bits & 2) != 0;
            fixture.params.requests_dtype = (bits & 4) != 0 ? FALLOW_I32 : FALLOW_I64;
            check(bed, &fixture);
            FLW_EXPECT(bed, fixture.flags == 0, "flags without a cause");
            drop(&fixture);
        }
    }
}

static void a_chunk_of_131072_tokens_is_exact(struct flw_bed *bed)
{
    static const int32_t batches[] = {1, 3, 65536};
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        struct fixture fixture;
        make(bed, &fixture, batches[i], 2 * 131072 / batches[i], 1);
        check(bed, &fixture);
        drop(&fixture);
    }
}

/* Row i of the plan's arrays serves chunk i, and the chunks together have every token once. */
static void chunks_of_a_prefix_follow_each_other(struct flw_bed *bed)
{
    enum {
        BATCH = 3,
        CHUNKS = 3,
        LENGTH = 40
    };
    static const int32_t prefixes[BATCH] = {100, 0, 41};
    int32_t plan_starts[CHUNKS][BATCH], plan_lengths[CHUNKS][BATCH], plan_cu[CHUNKS][BATCH + 1];
    struct fixture fixture;
    make(bed, &fixture, BATCH, 100, 1);
    give_inputs(bed, &fixture);
    for (int c = 0; c < CHUNKS; c++) {
        plan_cu[c][0] = 0;
        for (int b = 0; b < BATCH; b++) {
            int32_t left = prefixes[b] - c * LENGTH;
            plan_starts[c][b] = c * LENGTH;
            plan_lengths[c][b] = left < 0 ? 0 : left < LENGTH ? left : LENGTH;
            plan_cu[c][b + 1] = plan_cu[c][b] + plan_lengths[c][b];
        }
    }
    int32_t *starts = flw_bed_upload(bed, "starts", plan_starts, sizeof plan_starts);
    int32_t *lengths = flw_bed_upload(bed, "lengths", plan_lengths, sizeof plan_lengths);
    int32_t *cu = flw_bed_upload(bed, "cu_seqlens", plan_cu, sizeof plan_cu);
    int32_t *out = flw_bed_buffer(bed, "kv_indices", BATCH * LENGTH * 4), indices[BATCH * LENGTH];
    fixture.params.capacity = BATCH * LENGTH;
    for (int c = 0; c < CHUNKS; c++) {
        fixture.params.starts = starts + (ptrdiff_t)c * BATCH;
        fixture.params.lengths = lengths + (ptrdiff_t)c * BATCH;
        fixture.params.cu_seqlens = cu + (ptrdiff_t)c * (BATCH + 1);
        launch(bed, &fixture, (void *[]){out});
        flw_bed_read(bed, indices, out, (size_t)plan_cu[c][BATCH] * 4);
        for (int b = 0; b < BATCH; b++) {
            const int32_t *row = fixture.slots + fixture.requests[b] * fixture.params.stride;
            FLW_EXPECT(bed,
                       memcmp(indices + plan_cu[c][b], row + c * LENGTH,
                              (size_t)plan_lengths[c][b] * 4) == 0,
                       "chunk %d of row %d", c, b);
        }
    }
    drop(&fixture);
}

static void room_that_rows_leave_is_filled(struct flw_bed *bed)
{
    for (int32_t valid = -1; valid <= 9; valid++) {
        struct fixture fixture;
        make(bed, &fixture, 8, 300, 128);
        fixture.valid = valid;
        check(bed, &fixture);
        FLW_EXPECT(bed, fixture.flags == 0, "flags without a cause");
        drop(&fixture);
    }
}

static void rows_of_length_zero_have_nothing_looked_up(struct flw_bed *bed)
{
    struct fixture fixture;
    make(bed, &fixture, 6, 20, 1);
    for (int b = 0; b < 6; b++) {
        if (b % 2 == 0) {
            fixture.lengths[b] = 0;
            fixture.starts[b] = -100;
            fixture.requests[b] = 1 << 20;
        }
        fixture.cu[b + 1] = fixture.cu[b] + fixture.lengths[b];
    }
    check(bed, &fixture);
    FLW_EXPECT(bed, fixture.flags == 0, "a row of length 0 was looked up");
    memset(fixture.cu, 0, 7 * 4);
    memset(fixture.lengths, 0, 6 * 4);
    check(bed, &fixture);
    FLW_EXPECT(bed, fixture.extent == 0, "no tokens");
    drop(&fixture);
}

static void what_is_past_the_extent_stays_as_it_was(struct flw_bed *bed)
{
    struct fixture fixture;
    make(bed, &fixture, 5, 30, 1);
    fixture.valid = 3;
    give_inputs(bed, &fixture);
    expect(&fixture);
    size_t bytes = (size_t)fixture.params.capacity * 4;
    int32_t *marks = flw_bed_host(bytes);
    memset(marks, 0x55, bytes);
    void *out = flw_bed_upload(bed, "kv_indices", marks, bytes);
    launch(bed, &fixture, (void *[]){out});
    flw_bed_read(bed, marks, out, bytes);
    for (int64_t i = 0; i < fixture.params.capacity; i++) {
        FLW_EXPECT(bed, marks[i] == (i < fixture.extent ? fixture.indices[i] : 0x55555555),
                   "index %lld", (long long)i);
    }
    free(marks);
    drop(&fixture);
}

static void what_is_out_of_bounds_is_flagged_and_defined(struct flw_bed *bed)
{
    struct fixture fixture;
    make(bed, &fixture, 4, 20, 1);
    for (int b = 0; b < 4; b++) {
        fixture.lengths[b] = 10;
        fixture.starts[b] = 60 * (b % 2); /* stride 70: the last slot is the last one */
        fixture.requests[b] = b;
        fixture.cu[b + 1] = fixture.cu[b] + 10;
    }
    free(fixture.indices);
    fixture.params.capacity = 44;
    fixture.indices = flw_bed_host(44 * 4);
#define FLAGGED(change, bits) \
    change;                   \
    check(bed, &fixture);     \
    FLW_EXPECT(bed, fixture.flags == (bits), "flags 0x%x after " #change, (unsigned)fixture.flags)
    FLAGGED((void)0, 0);
    FLAGGED(fixture.lengths[1] = -3, FALLOW_FLAG_NEGATIVE);
    FLAGGED(fixture.lengths[1] = 11, FALLOW_FLAG_CLAMPED);
    FLAGGED((fixture.lengths[1] = 10, fixture.starts[1] = 61), FALLOW_FLAG_CLAMPED);
    FLAGGED(fixture.starts[1] = INT32_MAX, FALLOW_FLAG_CLAMPED);
    FLAGGED(fixture.starts[1] = INT32_MIN, FALLOW_FLAG_NEGATIVE);
    FLAGGED((fixture.starts[1] = 0, fixture.requests[2] = 4), FALLOW_FLAG_INDEX);
    FLAGGED(fixture.requests[2] = INT64_MIN, FALLOW_FLAG_INDEX);
    FLAGGED((fixture.requests[2] = 0, fixture.params.capacity = 33), FALLOW_FLAG_CLAMPED);
    FLAGGED(fixture.params.capacity = 0, FALLOW_FLAG_CLAMPED);
#undef FLAGGED
    drop(&fixture);
}

/* If sums do not ascend, the indices are undefined, and writes stay within the extent. */
static void sums_that_do_not_ascend_stay_within_the_extent(struct flw_bed *bed)
{
    char text[256];
    for (int round = 0; round < 50; round++) {
        struct fixture fixture;
        make(bed, &fixture, 12, 20, 1);
        for (int b = 0; b <= 12; b++) {
            fixture.cu[b] = (int32_t)flw_bed_random(bed);
        }
        give_inputs(bed, &fixture);
        size_t bytes = (size_t)fixture.params.capacity * 4;
        launch(bed, &fixture, (void *[]){flw_bed_buffer(bed, "kv_indices", bytes)});
        flw_bed_read(bed, text, fixture.params.cu_seqlens, 4); /* waits */
        FLW_EXPECT(bed, flw_bed_violations(bed) == 0, "round %d", round);
        drop(&fixture);
    }
}

static void a_graph_takes_rows_and_lengths_from_the_device(struct flw_bed *bed)
{
    struct fixture fixture;
    make(bed, &fixture, 64, 60, 1);
    give_inputs(bed, &fixture);
    fixture.params.capacity = (int64_t)64 * 60;
    free(fixture.indices);
    fixture.indices = flw_bed_host((size_t)fixture.params.capacity * 4);
    int32_t *indices = flw_bed_host((size_t)fixture.params.capacity * 4);
    void *outputs[] = {flw_bed_buffer(bed, "kv_indices", (size_t)fixture.params.capacity * 4)};
    struct flw_bed_graph *graph = flw_bed_capture(bed, launch, &fixture, outputs);
    for (int32_t valid = 64; valid >= 0; valid -= 16) {
        const fallow_kv_indices_params *params = &fixture.params;
        fixture.valid = valid;
        for (int b = 0; b < 64; b++) {
            fixture.lengths[b] = (int32_t)flw_bed_random_below(bed, 61);
            fixture.starts[b] = (int32_t)flw_bed_random_below(bed, 50);
            fixture.requests[b] = b < valid ? flw_bed_random_below(bed, 4) : -9;
            fixture.cu[b + 1] = fixture.cu[b] + (b < valid ? fixture.lengths[b] : 0);
        }
        flw_bed_write(bed, params->cu_seqlens, fixture.cu, 65 * 4);
        flw_bed_write(bed, params->lengths, fixture.lengths, 64 * 4);
        flw_bed_write(bed, params->starts, fixture.starts, 64 * 4);
        flw_bed_write(bed, params->valid_count, &fixture.valid, 4);
        flw_bed_write_ints(bed, params->requests, fixture.requests, 64, params->requests_dtype);
        flw_bed_replay(bed, graph);
        expect(&fixture);
        flw_bed_read(bed, indices, outputs[0], (size_t)fixture.extent * 4);
        FLW_EXPECT(bed, memcmp(indices, fixture.indices, (size_t)fixture.extent * 4) == 0,
                   "%d valid rows", valid);
    }
    free(indices);
    drop(&fixture);
}

static void mistakes_are_refused_by_name(struct flw_bed *bed)
{
    fallow_kv_indices_params good, bad;
    fallow_workspace_need need;
    fallow_kernels *kernels = flw_bed_kernels(bed);
    fallow_stream stream = flw_bed_stream(bed);
    int32_t *memory = flw_bed_buffer(bed, "memory", 8192);
    fallow_kv_indices_params_init(&good);
    good.batch = 4;
    good.capacity = 64;
    good.stride = 16;
    good.request_rows = 4;
    good.cu_seqlens = memory;
    good.requests = memory + 64;
    good.req_to_token = memory + 128;
    good.kv_indices = memory + 512;
#define REFUSED(change, word)                                                   \
    bad = good;                                                                 \
    change;                                                                     \
    FLW_EXPECT_REFUSED(bed, fallow_attention_kv_indices(kernels, &bad, stream), \
                       FALLOW_INVALID_ARGUMENT, word)
    REFUSED(bad.batch = -1, "batch");
    REFUSED(bad.batch = 65537, "batch");
    REFUSED(bad.capacity = -1, "capacity");
    REFUSED(bad.capacity = (int64_t)1 << 31, "capacity");
    REFUSED(bad.stride = 0, "stride");
    REFUSED(bad.request_rows = 0, "request_rows");
    REFUSED(bad.requests_dtype = FALLOW_BF16, "requests_dtype");
    REFUSED(bad.cu_seqlens = NULL, "cu_seqlens is NULL");
    REFUSED(bad.requests = NULL, "requests is NULL");
    REFUSED(bad.req_to_token = NULL, "req_to_token is NULL");
    REFUSED(bad.kv_indices = NULL, "kv_indices is NULL");
    REFUSED(bad.requests = (char *)memory + 2, "requests is not aligned");
    REFUSED(bad.kv_indices = memory + 4, "cu_seqlens and kv_indices overlap");
    REFUSED(bad.flags = memory + 575, "kv_indices and flags overlap");
    REFUSED(bad.struct_size = 3, "struct_size");
#undef REFUSED
    FLW_EXPECT(bed, fallow_attention_kv_indices(NULL, &good, stream) == FALLOW_INVALID_ARGUMENT,
               "NULL kernels");
    fallow_workspace_need_init(&need);
    FLW_EXPECT(bed, fallow_attention_kv_indices_query(&good, &need) == FALLOW_OK, "query");
    FLW_EXPECT(bed, need.launch_count == 1 && need.write_bytes == 64 * 4, "write_bytes");
    FLW_EXPECT(bed, need.read_bytes == 64 * 4 + 5 * 4 + 4 * 12, "read_bytes");
}

int main(int argc, char **argv)
{
    static const struct flw_bed_test tests[] = {
        FLW_BED_TEST(indices_are_exact_for_every_batch),
        FLW_BED_TEST(a_chunk_of_131072_tokens_is_exact),
        FLW_BED_TEST(chunks_of_a_prefix_follow_each_other),
        FLW_BED_TEST(room_that_rows_leave_is_filled),
        FLW_BED_TEST(rows_of_length_zero_have_nothing_looked_up),
        FLW_BED_TEST(what_is_past_the_extent_stays_as_it_was),
        FLW_BED_TEST(what_is_out_of_bounds_is_flagged_and_defined),
        FLW_BED_TEST(sums_that_do_not_ascend_stay_within_the_extent),
        FLW_BED_TEST(a_graph_takes_rows_and_lengths_from_the_device),
        FLW_BED_TEST(mistakes_are_refused_by_name),
    };
    return flw_bed_main(argc, argv, tests, sizeof tests / sizeof *tests);
}

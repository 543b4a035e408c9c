/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "fallow/attention.h"
#include "kernel/page_rows.h"

#define FILL   9
#define STRIDE 2000

/* Inputs of a call on the host, and the expected outputs. */
struct fixture {
    fallow_verify_pages_params params;
    int64_t *lengths, *requests; /* [batch] */
    int32_t *slots;              /* [request_rows, stride] */
    uint8_t *mask;               /* [rows, draft_tokens] */
    int32_t delta, valid;
    struct flw_page_rows want;
};

/* An independent oracle: each column's place is counted from scratch. The row's length. */
static int32_t expect_row(struct fixture *fixture, int64_t m)
{
    const fallow_verify_pages_params *params = &fixture->params;
    struct flw_page_rows *want = &fixture->want;
    int64_t width = params->draft_tokens, r = m / width, c = fixture->lengths[r] + fixture->delta;
    int64_t request = fixture->requests[r];
    bool is_known = request >= 0 && request < params->request_rows;
    const uint8_t *mask = fixture->mask + m * width;
    int32_t seen = 0;
    want->flags |= c < 0 ? FALLOW_FLAG_NEGATIVE : 0;
    c = c < 0 ? 0 : c;
    want->flags |= c > params->stride - width ? FALLOW_FLAG_CLAMPED : 0;
    c = c > params->stride ? params->stride : c;
    want->flags |= is_known ? 0 : FALLOW_FLAG_INDEX;
    for (int64_t j = 0; j < width; j++) {
        int64_t place = 0;
        for (int64_t other = 0; other < width; other++) {
            bool goes_first = (mask[other] != 0) == (mask[j] != 0) ? other < j : mask[j] == 0;
            place += goes_first ? 1 : 0;
        }
        want->table[m * width + place] = is_known && c + j < params->stride
                                             ? fixture->slots[request * params->stride + c + j]
                                             : params->fill;
        seen += mask[j] != 0;
    }
    return seen;
}

static void expect(struct fixture *fixture)
{
    const fallow_verify_pages_params *params = &fixture->params;
    struct flw_page_rows *want = &fixture->want;
    flw_page_rows_begin(want, params->draft_tokens);
    for (int64_t m = 0; m < want->rows; m++) {
        if (m / params->draft_tokens < fixture->valid) {
            flw_page_rows_add(want, m, expect_row(fixture, m));
            continue;
        }
        for (int32_t j = 0; j < params->draft_tokens; j++) {
            want->table[m * params->draft_tokens + j] = params->fill;
        }
        flw_page_rows_add(want, m, params->pad_len);
    }
}

static void make(struct flw_bed *bed, struct fixture *fixture, int32_t batch, int32_t width)
{
    enum {
        REQUESTS = 6
    };
    memset(fixture, 0, sizeof *fixture);
    fallow_verify_pages_params *params = &fixture->params;
    fallow_verify_pages_params_init(params);
    params->batch = batch;
    params->draft_tokens = width;
    params->request_rows = REQUESTS;
    params->stride = STRIDE;
    params->fill = FILL;
    fixture->valid = batch;
    flw_page_rows_init(&fixture->want, batch * width, width);
    size_t cells = (size_t)fixture->want.rows * (size_t)width;
    fixture->lengths = flw_bed_host((size_t)batch * 8);
    fixture->requests = flw_bed_host((size_t)batch * 8);
    fixture->slots = flw_bed_host((size_t)REQUESTS * STRIDE * 4);
    fixture->mask = flw_bed_host(cells);
    for (int32_t r = 0; r < batch; r++) {
        fixture->lengths[r] = flw_bed_random_below(bed, STRIDE - width + 1);
        fixture->requests[r] = flw_bed_random_below(bed, REQUESTS);
    }
    for (int i = 0; i < REQUESTS * STRIDE; i++) {
        fixture->slots[i] = (int32_t)flw_bed_random(bed);
    }
    for (size_t i = 0; i < cells; i++) { /* any byte but 0 is true */
        fixture->mask[i] = flw_bed_random_below(bed, 2) == 0 ? 0 : (uint8_t)flw_bed_random(bed);
    }
}

static void drop(struct fixture *fixture)
{
    free(fixture->lengths);
    free(fixture->requests);
    free(fixture->slots);
    free(fixture->mask);
    flw_page_rows_finish(&fixture->want);
}

static void give_inputs(struct flw_bed *bed, struct fixture *fixture)
{
    fallow_verify_pages_params *params = &fixture->params;
    size_t batch = (size_t)params->batch, width = (size_t)params->draft_tokens;
    size_t valid = fixture->valid < 0               ? 0
                   : fixture->valid < params->batch ? (size_t)fixture->valid
                                                    : batch;
    params->lengths =
        flw_bed_buffer(bed, "lengths", batch * fallow_dtype_bytes(params->lengths_dtype));
    params->requests =
        flw_bed_buffer(bed, "requests", batch * fallow_dtype_bytes(params->requests_dtype));
    uint8_t *mask = flw_bed_buffer(bed, "mask", batch * width * width);
    /* The call never reads the inputs of pads: they stay unwritten. */
    flw_bed_write_ints(bed, params->lengths, fixture->lengths, valid, params->lengths_dtype);
    flw_bed_write_ints(bed, params->requests, fixture->requests, valid, params->requests_dtype);
    flw_bed_write(bed, mask, fixture->mask, valid * width * width);
    params->mask = mask;
    params->delta = flw_bed_upload(bed, "delta", &fixture->delta, 4);
    params->valid_count = flw_bed_upload(bed, "valid_count", &fixture->valid, 4);
    params->req_to_token =
        flw_bed_upload(bed, "req_to_token", fixture->slots,
                       (size_t)params->request_rows * (size_t)params->stride * 4);
}

static void launch(struct flw_bed *bed, void *inputs, void *const outputs[])
{
    fallow_verify_pages_params params = ((struct fixture *)inputs)->params;
    params.page_table = outputs[0];
    params.cache_seqlens = outputs[1];
    params.cu_k = outputs[2];
    params.max_length = outputs[3];
    FLW_EXPECT_OK(
        bed, fallow_attention_verify_pages(flw_bed_kernels(bed), &params, flw_bed_stream(bed)));
}

static struct flw_bed_step step_of(struct flw_bed *bed, struct fixture *fixture)
{
    fallow_workspace_need need = {.struct_size = sizeof need};
    struct flw_bed_step step = {.inputs = fixture, .launch = launch};
    flw_bed_declare(bed, &step, fallow_attention_verify_pages_query(&fixture->params, &need),
                    &need);
    return step;
}

/* Prove a case, including the flags. */
static void check(struct flw_bed *bed, struct fixture *fixture)
{
    struct fixture larger, smaller;
    make(bed, &larger, fixture->params.batch + 2, 11);
    make(bed, &smaller, 1, 3);
    fixture->params.flags = flw_bed_flags(bed);
    give_inputs(bed, fixture);
    give_inputs(bed, &larger);
    give_inputs(bed, &smaller);
    struct flw_bed_step step = step_of(bed, fixture), before = step_of(bed, &larger),
                        after = step_of(bed, &smaller);
    expect(fixture);
    flw_page_rows_prove(bed, &fixture->want, &step, &before, &after, fixture->params.flags);
    drop(&larger);
    drop(&smaller);
}

static void partitions_are_stable_for_every_width_and_batch(struct flw_bed *bed)
{
    static const int32_t widths[] = {1, 2, 4, 7, 31, 32, 33, 64, 100};
    static const int32_t batches[] = {0, 1, 2, 7};
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
        for (size_t b = 0; b < sizeof batches / sizeof *batches; b++) {
            struct fixture fixture;
            make(bed, &fixture, batches[b], widths[w]);
            fixture.params.lengths_dtype = w % 2 == 0 ? FALLOW_I64 : FALLOW_I32;
            fixture.params.requests_dtype = b % 2 == 0 ? FALLOW_I64 : FALLOW_I32;
            check(bed, &fixture);
            FLW_EXPECT(bed, fixture.want.flags == 0, "flags without a cause");
            drop(&fixture);
        }
    }
}

static void the_widest_tree_is_exact(struct flw_bed *bed)
{
    struct fixture fixture;
    make(bed, &fixture, 1, 1024);
    check(bed, &fixture);
    drop(&fixture);
}

/* A chain: token i sees itself and all earlier tokens, as without a tree. */
static void all_none_and_a_chain_are_in_order(struct flw_bed *bed)
{
    for (int kind = 0; kind < 3; kind++) {
        struct fixture fixture;
        make(bed, &fixture, 3, 8);
        for (int m = 0; m < 24; m++) {
            for (int j = 0; j < 8; j++) {
                fixture.mask[m * 8 + j] = kind == 0 ? 0 : kind == 1 ? 255 : j <= m % 8;
            }
        }
        check(bed, &fixture);
        for (int m = 0; m < 24; m++) {
            const int32_t *slots =
                fixture.slots + fixture.requests[m / 8] * STRIDE + fixture.lengths[m / 8];
            FLW_EXPECT(bed, memcmp(fixture.want.table + (ptrdiff_t)m * 8, slots, 32) == 0,
                       "kind %d, row %d", kind, m);
            FLW_EXPECT(bed,
                       fixture.want.cache_seqlens[m] == (kind == 0   ? 0
                                                         : kind == 1 ? 8
                                                                     : m % 8 + 1),
                       "kind %d, length of row %d", kind, m);
        }
        drop(&fixture);
    }
}

static void pads_have_a_length_of_their_own_and_rows_of_fill(struct flw_bed *bed)
{
    for (int32_t valid = -1; valid <= 6; valid++) {
        struct fixture fixture;
        make(bed, &fixture, 5, 6);
        fixture.valid = valid;
        fixture.params.pad_len = valid & 1;
        check(bed, &fixture);
        drop(&fixture);
    }
}

static void what_is_out_of_bounds_is_flagged_and_defined(struct flw_bed *bed)
{
    struct fixture fixture;
    make(bed, &fixture, 3, 5);
    fixture.params.lengths_dtype = fixture.params.requests_dtype = FALLOW_I64;
    fixture.requests[2] = 5; /* the last row ends with the buffer */
#define FLAGGED(change, bits)                                                  \
    change;                                                                    \
    check(bed, &fixture);                                                      \
    FLW_EXPECT(bed, fixture.want.flags == (bits), "flags 0x%x after " #change, \
               (unsigned)fixture.want.flags)
    FLAGGED(fixture.lengths[2] = STRIDE - 5, 0);
    FLAGGED(fixture.lengths[2] = STRIDE - 4, FALLOW_FLAG_CLAMPED);
    FLAGGED(fixture.lengths[2] = STRIDE, FALLOW_FLAG_CLAMPED);
    FLAGGED(fixture.lengths[2] = INT64_MAX, FALLOW_FLAG_CLAMPED);
    FLAGGED((fixture.lengths[2] = STRIDE - 5, fixture.lengths[0] = fixture.lengths[1] = 7,
             fixture.delta = -8),
            FALLOW_FLAG_NEGATIVE);
    FLAGGED((fixture.delta = 0, fixture.requests[1] = 6), FALLOW_FLAG_INDEX);
    FLAGGED(fixture.requests[1] = INT64_MIN, FALLOW_FLAG_INDEX);
#undef FLAGGED
    drop(&fixture);
}

static void columns_that_are_not_declared_stay_as_they_were(struct flw_bed *bed)
{
    enum {
        BATCH = 3,
        WIDTH = 5,
        ROWS = 15,
        LD = 8,
        MARK = -77
    };
    int32_t before[ROWS * LD], after[ROWS * LD];
    struct fixture fixture;
    make(bed, &fixture, BATCH, WIDTH);
    fixture.params.ld = LD;
    fixture.valid = BATCH - 1;
    give_inputs(bed, &fixture);
    for (int i = 0; i < ROWS * LD; i++) {
        before[i] = MARK;
    }
    void *table = flw_bed_upload(bed, "page_table", before, sizeof before);
    launch(bed, &fixture, (void *[]){table, NULL, NULL, NULL});
    flw_bed_read(bed, after, table, sizeof before);
    expect(&fixture);
    for (int i = 0; i < ROWS * LD; i++) {
        int m = i / LD, j = i % LD;
        FLW_EXPECT(bed, after[i] == (j < WIDTH ? fixture.want.table[m * WIDTH + j] : MARK),
                   "[%d, %d] is %d", m, j, after[i]);
    }
    drop(&fixture);
}

static void a_graph_takes_rows_lengths_and_masks_from_the_device(struct flw_bed *bed)
{
    enum {
        BATCH = 8,
        WIDTH = 6
    };
    struct fixture fixture;
    make(bed, &fixture, BATCH, WIDTH);
    give_inputs(bed, &fixture);
    struct flw_bed_step step = step_of(bed, &fixture);
    struct flw_page_graph graph;
    flw_page_graph_init(bed, &graph, &step);
    for (int32_t valid = BATCH; valid >= 0; valid -= 2) {
        const fallow_verify_pages_params *params = &fixture.params;
        fixture.valid = valid;
        for (int r = 0; r < BATCH; r++) {
            fixture.lengths[r] = r < valid ? flw_bed_random_below(bed, 1000) : 1 << 30;
            fixture.requests[r] = r < valid ? flw_bed_random_below(bed, 6) : -1;
        }
        for (int i = 0; i < BATCH * WIDTH * WIDTH; i++) {
            fixture.mask[i] = (uint8_t)flw_bed_random_below(bed, 2);
        }
        flw_bed_write_ints(bed, params->lengths, fixture.lengths, BATCH, params->lengths_dtype);
        flw_bed_write_ints(bed, params->requests, fixture.requests, BATCH, params->requests_dtype);
        flw_bed_write(bed, params->mask, fixture.mask, BATCH * WIDTH * WIDTH);
        flw_bed_write(bed, params->valid_count, &fixture.valid, 4);
        expect(&fixture);
        flw_page_graph_check(bed, &graph, &fixture.want);
    }
    flw_page_graph_finish(&graph);
    drop(&fixture);
}

static void mistakes_are_refused_by_name(struct flw_bed *bed)
{
    fallow_verify_pages_params good, bad;
    fallow_workspace_need need;
    fallow_kernels *kernels = flw_bed_kernels(bed);
    fallow_stream stream = flw_bed_stream(bed);
    int32_t *memory = flw_bed_buffer(bed, "memory", 8192);
    fallow_verify_pages_params_init(&good);
    good.batch = 2;
    good.draft_tokens = 4;
    good.stride = 16;
    good.request_rows = 4;
    good.lengths = memory;
    good.requests = memory + 64;
    good.req_to_token = memory + 128;
    good.mask = (uint8_t *)(memory + 256);
    good.page_table = memory + 512;
#define REFUSED(change, word)                                                     \
    bad = good;                                                                   \
    change;                                                                       \
    FLW_EXPECT_REFUSED(bed, fallow_attention_verify_pages(kernels, &bad, stream), \
                       FALLOW_INVALID_ARGUMENT, word)
    REFUSED(bad.batch = -1, "batch");
    REFUSED(bad.draft_tokens = 0, "draft_tokens");
    REFUSED(bad.draft_tokens = 1025, "draft_tokens");
    REFUSED((bad.batch = 65536, bad.draft_tokens = 17), "batch x draft_tokens");
    REFUSED(bad.stride = 0, "stride");
    REFUSED(bad.request_rows = 0, "request_rows");
    REFUSED(bad.ld = 3, "ld");
    REFUSED(bad.pad_len = 2, "pad_len");
    REFUSED(bad.lengths_dtype = FALLOW_E4M3, "lengths_dtype");
    REFUSED(bad.requests_dtype = FALLOW_U8, "requests_dtype");
    REFUSED(bad.lengths = NULL, "lengths is NULL");
    REFUSED(bad.requests = NULL, "requests is NULL");
    REFUSED(bad.req_to_token = NULL, "req_to_token is NULL");
    REFUSED(bad.mask = NULL, "mask is NULL");
    REFUSED(bad.page_table = NULL, "page_table is NULL");
    REFUSED(bad.page_table = memory + 263, "mask and page_table overlap");
    REFUSED(bad.cu_k = memory + 543, "page_table and cu_k overlap");
    REFUSED(bad.struct_size = 0, "struct_size");
#undef REFUSED
    FLW_EXPECT(bed, fallow_attention_verify_pages(NULL, &good, stream) == FALLOW_INVALID_ARGUMENT,
               "NULL kernels");
    fallow_workspace_need_init(&need);
    FLW_EXPECT(bed, fallow_attention_verify_pages_query(&good, &need) == FALLOW_OK, "query");
    FLW_EXPECT(bed, need.launch_count == 1, "one launch");
    FLW_EXPECT(bed, need.write_bytes == 8 * 4 * 4 + 8 * 4 + 9 * 4 + 4, "write_bytes");
    FLW_EXPECT(bed, need.read_bytes == 8 * 4 + 8 * 4 + 2 * 8, "read_bytes");
}

int main(int argc, char **argv)
{
    static const struct flw_bed_test tests[] = {
        FLW_BED_TEST(partitions_are_stable_for_every_width_and_batch),
        FLW_BED_TEST(the_widest_tree_is_exact),
        FLW_BED_TEST(all_none_and_a_chain_are_in_order),
        FLW_BED_TEST(pads_have_a_length_of_their_own_and_rows_of_fill),
        FLW_BED_TEST(what_is_out_of_bounds_is_flagged_and_defined),
        FLW_BED_TEST(columns_that_are_not_declared_stay_as_they_were),
        FLW_BED_TEST(a_graph_takes_rows_lengths_and_masks_from_the_device),
        FLW_BED_TEST(mistakes_are_refused_by_name),
    };
    return flw_bed_main(argc, argv, tests, sizeof tests / sizeof *tests);
}

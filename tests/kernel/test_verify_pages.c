/* SPDX-License-Identifier: Apache-2.0 */
#include "fallow/attention.h"
#include "kernel/page_rows.h"

#define STRIDE 2000

FLW_MODULE(verify_pages, fallow_attention_verify_pages, fallow_verify_pages, FLW_IN(lengths),
           FLW_IN_MAYBE(delta), FLW_IN_MAYBE(valid_count), FLW_IN(requests), FLW_IN(req_to_token),
           FLW_IN_BYTES(mask), FLW_PAGE_OUTPUTS, FLW_COUNT(batch, 0, 65536),
           FLW_COUNT(draft_tokens, 1, 1024), FLW_COUNT(request_rows, 1, INT32_MAX),
           FLW_COUNT(stride, 1, INT32_MAX), FLW_COUNT(ld, 4, INT64_MAX),
           FLW_DTYPE(lengths_dtype, FLW_INTEGERS), FLW_DTYPE(requests_dtype, FLW_INTEGERS))

struct fixture {
    struct flw_call call;
    fallow_verify_pages_params params;
    int64_t *lengths, *requests; /* [batch] */
    int32_t *slots;              /* [request_rows, stride] */
    uint8_t *mask;               /* [rows, draft_tokens] */
    int32_t delta, valid;
    struct flw_page_rows want;
};

/* An independent oracle: each column's place is counted from scratch. Returns the row's length. */
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

static struct fixture *make(struct flw_bed *bed, int32_t batch, int32_t width)
{
    struct fixture *fixture = flw_bed_memory(bed, sizeof *fixture);
    struct flw_call *call = &fixture->call;
    fallow_verify_pages_params *params = &fixture->params;
    size_t rows = (size_t)batch, cells = rows * (size_t)(width * width);
    flw_call_init(bed, call, verify_pages(), params);
    params->batch = batch;
    params->draft_tokens = width;
    params->request_rows = 6;
    params->stride = STRIDE;
    params->fill = 9;
    fixture->valid = batch;
    flw_page_rows_init(bed, &fixture->want, batch * width, width);
    fixture->lengths =
        flw_call_draw_typed(call, "lengths", rows, &params->lengths_dtype, STRIDE - width + 1);
    fixture->requests = flw_call_draw_typed(call, "requests", rows, &params->requests_dtype, 6);
    fixture->slots = flw_call_draw(call, "req_to_token", (size_t)6 * STRIDE, 0);
    fixture->mask = flw_call_input(call, "mask", cells, 1);
    for (size_t i = 0; i < cells; i++) { /* any byte but 0 is true */
        fixture->mask[i] = flw_bed_random_below(bed, 2) == 0 ? 0 : (uint8_t)flw_bed_random(bed);
    }
    flw_call_bind(call, "delta", &fixture->delta, 1, 4);
    flw_call_bind(call, "valid_count", &fixture->valid, 1, 4);
    return fixture;
}

/* The call never reads the inputs of pads: they stay unwritten. */
static void leave_pads(struct fixture *fixture)
{
    int64_t width = fixture->params.draft_tokens;
    flw_call_written(&fixture->call, "lengths", fixture->valid);
    flw_call_written(&fixture->call, "requests", fixture->valid);
    flw_call_written(&fixture->call, "mask", fixture->valid * width * width);
}

/* Prove a case, with these flags. */
static void check(struct fixture *fixture, int32_t flags)
{
    leave_pads(fixture);
    expect(fixture);
    flw_page_rows_prove(&fixture->call, &fixture->want, flags);
}

FLW_TEST(partitions_are_stable_for_every_width_and_batch)
{
    static const int32_t widths[] = {1, 2, 4, 7, 31, 32, 33, 64, 100};
    static const int32_t batches[] = {0, 1, 2, 7};
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
        for (size_t b = 0; b < sizeof batches / sizeof *batches; b++) {
            struct fixture *fixture = make(bed, batches[b], widths[w]);
            fixture->params.lengths_dtype = w % 2 == 0 ? FALLOW_I64 : FALLOW_I32;
            fixture->params.requests_dtype = b % 2 == 0 ? FALLOW_I64 : FALLOW_I32;
            check(fixture, 0);
        }
    }
    check(make(bed, 1, 1024), 0);
}

/* A chain: token i sees itself and all earlier tokens, as without a tree. */
FLW_TEST(all_none_and_a_chain_are_in_order)
{
    for (int kind = 0; kind < 3; kind++) {
        struct fixture *fixture = make(bed, 3, 8);
        for (int i = 0; i < 24 * 8; i++) {
            fixture->mask[i] = kind == 0 ? 0 : kind == 1 ? 255 : i % 8 <= i / 8 % 8;
        }
        check(fixture, 0);
        for (int m = 0; m < 24; m++) {
            const int32_t *slots =
                fixture->slots + fixture->requests[m / 8] * STRIDE + fixture->lengths[m / 8];
            int32_t length = kind == 0 ? 0 : kind == 1 ? 8 : m % 8 + 1;
            FLW_EXPECT(bed, memcmp(fixture->want.table + (ptrdiff_t)m * 8, slots, 32) == 0,
                       "kind %d, row %d", kind, m);
            FLW_EXPECT(bed, fixture->want.cache_seqlens[m] == length, "kind %d, length of row %d",
                       kind, m);
        }
    }
}

FLW_TEST(pads_have_a_length_of_their_own_and_rows_of_fill)
{
    for (int32_t valid = -1; valid <= 6; valid++) {
        struct fixture *fixture = make(bed, 5, 6);
        fixture->valid = valid;
        fixture->params.pad_len = valid & 1;
        check(fixture, 0);
    }
}

FLW_TEST(values_out_of_bounds_are_flagged_and_defined)
{
    static const struct {
        int64_t length, request;
        int32_t delta, flags;
    } cases[] = {{STRIDE - 5, 5, 0, 0},
                 {STRIDE - 4, 5, 0, FALLOW_FLAG_CLAMPED},
                 {STRIDE, 5, 0, FALLOW_FLAG_CLAMPED},
                 {INT64_MAX, 5, 0, FALLOW_FLAG_CLAMPED},
                 {7, 5, -8, FALLOW_FLAG_NEGATIVE},
                 {7, 6, 0, FALLOW_FLAG_INDEX},
                 {7, INT64_MIN, 0, FALLOW_FLAG_INDEX}};
    struct fixture *fixture = make(bed, 3, 5);
    fixture->params.lengths_dtype = fixture->params.requests_dtype = FALLOW_I64;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        fixture->lengths[2] = cases[c].length; /* request 5's row ends with the buffer */
        fixture->requests[2] = cases[c].request;
        fixture->lengths[0] = fixture->lengths[1] = 8;
        fixture->delta = cases[c].delta;
        check(fixture, cases[c].flags);
    }
}

FLW_TEST(columns_that_are_not_declared_keep_their_values)
{
    struct fixture *fixture = make(bed, 3, 5);
    fixture->params.ld = 8;
    fixture->valid = 2;
    expect(fixture);
    flw_page_rows_run(&fixture->call, &fixture->want, 8, 0);
}

FLW_TEST(a_graph_takes_rows_lengths_and_masks_from_the_device)
{
    struct fixture *fixture = make(bed, 8, 6);
    flw_call_capture(&fixture->call);
    for (fixture->valid = 8; fixture->valid >= 0; fixture->valid -= 2) {
        for (int r = 0; r < 8; r++) {
            fixture->lengths[r] = r < fixture->valid ? flw_bed_random_below(bed, 1000) : 1 << 30;
            fixture->requests[r] = r < fixture->valid ? flw_bed_random_below(bed, 6) : -1;
        }
        for (int i = 0; i < 8 * 36; i++) {
            fixture->mask[i] = (uint8_t)flw_bed_random_below(bed, 2);
        }
        expect(fixture);
        flw_page_rows_replay(&fixture->call, &fixture->want);
    }
}

FLW_TEST(mistakes_are_refused_by_name)
{
    struct fixture *fixture = make(bed, 2, 4);
    FLW_CALL_REFUSE(&fixture->call, "batch=65536 draft_tokens=17: batch x draft_tokens");
    fixture->params.stride = 16;
    fixture->params.request_rows = 4;
    fallow_workspace_need need = flw_call_need(&fixture->call);
    FLW_EXPECT(bed, need.launch_count == 1, "one launch");
    FLW_EXPECT(bed, need.write_bytes == 8 * 4 * 4 + 8 * 4 + 9 * 4 + 4, "write_bytes");
    FLW_EXPECT(bed, need.read_bytes == 8 * 4 + 8 * 4 + 2 * 8, "read_bytes");
}

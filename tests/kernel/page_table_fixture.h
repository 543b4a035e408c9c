/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the common part of the page table tests: inputs of a call, an oracle, a proof. */
#ifndef FLW_TESTS_KERNEL_PAGE_TABLE_FIXTURE_H
#define FLW_TESTS_KERNEL_PAGE_TABLE_FIXTURE_H

#include <stdlib.h>
#include <string.h>

#include "fallow/attention.h"
#include "kernel/page_rows.h"

#define FILL 7

/* Inputs of a call on the host, and the expected outputs. */
struct fixture {
    fallow_page_table_params params;
    int64_t *lengths, *requests; /* [batch] */
    int32_t *starts;             /* [batch] */
    int32_t *slots;              /* [request_rows, stride] */
    int32_t *swa;                /* [swa_count] */
    int32_t delta, valid;
    bool has_starts;
    struct flw_page_rows want;
};

static inline int64_t least_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* An independent oracle: token by token, or a whole page at once. */
static inline void expect_row(struct fixture *fixture, int64_t r)
{
    const fallow_page_table_params *params = &fixture->params;
    struct flw_page_rows *want = &fixture->want;
    int32_t *row = want->table + r * params->cols;
    int64_t length = params->pad_len;
    for (int32_t j = 0; j < params->cols; j++) {
        row[j] = params->fill;
    }
    if (r < fixture->valid) {
        int64_t start = fixture->has_starts ? fixture->starts[r] : 0, t = 0;
        int64_t wanted = fixture->lengths[r] + fixture->delta, request = fixture->requests[r];
        bool is_known = request >= 0 && request < params->request_rows;
        want->flags |= wanted < 0 || start < 0 ? FALLOW_FLAG_NEGATIVE : 0;
        want->flags |= start > params->stride ? FALLOW_FLAG_CLAMPED : 0;
        want->flags |= is_known ? 0 : FALLOW_FLAG_INDEX;
        start = start < 0 ? 0 : least_of(start, params->stride);
        int64_t page = params->page_size, in_source = params->stride - start;
        while (t < wanted && t / page < params->cols && t < in_source) {
            if (t % page == 0 && is_known) {
                int64_t slot = fixture->slots[request * params->stride + start + t];
                if (params->swa_count > 0) {
                    slot = slot >= 0 && slot < params->swa_count ? fixture->swa[slot] : -1;
                }
                want->flags |= slot < 0 ? FALLOW_FLAG_INDEX : 0;
                row[t / page] = slot < 0 ? params->fill : (int32_t)(slot / page);
            }
            t += t % page == 0 && t + page <= least_of(wanted, in_source) ? page : 1;
        }
        want->flags |= t < wanted ? FALLOW_FLAG_CLAMPED : 0;
        length = t;
    }
    flw_page_rows_add(want, r, length);
}

static inline void expect(struct fixture *fixture)
{
    flw_page_rows_begin(&fixture->want, fixture->params.cols);
    for (int64_t r = 0; r < fixture->params.batch; r++) {
        expect_row(fixture, r);
    }
}

/* Draw random lengths that fit, possibly repeated requests, slots of any value. */
static inline void make(struct flw_bed *bed, struct fixture *fixture, int32_t batch, int32_t cols,
                        int32_t page_size, int64_t stride)
{
    memset(fixture, 0, sizeof *fixture);
    fallow_page_table_params *params = &fixture->params;
    fallow_page_table_params_init(params);
    params->request_rows = 5;
    params->stride = stride;
    params->batch = batch;
    params->cols = cols;
    params->page_size = page_size;
    params->fill = FILL;
    params->lengths_dtype = FALLOW_I32;
    params->requests_dtype = FALLOW_I64;
    fixture->valid = batch;
    size_t rows = (size_t)batch, slot_count = (size_t)params->request_rows * (size_t)stride;
    fixture->lengths = flw_bed_host(rows * 8);
    fixture->requests = flw_bed_host(rows * 8);
    fixture->starts = flw_bed_host(rows * 4);
    fixture->slots = flw_bed_host(slot_count * 4);
    flw_page_rows_init(&fixture->want, batch, cols);
    int64_t most = least_of((int64_t)cols * page_size, stride);
    for (size_t r = 0; r < rows; r++) {
        fixture->lengths[r] = flw_bed_random_below(bed, most + 1);
        fixture->requests[r] = flw_bed_random_below(bed, params->request_rows);
    }
    for (size_t i = 0; i < slot_count; i++) {
        fixture->slots[i] = (int32_t)flw_bed_random_below(bed, INT32_MAX);
    }
}

/* Add a map for sliding windows, and slots within it. */
static inline void add_swa(struct flw_bed *bed, struct fixture *fixture, int32_t swa_count)
{
    fallow_page_table_params *params = &fixture->params;
    params->swa_count = swa_count;
    fixture->swa = flw_bed_host((size_t)swa_count * 4);
    for (int32_t i = 0; i < swa_count; i++) {
        fixture->swa[i] = (int32_t)flw_bed_random_below(bed, 1000000);
    }
    for (int64_t i = 0; i < params->request_rows * params->stride; i++) {
        fixture->slots[i] %= swa_count;
    }
}

static inline void drop(struct fixture *fixture)
{
    free(fixture->lengths);
    free(fixture->requests);
    free(fixture->starts);
    free(fixture->slots);
    free(fixture->swa);
    flw_page_rows_finish(&fixture->want);
}

static inline void give_inputs(struct flw_bed *bed, struct fixture *fixture)
{
    fallow_page_table_params *params = &fixture->params;
    size_t rows = (size_t)params->batch;
    params->lengths =
        flw_bed_buffer(bed, "lengths", rows * fallow_dtype_bytes(params->lengths_dtype));
    params->requests =
        flw_bed_buffer(bed, "requests", rows * fallow_dtype_bytes(params->requests_dtype));
    /* The call never reads the inputs of pads: they stay unwritten. */
    size_t read = fixture->valid < 0 ? 0 : (size_t)least_of(fixture->valid, params->batch);
    flw_bed_write_ints(bed, params->lengths, fixture->lengths, read, params->lengths_dtype);
    flw_bed_write_ints(bed, params->requests, fixture->requests, read, params->requests_dtype);
    params->starts =
        fixture->has_starts ? flw_bed_upload(bed, "starts", fixture->starts, rows * 4) : NULL;
    params->delta = flw_bed_upload(bed, "delta", &fixture->delta, 4);
    params->valid_count = flw_bed_upload(bed, "valid_count", &fixture->valid, 4);
    params->req_to_token =
        flw_bed_upload(bed, "req_to_token", fixture->slots,
                       (size_t)params->request_rows * (size_t)params->stride * 4);
    if (fixture->swa != NULL) {
        params->full_to_swa =
            flw_bed_upload(bed, "full_to_swa", fixture->swa, (size_t)params->swa_count * 4);
    }
}

static inline void launch(struct flw_bed *bed, void *inputs, void *const outputs[])
{
    fallow_page_table_params params = ((struct fixture *)inputs)->params;
    params.page_table = outputs[0];
    params.cache_seqlens = outputs[1];
    params.cu_k = outputs[2];
    params.max_length = outputs[3];
    FLW_EXPECT_OK(bed,
                  fallow_attention_page_table(flw_bed_kernels(bed), &params, flw_bed_stream(bed)));
}

static inline struct flw_bed_step step_of(struct flw_bed *bed, struct fixture *fixture)
{
    fallow_workspace_need need = {.struct_size = sizeof need};
    struct flw_bed_step step = {.inputs = fixture, .launch = launch};
    flw_bed_declare(bed, &step, fallow_attention_page_table_query(&fixture->params, &need), &need);
    return step;
}

/* Prove a case in full mode, including the flags. */
static inline void check(struct flw_bed *bed, struct fixture *fixture)
{
    struct fixture larger, smaller;
    fallow_page_table_params *params = &fixture->params;
    make(bed, &larger, (int32_t)least_of(params->batch + 3, 65536), params->cols + 5, 1, 64);
    make(bed, &smaller, params->batch / 2, params->cols / 2 + 1, 16, 40);
    params->flags = flw_bed_flags(bed);
    give_inputs(bed, fixture);
    give_inputs(bed, &larger);
    give_inputs(bed, &smaller);
    struct flw_bed_step step = step_of(bed, fixture), before = step_of(bed, &larger),
                        after = step_of(bed, &smaller);
    expect(fixture);
    flw_page_rows_prove(bed, &fixture->want, &step, &before, &after, params->flags);
    drop(&larger);
    drop(&smaller);
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "fallow/mla.h"
#include "kernel/bed.h"

#define MOST_BATCH 4096

enum {
    STARTS,
    LENGTHS,
    CU,
    TOTALS,
    LONGEST,
    COUNT,
    MAP,
    TABLES
};

/* One call and the expected outputs. */
struct fixture {
    fallow_chunk_plan_params params;
    int32_t contexts[MOST_BATCH];
    int32_t *want[TABLES]; /* [chunk_capacity, ...] */
    int64_t count;         /* of chunks, whatever the capacity */
    int64_t most_tokens;
};

static struct fixture *make(fallow_chunk_mode mode, int32_t workspace, int32_t page,
                            int32_t capacity)
{
    struct fixture *fixture = flw_bed_host(sizeof *fixture);
    fallow_chunk_plan_params_init(&fixture->params);
    fixture->params.mode = mode;
    fixture->params.workspace_tokens = workspace;
    fixture->params.page_size = page;
    fixture->params.chunk_capacity = capacity;
    fixture->params.token_capacity = workspace;
    return fixture;
}

static void drop(struct fixture *fixture)
{
    for (int i = 0; i < TABLES; i++) {
        free(fixture->want[i]);
    }
    free(fixture);
}

static void set(struct fixture *fixture, const int32_t *contexts, int32_t batch)
{
    fixture->params.batch = batch;
    memcpy(fixture->contexts, contexts, (size_t)batch * 4);
}

/* ---- an oracle that deals tokens and pages one by one */

/* Request b's next `tokens` tokens, from `start`, to chunk i. */
static void deal(struct fixture *fixture, int64_t i, int32_t b, int32_t start, int32_t tokens)
{
    if (i < fixture->params.chunk_capacity) {
        int64_t at = i * fixture->params.batch + b;
        if (fixture->want[LENGTHS][at] == 0) {
            fixture->want[STARTS][at] = start;
        }
        fixture->want[LENGTHS][at] += tokens;
    }
}

static int32_t share_of(const struct fixture *fixture, int32_t b, int32_t rank)
{
    int32_t size = fixture->params.dcp_size == 0 ? 1 : fixture->params.dcp_size, share = 0;
    int32_t interleave = fixture->params.dcp_interleave == 0 ? 1 : fixture->params.dcp_interleave;
    if (size == 1) {
        return fixture->contexts[b] < 0 ? 0 : fixture->contexts[b];
    }
    for (int32_t t = 0; t < fixture->contexts[b]; t++) {
        share += t / interleave % size == rank;
    }
    return share;
}

static void expect_uniform(struct fixture *fixture)
{
    const fallow_chunk_plan_params *params = &fixture->params;
    int32_t with_context = 0, step = params->workspace_tokens;
    for (int32_t b = 0; b < params->batch; b++) {
        with_context += fixture->contexts[b] > 0 || params->counts_every_request;
    }
    step = with_context > 0 ? step / with_context : 0;
    step -= step % params->page_size;
    for (int32_t b = 0; b < params->batch && step > 0; b++) {
        int32_t longest = share_of(fixture, b, 0);
        int32_t own = share_of(fixture, b, params->dcp_rank);
        for (int64_t i = 0; i * step < longest; i++) {
            int32_t left = own - (int32_t)i * step;
            deal(fixture, i, b, (int32_t)i * step, left < 0 ? 0 : left < step ? left : step);
            fixture->count = i + 1 > fixture->count ? i + 1 : fixture->count;
        }
    }
    for (int64_t i = 0; i < fixture->count && i < params->chunk_capacity; i++) {
        for (int32_t b = 0; b < params->batch; b++) {
            fixture->want[STARTS][i * params->batch + b] = (int32_t)i * step;
        }
    }
}

/* Page after page of request after request; one that does not fit opens a chunk. */
static void expect_packed(struct fixture *fixture)
{
    const fallow_chunk_plan_params *params = &fixture->params;
    int32_t room = 0;
    for (int32_t b = 0; b < params->batch; b++) {
        for (int32_t at = 0; at < fixture->contexts[b]; at += params->page_size) {
            int32_t left = fixture->contexts[b] - at;
            int32_t page = left < params->page_size ? left : params->page_size;
            bool fits = left <= room || page <= room - room % params->page_size;
            if (!fits) {
                fixture->count++;
                room = params->workspace_tokens;
            }
            deal(fixture, fixture->count - 1, b, at, page);
            room -= page;
        }
    }
}

static void expect(struct fixture *fixture)
{
    const fallow_chunk_plan_params *params = &fixture->params;
    int64_t rows = params->chunk_capacity, batch = params->batch;
    const int64_t counts[TABLES] = {rows * batch,
                                    rows * batch,
                                    rows * (batch + 1),
                                    rows,
                                    rows,
                                    1,
                                    rows * params->token_capacity};
    for (int i = 0; i < TABLES; i++) {
        free(fixture->want[i]);
        fixture->want[i] = flw_bed_host((size_t)counts[i] * 4);
    }
    fixture->count = fixture->most_tokens = 0;
    if (params->mode == FALLOW_CHUNK_PACKED) {
        expect_packed(fixture);
    } else {
        expect_uniform(fixture);
    }
    fixture->want[COUNT][0] = (int32_t)(fixture->count < rows ? fixture->count : rows);
    for (int64_t i = 0; i < rows; i++) {
        int32_t t = 0;
        for (int32_t b = 0; b < batch; b++) {
            int32_t length = fixture->want[LENGTHS][i * batch + b];
            fixture->want[LONGEST][i] =
                length > fixture->want[LONGEST][i] ? length : fixture->want[LONGEST][i];
            for (int32_t k = 0; k < length; k++, t++) {
                if (t < params->token_capacity) {
                    fixture->want[MAP][i * params->token_capacity + t] = b;
                }
            }
            fixture->want[CU][i * (batch + 1) + b + 1] = t;
        }
        fixture->want[TOTALS][i] = t;
        fixture->most_tokens = t > fixture->most_tokens ? t : fixture->most_tokens;
    }
}

/* ---- running */

static void launch(struct flw_bed *bed, void *inputs, void *const outputs[])
{
    fallow_chunk_plan_params params = ((struct fixture *)inputs)->params;
    params.starts = outputs[STARTS];
    params.lengths = outputs[LENGTHS];
    params.cu_seqlens = outputs[CU];
    params.totals = outputs[TOTALS];
    params.max_lengths = outputs[LONGEST];
    params.chunk_count = outputs[COUNT];
    params.token_to_seq = params.token_capacity > 0 ? outputs[MAP] : NULL;
    FLW_EXPECT_OK(bed, fallow_mla_chunk_plan(flw_bed_kernels(bed), &params, flw_bed_stream(bed)));
}

static struct flw_bed_step step_of(struct flw_bed *bed, struct fixture *fixture)
{
    fallow_workspace_need need = {.struct_size = sizeof need};
    struct flw_bed_step step = {.inputs = fixture, .launch = launch};
    flw_bed_declare(bed, &step, fallow_mla_chunk_plan_query(&fixture->params, &need), &need);
    return step;
}

static void upload(struct flw_bed *bed, struct fixture *fixture)
{
    fixture->params.context_lengths = flw_bed_upload(bed, "context_lengths", fixture->contexts,
                                                     (size_t)fixture->params.batch * 4);
}

static void compare(struct flw_bed *bed, const struct fixture *fixture,
                    const struct flw_bed_step *step, void *const out[])
{
    for (size_t i = 0; i < step->output_count; i++) {
        const int32_t *got = out[i], *want = fixture->want[i];
        for (size_t k = 0; k < step->declared_bytes[i] / 4; k++) {
            FLW_EXPECT(bed, got[k] == want[k], "%s[%zu] is %d, expected %d", step->names[i], k,
                       got[k], want[k]);
        }
    }
}

static void compare_host(struct flw_bed *bed, const struct fixture *fixture)
{
    int64_t count = -1, most = -1;
    fallow_status status =
        fallow_mla_chunk_count(&fixture->params, fixture->contexts, &count, &most);
    FLW_EXPECT(bed, status == FALLOW_OK, "count: %s", fallow_status_name(status));
    FLW_EXPECT(bed, count == fixture->count, "the host counts %lld chunks, expected %lld",
               (long long)count, (long long)fixture->count);
    FLW_EXPECT(bed, most == fixture->most_tokens || count > fixture->params.chunk_capacity,
               "the host has %lld tokens at most, expected %lld", (long long)most,
               (long long)fixture->most_tokens);
}

/* Prove a case and compare with the oracle. */
static void check(struct flw_bed *bed, struct fixture *fixture)
{
    static const int32_t few[] = {7, 0, 100}, many[] = {64, 9, 0, 900, 31, 1, 2, 77, 500, 0, 40};
    const fallow_chunk_plan_params *params = &fixture->params;
    struct fixture *larger = make(params->mode, params->workspace_tokens * 2, 1, 20);
    struct fixture *smaller = make(FALLOW_CHUNK_UNIFORM, 64, 4, 1);
    void *out[TABLES];
    set(larger, many, 11);
    set(smaller, few, 3);
    upload(bed, fixture);
    upload(bed, larger);
    upload(bed, smaller);
    larger->params.token_capacity +=
        params->token_capacity == 0 ? -larger->params.token_capacity : 9;
    smaller->params.token_capacity = params->token_capacity == 0 ? 0 : 64;
    struct flw_bed_step step = step_of(bed, fixture), before = step_of(bed, larger),
                        after = step_of(bed, smaller);
    for (size_t i = 0; i < step.output_count; i++) {
        out[i] = flw_bed_host(step.declared_bytes[i]);
    }
    expect(fixture);
    flw_bed_prove(bed, &step, &before, &after, out);
    compare(bed, fixture, &step, out);
    for (size_t i = 0; i < step.output_count; i++) {
        free(out[i]);
    }
    drop(larger);
    drop(smaller);
}

static void the_worked_examples_are_exact(struct flw_bed *bed)
{
    static const int32_t contexts[] = {5, 0, 12};
    static const int32_t starts[][6] = {{0, 0, 0, 8, 8, 8}, {0, 0, 0, 0, 0, 8}};
    static const int32_t lengths[] = {5, 0, 8, 0, 0, 4}, cu[] = {0, 5, 5, 13, 0, 0, 0, 4};
    for (int mode = 0; mode < 2; mode++) {
        struct fixture *fixture = make((fallow_chunk_mode)mode, 16, 4, 2);
        set(fixture, contexts, 3);
        check(bed, fixture);
        compare_host(bed, fixture);
        FLW_EXPECT(bed, memcmp(fixture->want[STARTS], starts[mode], sizeof starts[mode]) == 0,
                   "starts");
        FLW_EXPECT(bed, memcmp(fixture->want[LENGTHS], lengths, sizeof lengths) == 0, "lengths");
        FLW_EXPECT(bed, memcmp(fixture->want[CU], cu, sizeof cu) == 0, "cu_seqlens");
        FLW_EXPECT(bed, fixture->count == 2 && fixture->most_tokens == 13, "count");
        drop(fixture);
    }
}

/* Chunk tokens per request are 65536, 16384, 8192, 1024 and 128 for these batches. */
static void deepseek_contexts_take_the_known_number_of_chunks(struct flw_bed *bed)
{
    static const int32_t batches[] = {1, 4, 8, 64, 512}, contexts[] = {8192, 32768, 131072};
    static const int64_t chunks[5][3] = {
        {1, 1, 2}, {1, 2, 8}, {1, 4, 16}, {8, 32, 128}, {64, 256, 1024}};
    for (int k = 0; k < 5; k++) {
        for (int c = 0; c < 3; c++) {
            struct fixture *fixture = make(FALLOW_CHUNK_UNIFORM, 65536, 64, 16);
            int64_t count = 0, most = 0;
            fixture->params.batch = batches[k];
            for (int32_t b = 0; b < batches[k]; b++) {
                fixture->contexts[b] = contexts[c];
            }
            FLW_EXPECT(bed,
                       fallow_mla_chunk_count(&fixture->params, fixture->contexts, &count, &most) ==
                           FALLOW_OK,
                       "refused");
            FLW_EXPECT(bed, count == chunks[k][c] && most <= 65536, "%d of %d take %lld chunks",
                       batches[k], contexts[c], (long long)count);
            fixture->params.mode = FALLOW_CHUNK_PACKED; /* never more than the tokens need */
            FLW_EXPECT(bed,
                       fallow_mla_chunk_count(&fixture->params, fixture->contexts, &count, &most) ==
                           FALLOW_OK,
                       "refused");
            int64_t tokens = (int64_t)batches[k] * contexts[c];
            FLW_EXPECT(bed, count == (tokens + 65535) / 65536, "%lld packed", (long long)count);
            drop(fixture);
        }
    }
}

static void random_contexts_are_exact_in_both_modes(struct flw_bed *bed)
{
    static const int32_t batches[] = {0, 1, 2, 7, 64, 513}, pages[] = {1, 3, 16, 64};
    for (int k = 0; k < 48; k++) {
        int32_t batch = batches[k / 2 % 6], page = pages[k / 12];
        int32_t workspace = batch * page + page + (int32_t)flw_bed_random_below(bed, 700);
        struct fixture *fixture =
            make((fallow_chunk_mode)(k % 2), workspace, page, k % 3 == 0 ? 3 : 12);
        fixture->params.batch = batch;
        fixture->params.token_capacity = k % 5 == 0 ? 0 : workspace;
        fixture->params.counts_every_request = k % 4 == 2;
        for (int32_t b = 0; b < batch; b++) {
            fixture->contexts[b] =
                flw_bed_random_below(bed, 3) == 0 ? 0 : (int32_t)flw_bed_random_below(bed, 300);
        }
        check(bed, fixture);
        compare_host(bed, fixture);
        drop(fixture);
    }
}

static void the_largest_batch_is_exact(struct flw_bed *bed)
{
    for (int mode = 0; mode < 2; mode++) {
        struct fixture *fixture = make((fallow_chunk_mode)mode, 65536, 16, 3);
        fixture->params.batch = MOST_BATCH;
        for (int32_t b = 0; b < MOST_BATCH; b++) {
            fixture->contexts[b] = (int32_t)flw_bed_random_below(bed, 48);
        }
        check(bed, fixture);
        compare_host(bed, fixture);
        drop(fixture);
    }
}

static void ranks_share_contexts_and_have_the_same_chunks(struct flw_bed *bed)
{
    static const int32_t contexts[] = {100, 3, 0, 64, 65, 1, 999};
    for (int32_t interleave = 1; interleave <= 16; interleave += 15) {
        int32_t sum = 0;
        for (int32_t rank = 0; rank < 4; rank++) {
            struct fixture *fixture = make(FALLOW_CHUNK_UNIFORM, 256, 8, 12);
            fixture->params.dcp_size = 4;
            fixture->params.dcp_rank = rank;
            fixture->params.dcp_interleave = interleave;
            set(fixture, contexts, 7);
            check(bed, fixture);
            compare_host(bed, fixture);
            FLW_EXPECT(bed, fixture->count == 7, "rank %d has %lld chunks", rank,
                       (long long)fixture->count);
            for (int i = 0; i < 12; i++) {
                sum += fixture->want[TOTALS][i];
            }
            drop(fixture);
        }
        FLW_EXPECT(bed, sum == 1232, "the ranks have %d tokens in all", sum);
    }
}

static int32_t flags_after(struct flw_bed *bed, struct fixture *fixture)
{
    fixture->params.flags = flw_bed_flags(bed);
    check(bed, fixture);
    return flw_bed_read_flags(bed, fixture->params.flags);
}

static void what_is_out_of_bounds_is_flagged_and_defined(struct flw_bed *bed)
{
    for (int mode = 0; mode < 2; mode++) {
        int32_t contexts[] = {40, 0, 70};
        struct fixture *fixture = make((fallow_chunk_mode)mode, 32, 4, 5);
        set(fixture, contexts, 3);
        FLW_EXPECT(bed, flags_after(bed, fixture) == 0, "flags without a cause");
        fixture->params.chunk_capacity = 2;
        FLW_EXPECT(bed, flags_after(bed, fixture) == FALLOW_FLAG_DROPPED, "no DROPPED");
        fixture->params.chunk_capacity = 5;
        fixture->params.token_capacity = 20;
        FLW_EXPECT(bed, flags_after(bed, fixture) == FALLOW_FLAG_CLAMPED, "no CLAMPED");
        contexts[1] = -6;
        set(fixture, contexts, 3);
        fixture->params.token_capacity = 32;
        FLW_EXPECT(bed, flags_after(bed, fixture) == FALLOW_FLAG_NEGATIVE, "no NEGATIVE");
        drop(fixture);
    }
}

static void a_workspace_without_a_page_for_each_plans_nothing(struct flw_bed *bed)
{
    static const int32_t contexts[] = {9, 9, 9};
    int64_t count = 0;
    struct fixture *fixture = make(FALLOW_CHUNK_UNIFORM, 11, 4, 3);
    set(fixture, contexts, 3);
    FLW_EXPECT(bed, flags_after(bed, fixture) == FALLOW_FLAG_DROPPED, "no DROPPED");
    FLW_EXPECT(bed, fixture->want[COUNT][0] == 0 && fixture->want[TOTALS][0] == 0, "chunks");
    FLW_EXPECT(bed,
               fallow_mla_chunk_count(&fixture->params, contexts, &count, NULL) ==
                   FALLOW_INVALID_ARGUMENT,
               "the host counts them");
    fixture->params.mode = FALLOW_CHUNK_PACKED;
    FLW_EXPECT(bed, flags_after(bed, fixture) == 0 && fixture->count == 3, "3 packed");
    drop(fixture);
}

static void the_longest_contexts_do_not_overflow(struct flw_bed *bed)
{
    static const int32_t contexts[] = {INT32_MAX, INT32_MAX};
    for (int mode = 0; mode < 2; mode++) {
        struct fixture *fixture = make((fallow_chunk_mode)mode, 1 << 28, 64, 2);
        int64_t count = 0, most = 0;
        int32_t cu[6], *buffers[3];
        set(fixture, contexts, 2);
        fixture->params.token_capacity = 0;
        upload(bed, fixture);
        for (int i = 0; i < 3; i++) {
            buffers[i] = flw_bed_buffer(bed, "table", sizeof cu);
        }
        launch(bed, fixture,
               (void *[TABLES]){buffers[0], buffers[1], buffers[2], NULL, NULL, NULL, NULL});
        flw_bed_read(bed, cu, buffers[2], sizeof cu);
        FLW_EXPECT(bed, cu[2] == 1 << 28 && cu[5] == 1 << 28, "totals %d, %d", cu[2], cu[5]);
        FLW_EXPECT(bed,
                   fallow_mla_chunk_count(&fixture->params, contexts, &count, &most) == FALLOW_OK,
                   "refused");
        FLW_EXPECT(bed, count == 16 && most == 1 << 28, "%lld chunks", (long long)count);
        drop(fixture);
    }
}

static void a_captured_plan_takes_its_lengths_from_the_device(struct flw_bed *bed)
{
    static const int32_t steps[][4] = {
        {90, 80, 70, 60}, {3, 0, 0, 1}, {0, 0, 0, 0}, {0, 64, 65, 1}};
    for (int mode = 0; mode < 2; mode++) {
        struct fixture *fixture = make((fallow_chunk_mode)mode, 64, 8, 8);
        void *outputs[TABLES], *out[TABLES];
        set(fixture, steps[0], 4);
        upload(bed, fixture);
        struct flw_bed_step step = step_of(bed, fixture);
        for (int i = 0; i < TABLES; i++) {
            outputs[i] = flw_bed_buffer(bed, step.names[i], step.buffer_bytes[i]);
            out[i] = flw_bed_host(step.buffer_bytes[i]);
        }
        struct flw_bed_graph *graph = flw_bed_capture(bed, launch, fixture, outputs);
        for (int k = 0; k < 4; k++) {
            set(fixture, steps[k], 4);
            flw_bed_write(bed, fixture->params.context_lengths, steps[k], 16);
            flw_bed_replay(bed, graph);
            for (int i = 0; i < TABLES; i++) {
                flw_bed_read(bed, out[i], outputs[i], step.buffer_bytes[i]);
            }
            expect(fixture);
            compare(bed, fixture, &step, out);
        }
        for (int i = 0; i < TABLES; i++) {
            free(out[i]);
        }
        drop(fixture);
    }
}

static void mistakes_are_refused_by_name(struct flw_bed *bed)
{
    fallow_chunk_plan_params good, bad;
    fallow_kernels *kernels = flw_bed_kernels(bed);
    fallow_stream stream = flw_bed_stream(bed);
    int32_t *memory = flw_bed_buffer(bed, "memory", 8192), contexts[4] = {1, 2, 3, 4};
    int64_t count = 0;
    fallow_chunk_plan_params_init(&good);
    good.batch = 4;
    good.chunk_capacity = 2;
    good.workspace_tokens = 64;
    good.page_size = 8;
    good.token_capacity = 64;
    good.context_lengths = memory;
    good.starts = memory + 64;
    good.lengths = memory + 128;
    good.cu_seqlens = memory + 192;
    good.token_to_seq = memory + 256;
#define REFUSED(change, word)                                                                      \
    bad = good;                                                                                    \
    change;                                                                                        \
    FLW_EXPECT_REFUSED(bed, fallow_mla_chunk_plan(kernels, &bad, stream), FALLOW_INVALID_ARGUMENT, \
                       word)
    REFUSED(bad.mode = (fallow_chunk_mode)2, "mode");
    REFUSED(bad.batch = 4097, "batch");
    REFUSED(bad.chunk_capacity = 0, "chunk_capacity");
    REFUSED(bad.workspace_tokens = 7, "workspace_tokens");
    REFUSED(bad.page_size = 0, "page_size");
    REFUSED(bad.token_capacity = -1, "token_capacity");
    REFUSED(bad.dcp_size = -1, "dcp_size");
    REFUSED(bad.dcp_size = 2; bad.dcp_rank = 2, "dcp_rank");
    REFUSED(bad.dcp_size = 2; bad.mode = FALLOW_CHUNK_PACKED, "dcp_size");
    REFUSED(bad.dcp_interleave = 65537, "dcp_interleave");
    REFUSED(bad.counts_every_request = 1; bad.mode = FALLOW_CHUNK_PACKED, "counts_every_request");
    REFUSED(bad.context_lengths = NULL, "context_lengths is NULL");
    REFUSED(bad.starts = NULL, "starts is NULL");
    REFUSED(bad.lengths = NULL, "lengths is NULL");
    REFUSED(bad.cu_seqlens = NULL, "cu_seqlens is NULL");
    REFUSED(bad.token_to_seq = NULL, "token_to_seq is NULL");
    REFUSED(bad.starts = memory, "context_lengths and starts overlap");
    REFUSED(bad.totals = memory + 193, "cu_seqlens and totals overlap");
    REFUSED(bad.lengths = (int32_t *)(void *)((char *)memory + 514), "lengths is not aligned");
#undef REFUSED
    bad = good;
    bad.page_size = 0;
    FLW_EXPECT(bed,
               fallow_mla_chunk_count(&bad, contexts, &count, NULL) == FALLOW_INVALID_ARGUMENT &&
                   fallow_mla_chunk_count(&good, NULL, &count, NULL) == FALLOW_INVALID_ARGUMENT &&
                   fallow_mla_chunk_count(&good, contexts, NULL, NULL) == FALLOW_INVALID_ARGUMENT,
               "the host's count");
}

int main(int argc, char **argv)
{
    static const struct flw_bed_test tests[] = {
        FLW_BED_TEST(the_worked_examples_are_exact),
        FLW_BED_TEST(deepseek_contexts_take_the_known_number_of_chunks),
        FLW_BED_TEST(random_contexts_are_exact_in_both_modes),
        FLW_BED_TEST(the_largest_batch_is_exact),
        FLW_BED_TEST(ranks_share_contexts_and_have_the_same_chunks),
        FLW_BED_TEST(what_is_out_of_bounds_is_flagged_and_defined),
        FLW_BED_TEST(a_workspace_without_a_page_for_each_plans_nothing),
        FLW_BED_TEST(the_longest_contexts_do_not_overflow),
        FLW_BED_TEST(a_captured_plan_takes_its_lengths_from_the_device),
        FLW_BED_TEST(mistakes_are_refused_by_name),
    };
    return flw_bed_main(argc, argv, tests, sizeof tests / sizeof *tests);
}

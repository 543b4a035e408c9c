/* SPDX-License-Identifier: Apache-2.0 */
#include "fallow/mla.h"
#include "kernel/call.h"

#define MOST_BATCH 4096

FLW_MODULE(chunk_plan, fallow_mla_chunk_plan, fallow_chunk_plan, FLW_IN(context_lengths),
           FLW_OUT(starts), FLW_OUT(lengths), FLW_OUT(cu_seqlens), FLW_OUT_MAYBE(totals),
           FLW_OUT_MAYBE(max_lengths), FLW_OUT_MAYBE(chunk_count), FLW_OUT(token_to_seq),
           FLW_OUT_MAYBE(flags), FLW_ENUM(mode, FALLOW_CHUNK_PACKED),
           FLW_COUNT(batch, 0, MOST_BATCH), FLW_COUNT(chunk_capacity, 1, 65536),
           FLW_COUNT(workspace_tokens, 8, 1 << 28), FLW_COUNT(page_size, 1, 65536),
           FLW_COUNT(token_capacity, 0, 1 << 28), FLW_COUNT(dcp_size, 0, 4096),
           FLW_COUNT(dcp_rank, 0, 0), FLW_COUNT(dcp_interleave, 0, 65536),
           FLW_FLAG(counts_every_request))

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
    struct flw_call call;
    fallow_chunk_plan_params params;
    int32_t contexts[MOST_BATCH];
    int32_t *want[TABLES]; /* [chunk_capacity, ...] */
    int64_t count;         /* of chunks, whatever the capacity */
    int64_t most_tokens;
};

static struct fixture *make(struct flw_bed *bed, fallow_chunk_mode mode, int32_t workspace,
                            int32_t page, int32_t capacity)
{
    struct fixture *fixture = flw_bed_memory(bed, sizeof *fixture);
    flw_call_init(bed, &fixture->call, chunk_plan(), &fixture->params);
    fixture->params.mode = mode;
    fixture->params.workspace_tokens = workspace;
    fixture->params.page_size = page;
    fixture->params.chunk_capacity = capacity;
    fixture->params.token_capacity = workspace;
    return fixture;
}

static struct fixture *set_batch(struct fixture *fixture, int32_t batch)
{
    fixture->params.batch = batch;
    flw_call_bind(&fixture->call, "context_lengths", fixture->contexts, (size_t)batch, 4);
    return fixture;
}

static struct fixture *set(struct fixture *fixture, const int32_t *contexts, int32_t batch)
{
    memcpy(fixture->contexts, contexts, (size_t)batch * 4);
    return set_batch(fixture, batch);
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
        fixture->want[i] = flw_bed_memory(fixture->call.bed, (size_t)counts[i] * 4);
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

static void compare(struct fixture *fixture)
{
    for (size_t i = 0; i < fixture->call.step.output_count; i++) {
        flw_call_expect(&fixture->call, fixture->call.step.names[i], fixture->want[i]);
    }
}

/* Compare the host's count with the expected one. */
static void check_count(struct flw_bed *bed, const struct fixture *fixture, int64_t want_count,
                        int64_t want_most)
{
    int64_t count = -1, most = -1;
    fallow_status status =
        fallow_mla_chunk_count(&fixture->params, fixture->contexts, &count, &most);
    FLW_EXPECT(bed, status == FALLOW_OK, "count: %s", fallow_status_name(status));
    FLW_EXPECT(bed, count == want_count, "the host counts %lld chunks, expected %lld",
               (long long)count, (long long)want_count);
    FLW_EXPECT(bed, want_most < 0 || most == want_most,
               "the host has %lld tokens at most, expected %lld", (long long)most,
               (long long)want_most);
}

/* Prove a case with these flags and compare with the oracle. */
static void check(struct flw_bed *bed, struct fixture *fixture, int32_t flags)
{
    expect(fixture);
    fixture->call.want_flags = flags;
    flw_call_prove(&fixture->call);
    compare(fixture);
}

/* Prove a case without flags; the host counts as many chunks. */
static void check_both(struct flw_bed *bed, struct fixture *fixture, int32_t flags)
{
    check(bed, fixture, flags);
    bool fits = fixture->count <= fixture->params.chunk_capacity;
    check_count(bed, fixture, fixture->count, fits ? fixture->most_tokens : -1);
}

FLW_TEST(the_worked_examples_are_exact)
{
    static const int32_t contexts[] = {5, 0, 12};
    static const int32_t starts[][6] = {{0, 0, 0, 8, 8, 8}, {0, 0, 0, 0, 0, 8}};
    static const int32_t lengths[] = {5, 0, 8, 0, 0, 4}, cu[] = {0, 5, 5, 13, 0, 0, 0, 4};
    for (int mode = 0; mode < 2; mode++) {
        struct fixture *fixture = set(make(bed, (fallow_chunk_mode)mode, 16, 4, 2), contexts, 3);
        check_both(bed, fixture, 0);
        flw_call_expect(&fixture->call, "starts", starts[mode]);
        flw_call_expect(&fixture->call, "lengths", lengths);
        flw_call_expect(&fixture->call, "cu_seqlens", cu);
        FLW_EXPECT(bed, fixture->count == 2 && fixture->most_tokens == 13, "count");
    }
}

/* Chunk tokens per request are 65536, 16384, 8192, 1024 and 128 for these batches. */
FLW_TEST(deepseek_contexts_take_the_known_number_of_chunks)
{
    static const int32_t batches[] = {1, 4, 8, 64, 512}, contexts[] = {8192, 32768, 131072};
    static const int64_t chunks[5][3] = {
        {1, 1, 2}, {1, 2, 8}, {1, 4, 16}, {8, 32, 128}, {64, 256, 1024}};
    for (int k = 0; k < 15; k++) {
        struct fixture *fixture = make(bed, FALLOW_CHUNK_UNIFORM, 65536, 64, 16);
        int32_t batch = fixture->params.batch = batches[k / 3], context = contexts[k % 3];
        int64_t tokens = (int64_t)batch * context;
        for (int32_t b = 0; b < batch; b++) {
            fixture->contexts[b] = context;
        }
        check_count(bed, fixture, chunks[k / 3][k % 3], tokens < 65536 ? tokens : 65536);
        fixture->params.mode = FALLOW_CHUNK_PACKED; /* never more than the tokens need */
        check_count(bed, fixture, (tokens + 65535) / 65536, -1);
    }
}

FLW_TEST(random_contexts_are_exact_in_both_modes)
{
    static const int32_t batches[] = {0, 1, 2, 7, 64, 513}, pages[] = {1, 3, 16, 64};
    for (int k = 0; k < 48; k++) {
        int32_t batch = batches[k / 2 % 6], page = pages[k / 12];
        int32_t workspace = batch * page + page + (int32_t)flw_bed_random_below(bed, 700);
        struct fixture *fixture =
            make(bed, (fallow_chunk_mode)(k % 2), workspace, page, k % 3 == 0 ? 3 : 12);
        fixture->params.token_capacity = k % 5 == 0 ? 0 : workspace;
        fixture->params.counts_every_request = k % 4 == 2;
        for (int32_t b = 0; b < batch; b++) {
            fixture->contexts[b] =
                flw_bed_random_below(bed, 3) == 0 ? 0 : (int32_t)flw_bed_random_below(bed, 300);
        }
        expect(set_batch(fixture, batch));
        bool fits = fixture->count <= fixture->params.chunk_capacity;
        check_both(bed, fixture, fits ? 0 : FALLOW_FLAG_DROPPED);
    }
}

FLW_TEST(the_largest_batch_is_exact)
{
    for (int mode = 0; mode < 2; mode++) {
        struct fixture *fixture = make(bed, (fallow_chunk_mode)mode, 65536, 16, 3);
        for (int32_t b = 0; b < MOST_BATCH; b++) {
            fixture->contexts[b] = (int32_t)flw_bed_random_below(bed, 48);
        }
        check_both(bed, set_batch(fixture, MOST_BATCH), 0);
    }
}

FLW_TEST(ranks_share_contexts_and_have_the_same_chunks)
{
    static const int32_t contexts[] = {100, 3, 0, 64, 65, 1, 999};
    for (int32_t interleave = 1; interleave <= 16; interleave += 15) {
        int32_t sum = 0;
        for (int32_t rank = 0; rank < 4; rank++) {
            struct fixture *fixture = make(bed, FALLOW_CHUNK_UNIFORM, 256, 8, 12);
            fixture->params.dcp_size = 4;
            fixture->params.dcp_rank = rank;
            fixture->params.dcp_interleave = interleave;
            check_both(bed, set(fixture, contexts, 7), 0);
            FLW_EXPECT(bed, fixture->count == 7, "rank %d has %lld chunks", rank,
                       (long long)fixture->count);
            for (int i = 0; i < 12; i++) {
                sum += fixture->want[TOTALS][i];
            }
        }
        FLW_EXPECT(bed, sum == 1232, "the ranks have %d tokens in all", sum);
    }
}

FLW_TEST(values_out_of_bounds_are_flagged_and_defined)
{
    static const int32_t cases[][4] = {/* chunks, tokens, a context, flags */
                                       {5, 32, 0, 0},
                                       {2, 32, 0, FALLOW_FLAG_DROPPED},
                                       {5, 20, 0, FALLOW_FLAG_CLAMPED},
                                       {5, 32, -6, FALLOW_FLAG_NEGATIVE}};
    for (int k = 0; k < 8; k++) {
        struct fixture *fixture = make(bed, (fallow_chunk_mode)(k / 4), 32, 4, cases[k % 4][0]);
        fixture->params.token_capacity = cases[k % 4][1];
        check(bed, set(fixture, (int32_t[]){40, cases[k % 4][2], 70}, 3), cases[k % 4][3]);
    }
}

FLW_TEST(a_workspace_without_a_page_for_each_plans_nothing)
{
    int64_t count = 0;
    struct fixture *fixture =
        set(make(bed, FALLOW_CHUNK_UNIFORM, 11, 4, 3), (int32_t[]){9, 9, 9}, 3);
    check(bed, fixture, FALLOW_FLAG_DROPPED);
    FLW_EXPECT(bed, fixture->want[COUNT][0] == 0 && fixture->want[TOTALS][0] == 0, "chunks");
    FLW_EXPECT(bed,
               fallow_mla_chunk_count(&fixture->params, fixture->contexts, &count, NULL) ==
                   FALLOW_INVALID_ARGUMENT,
               "the host counts them");
    fixture->params.mode = FALLOW_CHUNK_PACKED;
    check(bed, fixture, 0);
    FLW_EXPECT(bed, fixture->count == 3, "3 packed");
}

FLW_TEST(the_longest_contexts_do_not_overflow)
{
    static const int32_t contexts[] = {INT32_MAX, INT32_MAX};
    for (int mode = 0; mode < 2; mode++) {
        struct fixture *fixture =
            set(make(bed, (fallow_chunk_mode)mode, 1 << 28, 64, 2), contexts, 2);
        fixture->params.token_capacity = 0;
        fixture->call.want_flags = FALLOW_FLAG_DROPPED;
        flw_call_run(&fixture->call);
        const int32_t *cu = flw_call_out(&fixture->call, "cu_seqlens");
        FLW_EXPECT(bed, cu[2] == 1 << 28 && cu[5] == 1 << 28, "totals %d, %d", cu[2], cu[5]);
        check_count(bed, fixture, 16, 1 << 28);
    }
}

FLW_TEST(a_captured_plan_takes_its_lengths_from_the_device)
{
    static const int32_t steps[][4] = {
        {90, 80, 70, 60}, {3, 0, 0, 1}, {0, 0, 0, 0}, {0, 64, 65, 1}};
    for (int mode = 0; mode < 2; mode++) {
        struct fixture *fixture = make(bed, (fallow_chunk_mode)mode, 64, 8, 8);
        flw_call_capture(&set(fixture, steps[0], 4)->call);
        for (int k = 0; k < 4; k++) {
            expect(set(fixture, steps[k], 4));
            flw_call_replay(&fixture->call);
            compare(fixture);
        }
    }
}

FLW_TEST(mistakes_are_refused_by_name)
{
    int64_t count = 0;
    struct fixture *fixture =
        set(make(bed, FALLOW_CHUNK_UNIFORM, 64, 8, 2), (int32_t[]){1, 2, 3, 4}, 4);
    FLW_CALL_REFUSE(&fixture->call, "dcp_size=2 dcp_rank=2: dcp_rank",
                    "dcp_size=2 mode=1: dcp_size",
                    "counts_every_request=1 mode=1: counts_every_request",
                    "totals=@cu_seqlens+4: cu_seqlens and totals overlap");
    FLW_EXPECT(bed,
               fallow_mla_chunk_count(&fixture->params, NULL, &count, NULL) ==
                       FALLOW_INVALID_ARGUMENT &&
                   fallow_mla_chunk_count(&fixture->params, fixture->contexts, NULL, NULL) ==
                       FALLOW_INVALID_ARGUMENT,
               "the host's count with NULL");
    fixture->params.page_size = 0;
    FLW_EXPECT(bed,
               fallow_mla_chunk_count(&fixture->params, fixture->contexts, &count, NULL) ==
                   FALLOW_INVALID_ARGUMENT,
               "the host's count of pages of 0");
}

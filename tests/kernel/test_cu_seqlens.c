/* SPDX-License-Identifier: Apache-2.0 */
#include "fallow/attention.h"
#include "kernel/call.h"

FLW_MODULE(cu_seqlens, fallow_attention_cu_seqlens, fallow_cu_seqlens, FLW_IN(lengths),
           FLW_IN_MAYBE(delta), FLW_IN_MAYBE(valid_count), FLW_OUT_OVER(cu_seqlens, " lengths "),
           FLW_OUT_MAYBE(total), FLW_OUT_MAYBE(max_length), FLW_OUT_MAYBE(flags),
           FLW_COUNT(batch, 0, 65536), FLW_COUNT(rows, 0, 65535), FLW_COUNT(round_to, 0, INT32_MAX),
           FLW_FLAG(exclusive), FLW_DTYPE(lengths_dtype, FLW_INTEGERS),
           FLW_DTYPE(cu_dtype, FLW_INTEGERS))

struct fixture {
    struct flw_call call;
    fallow_cu_seqlens_params params;
    int64_t *lengths; /* [rows, batch] */
    int32_t delta, valid;
};

static struct fixture *make(struct flw_bed *bed, int32_t batch, int32_t rows, int64_t longest)
{
    struct fixture *fixture = flw_bed_memory(bed, sizeof *fixture);
    struct flw_call *call = &fixture->call;
    flw_call_init(bed, call, cu_seqlens(), &fixture->params);
    fixture->params.batch = batch;
    fixture->params.rows = rows;
    fixture->params.round_to = 1;
    fixture->valid = batch;
    fixture->lengths = flw_call_draw_typed(call, "lengths", (size_t)batch * (size_t)rows,
                                           &fixture->params.lengths_dtype, longest + 1);
    flw_call_bind(call, "delta", &fixture->delta, 1, 4);
    flw_call_bind(call, "valid_count", &fixture->valid, 1, 4);
    return fixture;
}

static void expect_at(struct fixture *fixture, const char *name, int64_t i, fallow_dtype dtype,
                      int64_t want)
{
    size_t each = fallow_dtype_bytes(dtype);
    int64_t largest = dtype == FALLOW_I32 ? INT32_MAX : INT64_MAX, got = 0;
    memcpy(&got, (char *)flw_call_out(&fixture->call, name) + (size_t)i * each, each);
    FLW_EXPECT(fixture->call.bed, got == (want < largest ? want : largest),
               "%s[%lld] of batch %d is %lld, expected %lld", name, (long long)i,
               fixture->params.batch, (long long)got, (long long)want);
}

/* An independent oracle: sums from scratch for every element. */
static void compare(struct fixture *fixture)
{
    const fallow_cu_seqlens_params *params = &fixture->params;
    int64_t width = params->batch + (params->exclusive ? 0 : 1);
    for (int64_t row = 0; row < params->rows; row++) {
        int64_t sum = 0, longest = 0;
        for (int64_t i = 0; i <= params->batch; i++) {
            if (i < width) {
                expect_at(fixture, "cu_seqlens", row * width + i, params->cu_dtype, sum);
            }
            int64_t s = 0;
            if (i < params->batch && i < fixture->valid) {
                s = fixture->lengths[row * params->batch + i] + fixture->delta;
            }
            s = s > 0 ? s : 0;
            longest = s > longest ? s : longest;
            while (s % params->round_to != 0) {
                s++;
            }
            sum += s;
        }
        expect_at(fixture, "total", row, params->cu_dtype, sum);
        expect_at(fixture, "max_length", row, FALLOW_I32, longest);
    }
}

static void check(struct flw_bed *bed, struct fixture *fixture)
{
    flw_call_prove(&fixture->call);
    compare(fixture);
}

FLW_TEST(sums_are_exact_for_every_batch)
{
    static const int32_t batches[] = {0, 1, 2, 7, 8, 64, 256, 512, 4095, 4096, 4097, 65536};
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        check(bed, make(bed, batches[i], 1, batches[i] < 5000 ? 131072 : 30000));
    }
}

FLW_TEST(the_tail_is_flat_and_delta_counts_for_valid_rows_only)
{
    for (int32_t valid = -1; valid <= 9; valid++) {
        struct fixture *fixture = make(bed, 8, 3, 50);
        fixture->delta = 5;
        fixture->valid = valid;
        fixture->params.round_to = valid % 2 == 0 ? 128 : 1;
        check(bed, fixture);
    }
}

FLW_TEST(types_forms_and_rows_agree)
{
    for (int bits = 0; bits < 8; bits++) {
        struct fixture *fixture = make(bed, 100, 4, 70000);
        for (int i = 0; i < 400; i++) {
            fixture->lengths[i] += 3; /* none is negative with delta */
        }
        fixture->delta = -3;
        fixture->params.lengths_dtype = (bits & 1) != 0 ? FALLOW_I64 : FALLOW_I32;
        fixture->params.cu_dtype = (bits & 2) != 0 ? FALLOW_I64 : FALLOW_I32;
        fixture->params.exclusive = (bits & 4) != 0;
        check(bed, fixture);
    }
}

FLW_TEST(values_out_of_bounds_are_flagged_and_defined)
{
    struct fixture *fixture = make(bed, 4, 1, 10);
    check(bed, fixture);
    fixture->lengths[2] = -7;
    fixture->call.want_flags = FALLOW_FLAG_NEGATIVE;
    check(bed, fixture);
    fixture->lengths[1] = fixture->lengths[2] = 2000000000;
    fixture->call.want_flags = FALLOW_FLAG_OVERFLOW;
    check(bed, fixture);
}

FLW_TEST(lengths_may_be_where_the_sums_are)
{
    struct fixture *fixture = make(bed, 1000, 1, 500);
    int32_t *sums = flw_bed_memory(bed, 4004);
    (void)flw_call_need(&fixture->call);
    flw_call_give(&fixture->call);
    void *buffer = flw_bed_buffer(bed, "lengths and sums", 4004);
    flw_bed_write_ints(bed, buffer, fixture->lengths, 1000, FALLOW_I32);
    fixture->params.lengths = buffer;
    flw_call_launch(&fixture->call, (void *[]){buffer, NULL, NULL});
    flw_bed_read(bed, sums, buffer, 4004);
    int64_t sum = 0;
    for (int i = 0; i < 1000; i++) {
        sum += fixture->lengths[i];
        FLW_EXPECT(bed, sums[i + 1] == sum && sums[0] == 0, "element %d", i + 1);
    }
}

FLW_TEST(a_graph_takes_count_delta_and_lengths_from_the_device)
{
    struct fixture *fixture = make(bed, 512, 1, 131072);
    flw_call_capture(&fixture->call);
    for (fixture->valid = 512; fixture->valid >= 0; fixture->valid -= 128) {
        for (int i = 0; i < 512; i++) {
            fixture->lengths[i] = flw_bed_random_below(bed, 100 + fixture->valid);
        }
        fixture->delta = fixture->valid % 256 == 0 ? 1 : 0;
        flw_call_replay(&fixture->call);
        compare(fixture);
    }
}

FLW_TEST(mistakes_are_refused_by_name)
{
    FLW_CALL_REFUSE(&make(bed, 16, 1, 50)->call,
                    "total=@cu_seqlens+4: cu_seqlens and total overlap",
                    "cu_seqlens=@lengths lengths_dtype=I64: lengths and cu_seqlens overlap");
}

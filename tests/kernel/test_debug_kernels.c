/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "common/number.h"
#include "fallow/debug_kernels.h"
#include "kernel/call.h"

FLW_MODULE(poison_module, fallow_debug_poison, fallow_poison, FLW_OUT_BYTES(memory),
           FLW_COUNT(bytes, 0, (int64_t)1 << 42))
FLW_MODULE(validate_module, fallow_debug_validate, fallow_validate, FLW_IN(data),
           FLW_IN_MAYBE(valid_rows), FLW_OUT(report), FLW_COUNT(rows, 0, INT32_MAX),
           FLW_COUNT(width, 1, (int64_t)1 << 40), FLW_STRIDE(stride, 16), FLW_FLAG(is_guard),
           FLW_DTYPE(dtype, (1 << (FALLOW_E4M3 + 1)) - 1))
FLW_MODULE(validate_ids_module, fallow_debug_validate_ids, fallow_validate_ids, FLW_IN(ids),
           FLW_IN_MAYBE(valid_rows), FLW_OUT(report), FLW_COUNT(rows, 0, INT32_MAX),
           FLW_COUNT(top_k, 1, 64), FLW_COUNT(id_count, 0, INT32_MAX), FLW_STRIDE(stride, 8))

static void poison(struct flw_bed *bed, void *memory, size_t bytes, unsigned char pattern)
{
    fallow_poison_params params;
    fallow_poison_params_init(&params);
    params.memory = memory;
    params.bytes = (int64_t)bytes;
    params.pattern = pattern;
    FLW_LAUNCH(bed, fallow_debug_poison, &params);
}

static fallow_validate_report *new_report(struct flw_bed *bed)
{
    fallow_validate_report zeros = {0};
    return flw_bed_upload(bed, "report", &zeros, sizeof zeros);
}

/* Return the report of one validation, added to zeros. */
static fallow_validate_report validate(struct flw_bed *bed, fallow_validate_params params)
{
    fallow_validate_report report;
    params.report = new_report(bed);
    FLW_LAUNCH(bed, fallow_debug_validate, &params);
    flw_bed_read(bed, &report, params.report, sizeof report);
    return report;
}

static fallow_validate_report validate_ids(struct flw_bed *bed, fallow_validate_ids_params params)
{
    fallow_validate_report report;
    params.report = new_report(bed);
    FLW_LAUNCH(bed, fallow_debug_validate_ids, &params);
    flw_bed_read(bed, &report, params.report, sizeof report);
    return report;
}

FLW_TEST(every_byte_and_no_other_is_filled)
{
    static const size_t sizes[] = {0, 1, 5, 15, 16, 17, 31, 33, 4096, 4111, 70001};
    unsigned char before[70001 + 64], after[70001 + 64];
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (size_t begin = 0; begin < 32; begin += s % 2 == 0 ? 1 : 7) {
            unsigned char pattern = s % 3 == 0 ? 0x7f : s % 3 == 1 ? 0 : 0x11; /* 0: the default */
            size_t total = sizes[s] + 64;
            memset(before, 0x33, total);
            unsigned char *memory = flw_bed_upload(bed, "memory", before, total);
            poison(bed, memory + begin, sizes[s], pattern);
            flw_bed_read(bed, after, memory, total);
            memset(before + begin, pattern == 0 ? 0xff : pattern, sizes[s]);
            FLW_EXPECT(bed, memcmp(before, after, total) == 0, "%zu bytes from %zu on", sizes[s],
                       begin);
        }
    }
}

/* The oracle: an element's bytes, one by one. */
static bool is_all(const unsigned char *element, size_t each, unsigned char pattern)
{
    for (size_t i = 0; i < each; i++) {
        if (element[i] != pattern) {
            return false;
        }
    }
    return true;
}

static bool is_nan(const unsigned char *element, fallow_dtype dtype)
{
    return dtype >= FALLOW_F32 && isnan(flw_number_widen(element, dtype));
}

static void count(uint64_t *pair, uint64_t offset)
{
    pair[0]++;
    pair[1] = pair[1] == 0 ? offset + 1 : pair[1];
}

static fallow_validate_report expect(const fallow_validate_params *params,
                                     const unsigned char *data, int64_t valid)
{
    fallow_validate_report report = {0};
    size_t each = fallow_dtype_bytes(params->dtype);
    unsigned char pattern = params->pattern == 0 ? 0xff : params->pattern;
    int64_t stride = params->stride == 0 ? params->width : params->stride;
    for (int64_t row = 0; row < params->rows && row < valid; row++) {
        for (int64_t i = 0; i < params->width; i++) {
            uint64_t offset = (uint64_t)(row * stride + i) * each;
            bool is_poison = is_all(data + offset, each, pattern);
            if (params->is_guard && !is_poison) {
                count(&report.damage_count, offset);
            }
            if (!params->is_guard && is_poison) {
                count(&report.poison_count, offset);
            }
            if (!params->is_guard && is_nan(data + offset, params->dtype)) {
                count(&report.nan_count, offset);
            }
        }
    }
    return report;
}

/* Elements of all kinds: poison, almost poison, NaN of several forms, infinities, others. */
static void fill(struct flw_bed *bed, unsigned char *data, size_t elements, size_t each,
                 unsigned char pattern)
{
    static const uint32_t words[] = {0x7f800000, 0xff800001, 0x7fc00000, 0x7c007c01,
                                     0xfc00ffff, 0x7f7e7ffe, 0x00000000, 0x80000001};
    for (size_t i = 0; i < elements; i++) {
        uint64_t raw = flw_bed_random(bed);
        int64_t kind = flw_bed_random_below(bed, 6);
        if (kind < 2) {
            raw = words[flw_bed_random_below(bed, 8)] >> (each == 2 ? 16 * (i % 2) : 0);
        } else if (kind == 2) {
            memset(&raw, pattern, sizeof raw);
            raw ^= i % 2 == 0 ? 0 : 1ull << flw_bed_random_below(bed, (int64_t)each * 8);
        }
        memcpy(data + i * each, &raw, each);
    }
}

FLW_TEST(poison_nan_and_damage_are_counted_exactly)
{
    static const int64_t shapes[][3] = {/* rows, width, stride */
                                        {0, 5, 0},   {1, 1, 0},   {1, 1027, 0}, {9, 33, 0},
                                        {9, 33, 40}, {5, 16, 17}, {300, 1, 0}};
    for (int dtype = FALLOW_I32; dtype <= FALLOW_E4M3; dtype++) {
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            fallow_validate_params params;
            size_t each = fallow_dtype_bytes((fallow_dtype)dtype);
            int64_t stride = shapes[s][2] == 0 ? shapes[s][1] : shapes[s][2];
            size_t bytes = (size_t)(shapes[s][0] * stride) * each;
            int32_t valid = (int32_t)flw_bed_random_below(bed, shapes[s][0] + 3) - 1;
            fallow_validate_params_init(&params);
            params.rows = shapes[s][0];
            params.width = shapes[s][1];
            params.stride = shapes[s][2];
            params.dtype = (fallow_dtype)dtype;
            params.pattern = s % 2 == 0 ? 0 : 0x7f;
            params.is_guard = s == 3;
            unsigned char *data = flw_bed_memory(bed, bytes + 8);
            fill(bed, data, bytes / each, each, params.pattern == 0 ? 0xff : params.pattern);
            for (size_t shift = 0; shift <= each; shift += each) { /* not a multiple of 16 bytes */
                char *at = flw_bed_buffer(bed, "data", bytes + 8);
                flw_bed_write(bed, at + shift, data, bytes);
                params.data = at + shift;
                params.valid_rows =
                    shift == 0 ? flw_bed_upload(bed, "valid_rows", &valid, 4) : NULL;
                fallow_validate_report got = validate(bed, params);
                fallow_validate_report want =
                    expect(&params, data, shift == 0 ? valid : params.rows);
                FLW_EXPECT(bed, memcmp(&got, &want, sizeof got) == 0,
                           "dtype %d, shape %zu: poison %llu at %llu, NaN %llu, damage %llu", dtype,
                           s, (unsigned long long)got.poison_count,
                           (unsigned long long)got.poison_first, (unsigned long long)got.nan_count,
                           (unsigned long long)got.damage_count);
            }
        }
    }
}

/* A step that leaves element 100 of an output unwritten: one pattern shows a lost -1, the other a lost 0. */
FLW_TEST(a_forgotten_element_is_found_by_its_offset)
{
    int32_t values[200];
    fallow_validate_params params;
    fallow_validate_params_init(&params);
    char *output = flw_bed_buffer(bed, "output", sizeof values);
    memset(values, 0xff, sizeof values); /* the expected value is -1 */
    params.data = output;
    params.rows = 1;
    params.width = 200;
    for (int pass = 0; pass < 2; pass++) {
        params.pattern = pass == 0 ? 0xff : 0x7f;
        poison(bed, output, sizeof values, params.pattern);
        flw_bed_write(bed, output, values, 400);
        flw_bed_write(bed, output + 404, values, 396);
        fallow_validate_report report = validate(bed, params);
        FLW_EXPECT(bed, report.poison_count == (pass == 0 ? 200 : 1), "pass %d: %llu", pass,
                   (unsigned long long)report.poison_count);
        FLW_EXPECT(bed, report.poison_first == (pass == 0 ? 1 : 401), "pass %d: first %llu", pass,
                   (unsigned long long)report.poison_first);
    }
}

FLW_TEST(a_guard_between_two_buffers_tells_its_damage)
{
    fallow_validate_params params;
    fallow_validate_params_init(&params);
    char *memory = flw_bed_buffer(bed, "memory", 768);
    poison(bed, memory, 768, 0x7f);
    params.data = memory + 256;
    params.rows = 1;
    params.width = 256;
    params.dtype = FALLOW_U8;
    params.pattern = 0x7f;
    params.is_guard = 1;
    FLW_EXPECT(bed, validate(bed, params).damage_count == 0, "damage without a cause");
    flw_bed_write(bed, memory + 250, "overrunning", 11);
    fallow_validate_report report = validate(bed, params);
    FLW_EXPECT(bed, report.damage_count == 5 && report.damage_first == 1, "%llu damaged from %llu",
               (unsigned long long)report.damage_count, (unsigned long long)report.damage_first);
}

FLW_TEST(counts_of_several_calls_add_up)
{
    fallow_validate_params params;
    fallow_validate_report report;
    float values[8] = {0, 1, 2, NAN, 4, 5, NAN, NAN};
    fallow_validate_params_init(&params);
    params.report = new_report(bed);
    params.rows = 1;
    params.dtype = FALLOW_F32;
    char *data = flw_bed_upload(bed, "data", values, sizeof values);
    for (int64_t part = 1; part >= 0; part--) { /* the later half first: the least offset stays */
        params.data = data + part * 16;
        params.width = 4;
        FLW_LAUNCH(bed, fallow_debug_validate, &params);
    }
    flw_bed_read(bed, &report, params.report, sizeof report);
    FLW_EXPECT(bed, report.nan_count == 3 && report.nan_first == 9, "%llu NaN from %llu",
               (unsigned long long)report.nan_count, (unsigned long long)report.nan_first);
    FLW_EXPECT(bed, report.poison_count == 0, "poison without a cause");
}

FLW_TEST(ids_are_in_range_and_once_in_a_row)
{
    static const int32_t top_ks[] = {1, 2, 6, 8, 64};
    for (int k = 0; k < 5; k++) {
        for (int round = 0; round < 4; round++) {
            int32_t top_k = top_ks[k], rows = round == 0 ? 0 : 57, valid = round == 3 ? 23 : rows;
            int64_t stride = round == 2 ? top_k + 3 : top_k;
            fallow_validate_report want = {0};
            fallow_validate_ids_params params;
            int32_t *ids = flw_bed_memory(bed, (size_t)(rows * stride) * 4);
            for (int64_t i = 0; i < rows * stride; i++) {
                ids[i] = (int32_t)flw_bed_random_below(bed, 200) - 3;
            }
            for (int64_t row = 0; row < valid; row++) {
                for (int64_t j = 0; j < top_k; j++) {
                    const int32_t *id = &ids[row * stride + j];
                    bool is_double = false;
                    for (const int32_t *other = &ids[row * stride]; other < id; other++) {
                        is_double |= *other == *id;
                    }
                    if (is_double && *id != -1) {
                        count(&want.double_count, (uint64_t)(row * stride + j) * 4);
                    }
                    if (*id != -1 && (*id < 0 || *id >= 190)) {
                        count(&want.range_count, (uint64_t)(row * stride + j) * 4);
                    }
                }
            }
            fallow_validate_ids_params_init(&params);
            params.ids = flw_bed_upload(bed, "ids", ids, (size_t)(rows * stride) * 4);
            params.valid_rows = flw_bed_upload(bed, "valid_rows", &valid, 4);
            params.rows = rows;
            params.top_k = top_k;
            params.stride = stride;
            params.id_count = 190;
            fallow_validate_report got = validate_ids(bed, params);
            FLW_EXPECT(bed, memcmp(&got, &want, sizeof got) == 0,
                       "top_k %d, round %d: range %llu, double %llu", top_k, round,
                       (unsigned long long)got.range_count, (unsigned long long)got.double_count);
        }
    }
}

/* A routing kernel that writes the row's flat index through a second name of the ids: element (t, j)
 * becomes j tokens + t. Poison sees nothing, every byte is written. */
FLW_TEST(ids_that_a_second_name_overwrote_are_found)
{
    enum {
        TOKENS = 32,
        TOP_K = 8,
        EXPERTS = 128
    };
    int32_t ids[TOKENS * TOP_K];
    fallow_validate_ids_params params;
    fallow_validate_params scan;
    for (int i = 0; i < TOKENS * TOP_K; i++) {
        ids[i] = i % TOP_K * TOKENS + i / TOP_K;
    }
    fallow_validate_ids_params_init(&params);
    params.ids = flw_bed_upload(bed, "topk_ids", ids, sizeof ids);
    params.rows = TOKENS;
    params.top_k = TOP_K;
    params.id_count = EXPERTS;
    fallow_validate_report report = validate_ids(bed, params);
    FLW_EXPECT(bed, report.range_count == 128 && report.range_first == 17,
               "%llu out of range from %llu", (unsigned long long)report.range_count,
               (unsigned long long)report.range_first);
    fallow_validate_params_init(&scan);
    scan.data = params.ids;
    scan.rows = TOKENS;
    scan.width = TOP_K;
    FLW_EXPECT(bed, validate(bed, scan).poison_count == 0, "poison should not see it");
}

static void clear_report(struct flw_call *call, void *const outputs[])
{
    flw_bed_write(call->bed, outputs[0], &(fallow_validate_report){0},
                  sizeof(fallow_validate_report));
}

FLW_TEST(queries_count_bytes_and_mistakes_are_refused_by_name)
{
    struct flw_call call;
    fallow_poison_params fill;
    flw_call_init(bed, &call, poison_module(), &fill);
    fill.bytes = 1000;
    fallow_workspace_need need = flw_call_need(&call);
    FLW_EXPECT(bed, need.write_bytes == 1000 && need.read_bytes == 0, "poison");
    FLW_CALL_REFUSE(&call, "memory=NULL bytes=1: memory is NULL");
    fallow_validate_params params;
    flw_call_init(bed, &call, validate_module(), &params);
    call.before = clear_report;
    flw_call_input(&call, "data", 160, 2);
    params.rows = 10;
    params.width = 7;
    params.stride = 16;
    params.dtype = FALLOW_BF16;
    need = flw_call_need(&call);
    FLW_EXPECT(bed, need.read_bytes == 140 && need.launch_count == 1, "validate");
    params.width = 16;
    FLW_CALL_REFUSE(&call, "data=@report+2: data and report overlap");
    fallow_validate_ids_params ids;
    flw_call_init(bed, &call, validate_ids_module(), &ids);
    call.before = clear_report;
    flw_call_input(&call, "ids", 80, 4);
    ids.rows = 10;
    ids.top_k = 8;
    need = flw_call_need(&call);
    FLW_EXPECT(bed, need.read_bytes == 320 && need.output_count == 1, "validate_ids");
    FLW_CALL_REFUSE(&call, "rows=2147483647: rows x top_k");
}

FLW_TEST(a_library_that_cannot_load_says_why)
{
    fallow_kernels *none = NULL;
    char why[256] = "";
    FLW_EXPECT(bed, fallow_kernels_create(flw_bed_pool(bed), NULL) == FALLOW_INVALID_ARGUMENT,
               "no refusal");
    fallow_kernels_last_error(NULL, why, sizeof why);
    FLW_EXPECT(bed, strstr(why, "out_kernels") != NULL, "says '%s'", why);
    FLW_EXPECT_OK(bed, fallow_kernels_create(flw_bed_pool(bed), &none));
    fallow_kernels_last_error(NULL, why, sizeof why);
    FLW_EXPECT(bed, why[0] == 0, "still says '%s'", why);
    if (flw_bed_is_simulated(bed)) {
        flw_bed_fail_call(bed, "cuModuleGetFunction", 3, 500 /* not found */);
        FLW_EXPECT(bed, fallow_kernels_load(none, NULL, 0) == FALLOW_DRIVER, "no refusal");
        fallow_kernels_last_error(none, why, sizeof why);
        FLW_EXPECT(bed, strstr(why, "loading of flw_") != NULL && strstr(why, "NOT_FOUND") != NULL,
                   "says '%s'", why);
        FLW_EXPECT_OK(bed, fallow_kernels_load(none, NULL, 0));
    }
    fallow_kernels_destroy(none);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "fallow/mla.h"
#include "kernel/bed.h"

#define MOST       5000 /* requests of a case */
#define MOST_PARTS 1024
#define WORDS      8

enum {
    FIRST,
    LAST,
    BEGIN_BLOCK,
    END_BLOCK,
    BEGIN_SPLIT,
    FIRST_IS_SPLIT,
    LAST_IS_SPLIT,
    ZERO
};

/* One call on the host: the inputs and expected outputs. */
struct fixture {
    fallow_flashmla_schedule_params params;
    int32_t valid;
    int32_t lengths[MOST];
    int32_t rows[MOST_PARTS][WORDS], splits[MOST + 1];
};

static struct fixture *make(int32_t batch, int32_t parts)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    if (fixture == NULL) {
        abort();
    }
    fallow_flashmla_schedule_params_init(&fixture->params);
    fixture->params.batch = batch;
    fixture->params.parts = parts;
    fixture->valid = batch;
    return fixture;
}

static int64_t block_size_of(const struct fixture *fixture)
{
    return fixture->params.block_size == 0 ? 64 : fixture->params.block_size;
}

static int64_t overhead_of(const struct fixture *fixture)
{
    int64_t given = fixture->params.overhead_blocks;
    return given == 0 ? 5 : given < 0 ? 0 : given;
}

static int32_t valid_of(const struct fixture *fixture)
{
    int32_t valid = fixture->valid < 0 ? 0 : fixture->valid;
    return valid < fixture->params.batch ? valid : fixture->params.batch;
}

static int64_t blocks_of(const struct fixture *fixture, int32_t i)
{
    int64_t length = fixture->lengths[i] < 1 ? 1 : fixture->lengths[i];
    return (length + block_size_of(fixture) - 1) / block_size_of(fixture);
}

/* Return the request at position `at` of the line, in which request i ends at the blocks plus one
 * overhead. */
static int32_t find_request(const struct fixture *fixture, int64_t at, int64_t *out_begin)
{
    int32_t i = 0;
    *out_begin = 0;
    while (i < valid_of(fixture) &&
           *out_begin + blocks_of(fixture, i) + overhead_of(fixture) <= at) {
        *out_begin += blocks_of(fixture, i) + overhead_of(fixture);
        i++;
    }
    return i;
}

/* An independent oracle: no walk, but places on the line of all requests. A part that begins at x reaches
 * the request that holds x + payload, and stops there at x + payload - overhead, or at the request's
 * begin where that is later; a part that begins in the request's middle has no later begin. */
static void expect(struct fixture *fixture)
{
    int32_t valid = valid_of(fixture), parts = fixture->params.parts;
    int64_t total = 0, overhead = overhead_of(fixture), at = 0;
    int32_t *touched = calloc((size_t)(uint32_t)valid + 1, sizeof *touched);
    for (int32_t i = 0; i < valid; i++) {
        total += blocks_of(fixture, i) + overhead;
    }
    int64_t payload = (total + parts - 1) / parts + overhead;
    for (int32_t part = 0; part < parts; part++) {
        int64_t from, to;
        int32_t first = find_request(fixture, at, &from);
        int32_t reached = find_request(fixture, at + payload, &to);
        int64_t stop = at + payload - overhead;
        if (reached == valid || stop < to) {
            stop = to;
        }
        int32_t last = stop > to ? reached : reached - 1;
        int32_t *row = fixture->rows[part];
        row[FIRST] = first;
        row[LAST] = last;
        row[BEGIN_BLOCK] = (int32_t)(at - from);
        row[BEGIN_SPLIT] = first < valid ? touched[first] : 0;
        row[END_BLOCK] = (int32_t)(stop - to);
        if (stop == to) {
            row[END_BLOCK] =
                last < 0 || fixture->lengths[last] <= 0 ? 0 : (int32_t)blocks_of(fixture, last);
        }
        row[FIRST_IS_SPLIT] = at > from;
        row[LAST_IS_SPLIT] = stop > to;
        if (first == last) {
            row[FIRST_IS_SPLIT] |= row[LAST_IS_SPLIT];
            row[LAST_IS_SPLIT] = row[FIRST_IS_SPLIT];
        }
        for (int32_t i = first; i <= last; i++) {
            touched[i]++;
        }
        at = stop;
    }
    for (int32_t i = 0; i < fixture->params.batch; i++) {
        fixture->splits[i + 1] = fixture->splits[i] + (i < valid ? touched[i] : 0);
    }
    free(touched);
}

static void give_inputs(struct flw_bed *bed, struct fixture *fixture)
{
    fixture->params.lengths = flw_bed_upload(bed, "lengths", fixture->lengths,
                                             (size_t)fixture->params.batch * sizeof(int32_t));
    fixture->params.valid_count = flw_bed_upload(bed, "valid_count", &fixture->valid, 4);
}

static void launch(struct flw_bed *bed, void *inputs, void *const outputs[])
{
    fallow_flashmla_schedule_params params = ((struct fixture *)inputs)->params;
    params.tile_metadata = outputs[0];
    params.num_splits = outputs[1];
    FLW_EXPECT_OK(bed,
                  fallow_mla_flashmla_schedule(flw_bed_kernels(bed), &params, flw_bed_stream(bed)));
}

static struct flw_bed_step step_of(struct flw_bed *bed, struct fixture *fixture)
{
    fallow_workspace_need need = {.struct_size = sizeof need};
    struct flw_bed_step step = {.inputs = fixture, .launch = launch};
    flw_bed_declare(bed, &step, fallow_mla_flashmla_schedule_query(&fixture->params, &need), &need);
    return step;
}

/* The schedule covers every block once, and num_splits counts the parts that touch a request. */
static void check_cover(struct flw_bed *bed, const struct fixture *fixture, int32_t (*rows)[WORDS],
                        const int32_t *splits)
{
    int32_t valid = valid_of(fixture), parts = fixture->params.parts;
    int64_t *taken = calloc((size_t)(uint32_t)valid + 1, sizeof *taken);
    int32_t *touched = calloc((size_t)(uint32_t)valid + 1, sizeof *touched);
    for (int32_t part = 0; part < parts; part++) {
        const int32_t *row = rows[part];
        FLW_EXPECT(bed, row[FIRST] >= 0 && row[FIRST] <= valid && row[LAST] < valid,
                   "part %d has requests %d to %d", part, row[FIRST], row[LAST]);
        for (int32_t i = row[FIRST]; i <= row[LAST]; i++) {
            int64_t blocks = blocks_of(fixture, i), begin = 0, end = blocks;
            begin = i == row[FIRST] ? row[BEGIN_BLOCK] : 0;
            if (i == row[LAST] && !(fixture->lengths[i] <= 0 && row[END_BLOCK] == 0)) {
                end = row[END_BLOCK];
            }
            FLW_EXPECT(bed, begin == taken[i] && end > begin && end <= blocks,
                       "part %d takes [%lld, %lld) of request %d after %lld", part,
                       (long long)begin, (long long)end, i, (long long)taken[i]);
            FLW_EXPECT(bed, i != row[FIRST] || row[BEGIN_SPLIT] == touched[i],
                       "part %d begins at split %d", part, row[BEGIN_SPLIT]);
            taken[i] = end;
            touched[i]++;
        }
        FLW_EXPECT(bed, row[ZERO] == 0, "the last word of row %d", part);
    }
    for (int32_t i = 0; i < valid; i++) {
        FLW_EXPECT(bed, taken[i] == blocks_of(fixture, i), "request %d lacks blocks", i);
        FLW_EXPECT(bed, splits[i + 1] - splits[i] == touched[i], "splits of request %d", i);
    }
    FLW_EXPECT(bed, splits[valid] <= valid + parts, "%d splits", splits[valid]);
    free(taken);
    free(touched);
}

static void compare(struct flw_bed *bed, struct fixture *fixture, int32_t (*rows)[WORDS],
                    const int32_t *splits)
{
    static const char *const words[WORDS] = {"first request", "last request", "begin block",
                                             "end block",     "begin split",  "first is split",
                                             "last is split", "zero"};
    expect(fixture);
    for (int32_t part = 0; part < fixture->params.parts; part++) {
        for (int word = 0; word < WORDS; word++) {
            FLW_EXPECT(bed, rows[part][word] == fixture->rows[part][word],
                       "%s of part %d (batch %d, %d parts) is %d, expected %d", words[word], part,
                       fixture->params.batch, fixture->params.parts, rows[part][word],
                       fixture->rows[part][word]);
        }
    }
    for (int32_t i = 0; i <= fixture->params.batch; i++) {
        FLW_EXPECT(bed, splits[i] == fixture->splits[i],
                   "num_splits[%d] (batch %d, %d parts) is %d, expected %d", i,
                   fixture->params.batch, fixture->params.parts, splits[i], fixture->splits[i]);
    }
    check_cover(bed, fixture, rows, splits);
}

/* Prove a case and compare with the oracle. The outputs stay in `fixture`. */
static void check(struct flw_bed *bed, struct fixture *fixture)
{
    int32_t(*rows)[WORDS] = calloc((size_t)fixture->params.parts, sizeof *rows);
    int32_t *splits = calloc((size_t)fixture->params.batch + 1, sizeof *splits);
    struct fixture *larger = make(fixture->params.batch + 9, fixture->params.parts + 3);
    struct fixture *smaller = make(fixture->params.batch / 2, (fixture->params.parts + 1) / 2);
    for (int32_t i = 0; i < larger->params.batch; i++) {
        larger->lengths[i] = (int32_t)flw_bed_random_below(bed, 9000);
        smaller->lengths[i / 2] = larger->lengths[i];
    }
    give_inputs(bed, fixture);
    give_inputs(bed, larger);
    give_inputs(bed, smaller);
    struct flw_bed_step step = step_of(bed, fixture), before = step_of(bed, larger),
                        after = step_of(bed, smaller);
    flw_bed_prove(bed, &step, &before, &after, (void *const[]){rows, splits});
    compare(bed, fixture, rows, splits);
    free(rows);
    free(splits);
    free(larger);
    free(smaller);
}

static void the_examples_come_out(struct flw_bed *bed)
{
    static const int32_t eight[] = {0, 8, 17, 26, 34, 42, 51, 60, 68};
    static const int32_t three[] = {0, 2, 3, 4};
    struct fixture *fixture = make(3, 4);
    memcpy(fixture->lengths, (int32_t[]){1000, 64, 1}, 12);
    check(bed, fixture);
    FLW_EXPECT(bed, memcmp(fixture->splits, three, sizeof three) == 0, "splits of 1000, 64, 1");
    FLW_EXPECT(bed, fixture->rows[0][END_BLOCK] == 9 && fixture->rows[1][END_BLOCK] == 16,
               "blocks of 1000, 64, 1");
    FLW_EXPECT(bed, fixture->rows[2][FIRST] == 1 && fixture->rows[2][LAST] == 2, "part 2");
    FLW_EXPECT(bed, fixture->rows[3][FIRST] == 3 && fixture->rows[3][LAST] == 2, "part 3");
    free(fixture);

    fixture = make(8, 66);
    for (int i = 0; i < 8; i++) {
        fixture->lengths[i] = 8192;
    }
    check(bed, fixture);
    FLW_EXPECT(bed, memcmp(fixture->splits, eight, sizeof eight) == 0, "splits of 8 x 8192");
    free(fixture);

    fixture = make(1, 4);
    fixture->lengths[0] = 128;
    check(bed, fixture);
    FLW_EXPECT(bed, fixture->splits[1] == 1, "splits of 128");
    for (int part = 1; part < 4; part++) {
        FLW_EXPECT(bed, fixture->rows[part][FIRST] == 1 && fixture->rows[part][LAST] == 0,
                   "part %d is idle", part);
    }
    free(fixture);
}

/* Lengths of every kind: empty, at the edges of a block, long. */
static void fill(struct flw_bed *bed, struct fixture *fixture, int64_t longest)
{
    static const int32_t edges[] = {0, 1, 63, 64, 65, 128, 8192};
    for (int32_t i = 0; i < fixture->params.batch; i++) {
        int64_t kind = flw_bed_random_below(bed, 14);
        fixture->lengths[i] =
            kind < 7 ? edges[kind] : (int32_t)flw_bed_random_below(bed, longest + 1);
    }
}

static void schedules_are_exact_and_cover_every_block_once(struct flw_bed *bed)
{
    static const int32_t batches[] = {1, 2, 7, 8, 64, 256, 512, 1023, 1024, 1025, 4097};
    static const int32_t parts[] = {1, 2, 66, 132, 160, MOST_PARTS - 3};
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        for (size_t j = 0; j < sizeof parts / sizeof *parts; j++) {
            struct fixture *fixture = make(batches[i], parts[j]);
            fill(bed, fixture, j % 2 == 0 ? 131072 : 300);
            if (batches[i] < 600 || j == 3) {
                check(bed, fixture);
            }
            free(fixture);
        }
    }
}

static void an_empty_batch_has_rows_and_a_zero(struct flw_bed *bed)
{
    static const int32_t empty[WORDS] = {0, -1, 0, 0, 0, 0, 0, 0};
    struct fixture *fixture = make(0, 66);
    check(bed, fixture);
    for (int part = 0; part < 66; part++) {
        FLW_EXPECT(bed, memcmp(fixture->rows[part], empty, sizeof empty) == 0, "row %d", part);
    }
    free(fixture);
    fixture = make(5, 7); /* requests, all of length 0 */
    check(bed, fixture);
    FLW_EXPECT(bed, fixture->splits[5] >= 5, "an empty request owns a block");
    free(fixture);
}

static void the_tail_of_a_padded_batch_is_flat(struct flw_bed *bed)
{
    for (int32_t valid = -1; valid <= 17; valid++) {
        struct fixture *fixture = make(16, 12);
        fill(bed, fixture, 5000);
        fixture->valid = valid;
        check(bed, fixture);
        free(fixture);
    }
}

static void block_size_and_overhead_are_parameters(struct flw_bed *bed)
{
    static const int32_t sizes[] = {1, 16, 64, 128, INT32_MAX};
    static const int32_t overheads[] = {-1, 1, 5, 40, 65536};
    for (size_t i = 0; i < 5; i++) {
        for (size_t j = 0; j < 5; j++) {
            struct fixture *fixture = make(37, 24);
            fill(bed, fixture, 2000);
            fixture->params.block_size = sizes[i];
            fixture->params.overhead_blocks = overheads[j];
            check(bed, fixture);
            free(fixture);
        }
    }
}

static int32_t flags_after(struct flw_bed *bed, struct fixture *fixture)
{
    fixture->params.flags = flw_bed_flags(bed);
    check(bed, fixture);
    return flw_bed_read_flags(bed, fixture->params.flags);
}

static void the_longest_lengths_are_exact_and_negative_ones_are_flagged(struct flw_bed *bed)
{
    struct fixture *fixture = make(300, 132);
    fixture->params.block_size = 1;
    for (int32_t i = 0; i < 300; i++) {
        fixture->lengths[i] = INT32_MAX - i;
    }
    FLW_EXPECT(bed, flags_after(bed, fixture) == 0, "flags without a cause");
    fixture->lengths[7] = -1;
    fixture->lengths[299] = INT32_MIN;
    FLW_EXPECT(bed, flags_after(bed, fixture) == FALLOW_FLAG_NEGATIVE, "no NEGATIVE");
    free(fixture);
}

static void a_graph_takes_count_and_lengths_from_the_device(struct flw_bed *bed)
{
    struct fixture *fixture = make(512, 132);
    int32_t(*rows)[WORDS] = calloc(132, sizeof *rows);
    int32_t splits[513];
    fill(bed, fixture, 131072);
    give_inputs(bed, fixture);
    void *outputs[] = {flw_bed_buffer(bed, "tile_metadata", 132 * sizeof *rows),
                       flw_bed_buffer(bed, "num_splits", sizeof splits)};
    struct flw_bed_graph *graph = flw_bed_capture(bed, launch, fixture, outputs);
    for (int32_t valid = 512; valid >= 0; valid -= 64) {
        fill(bed, fixture, 300 * valid);
        fixture->valid = valid;
        flw_bed_write(bed, fixture->params.lengths, fixture->lengths, 512 * 4);
        flw_bed_write(bed, fixture->params.valid_count, &valid, 4);
        flw_bed_replay(bed, graph);
        flw_bed_read(bed, rows, outputs[0], 132 * sizeof *rows);
        flw_bed_read(bed, splits, outputs[1], sizeof splits);
        compare(bed, fixture, rows, splits);
    }
    free(rows);
    free(fixture);
}

static void parts_follow_from_the_heads(struct flw_bed *bed)
{
    FLW_EXPECT(bed, fallow_mla_flashmla_parts(132, 1, 128, 1) == 66, "DeepSeek-V3");
    FLW_EXPECT(bed, fallow_mla_flashmla_parts(132, 1, 16, 1) == 132, "DeepSeek-V3, 8 ranks");
    FLW_EXPECT(bed, fallow_mla_flashmla_parts(132, 1, 128, 2) == 33, "two queries");
    FLW_EXPECT(bed, fallow_mla_flashmla_parts(78, 1, 65, 1) == 39, "65 rows are two tiles");
    FLW_EXPECT(bed, fallow_mla_flashmla_parts(132, 8, 64, 1) == 16, "eight heads of keys");
    FLW_EXPECT(bed, fallow_mla_flashmla_parts(4, 8, 64, 1) == 1, "never none");
    FLW_EXPECT(bed, fallow_mla_flashmla_parts(132, 1, 1 << 20, 1 << 20) == 1, "64 bits");
    FLW_EXPECT(bed, fallow_mla_flashmla_parts(0, 1, 128, 1) == 0, "no multiprocessors");
    FLW_EXPECT(bed, fallow_mla_flashmla_parts(132, 0, 128, 1) == 0, "no heads");
    FLW_EXPECT(bed, fallow_mla_flashmla_parts(132, 3, 128, 1) == 0, "3 does not divide 128");
    FLW_EXPECT(bed, fallow_mla_flashmla_parts(132, 1, 128, -1) == 0, "negative queries");
}

static void mistakes_are_refused_by_name(struct flw_bed *bed)
{
    fallow_flashmla_schedule_params good, bad;
    fallow_kernels *kernels = flw_bed_kernels(bed);
    fallow_stream stream = flw_bed_stream(bed);
    char *memory = flw_bed_buffer(bed, "memory", 8192);
    fallow_flashmla_schedule_params_init(&good);
    good.batch = 16;
    good.parts = 66;
    good.lengths = (void *)memory;
    good.tile_metadata = (void *)(memory + 1024);
    good.num_splits = (void *)(memory + 4096);
#define REFUSED(change, word)                                                    \
    bad = good;                                                                  \
    change;                                                                      \
    FLW_EXPECT_REFUSED(bed, fallow_mla_flashmla_schedule(kernels, &bad, stream), \
                       FALLOW_INVALID_ARGUMENT, word)
    REFUSED(bad.batch = -1, "batch");
    REFUSED(bad.batch = 65537, "batch");
    REFUSED(bad.parts = 0, "parts");
    REFUSED(bad.parts = MOST_PARTS + 1, "parts");
    REFUSED(bad.block_size = -64, "block_size");
    REFUSED(bad.overhead_blocks = -2, "overhead_blocks");
    REFUSED(bad.overhead_blocks = 65537, "overhead_blocks");
    REFUSED(bad.lengths = NULL, "lengths is NULL");
    REFUSED(bad.tile_metadata = NULL, "tile_metadata is NULL");
    REFUSED(bad.num_splits = NULL, "num_splits is NULL");
    REFUSED(bad.tile_metadata = (void *)(memory + 1028), "tile_metadata is not aligned");
    REFUSED(bad.num_splits = (void *)(memory + 4098), "num_splits is not aligned");
    REFUSED(bad.num_splits = (void *)(memory + 2048), "tile_metadata and num_splits overlap");
    REFUSED(bad.num_splits = (void *)memory, "lengths and num_splits overlap");
    REFUSED(bad.flags = (void *)(memory + 4100), "num_splits and flags overlap");
    REFUSED(bad.struct_size = 0, "struct_size");
#undef REFUSED
    FLW_EXPECT(bed, fallow_mla_flashmla_schedule(NULL, &good, stream) == FALLOW_INVALID_ARGUMENT,
               "NULL kernels");
    FLW_EXPECT(bed, fallow_mla_flashmla_schedule_query(&good, NULL) == FALLOW_INVALID_ARGUMENT,
               "NULL need");
}

int main(int argc, char **argv)
{
    static const struct flw_bed_test tests[] = {
        FLW_BED_TEST(the_examples_come_out),
        FLW_BED_TEST(schedules_are_exact_and_cover_every_block_once),
        FLW_BED_TEST(an_empty_batch_has_rows_and_a_zero),
        FLW_BED_TEST(the_tail_of_a_padded_batch_is_flat),
        FLW_BED_TEST(block_size_and_overhead_are_parameters),
        FLW_BED_TEST(the_longest_lengths_are_exact_and_negative_ones_are_flagged),
        FLW_BED_TEST(a_graph_takes_count_and_lengths_from_the_device),
        FLW_BED_TEST(parts_follow_from_the_heads),
        FLW_BED_TEST(mistakes_are_refused_by_name),
    };
    return flw_bed_main(argc, argv, tests, sizeof tests / sizeof *tests);
}

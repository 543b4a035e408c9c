/* SPDX-License-Identifier: Apache-2.0 */
#include "fallow/mla.h"
#include "kernel/call.h"

#define MOST       5000 /* requests of a case */
#define MOST_PARTS 1024
#define WORDS      8

FLW_MODULE(flashmla_schedule, fallow_mla_flashmla_schedule, fallow_flashmla_schedule,
           FLW_IN(lengths), FLW_IN_MAYBE(valid_count), FLW_OUT(tile_metadata), FLW_OUT(num_splits),
           FLW_OUT_MAYBE(flags), FLW_COUNT(batch, 0, 65536), FLW_COUNT(parts, 1, MOST_PARTS),
           FLW_COUNT(block_size, 0, INT32_MAX), FLW_COUNT(overhead_blocks, -1, 65536))

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

/* One call and the expected outputs. */
struct fixture {
    struct flw_call call;
    fallow_flashmla_schedule_params params;
    int32_t valid;
    int32_t *lengths;
    int32_t rows[MOST_PARTS][WORDS], splits[MOST + 1];
};

static struct fixture *make(struct flw_bed *bed, int32_t batch, int32_t parts)
{
    struct fixture *fixture = flw_bed_memory(bed, sizeof *fixture);
    flw_call_init(bed, &fixture->call, flashmla_schedule(), &fixture->params);
    fixture->params.batch = batch;
    fixture->params.parts = parts;
    fixture->valid = batch;
    fixture->lengths = flw_call_draw(&fixture->call, "lengths", (size_t)batch, 9000);
    flw_call_bind(&fixture->call, "valid_count", &fixture->valid, 1, 4);
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
    int32_t touched[MOST + 1] = {0};
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
}

/* The schedule covers every block once, and num_splits counts the parts that touch a request. */
static void check_cover(struct flw_bed *bed, const struct fixture *fixture)
{
    int32_t(*rows)[WORDS] = fixture->call.out[0];
    const int32_t *splits = fixture->call.out[1];
    int32_t valid = valid_of(fixture), parts = fixture->params.parts;
    int64_t taken[MOST + 1] = {0};
    int32_t touched[MOST + 1] = {0};
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
}

static void compare(struct flw_bed *bed, struct fixture *fixture)
{
    flw_call_expect(&fixture->call, "tile_metadata", fixture->rows);
    flw_call_expect(&fixture->call, "num_splits", fixture->splits);
    check_cover(bed, fixture);
}

/* Prove a case with these flags and compare with the oracle. */
static void check(struct flw_bed *bed, struct fixture *fixture, int32_t flags)
{
    expect(fixture);
    fixture->call.want_flags = flags;
    flw_call_prove(&fixture->call);
    compare(bed, fixture);
}

FLW_TEST(the_examples_come_out)
{
    static const int32_t eight[] = {0, 8, 17, 26, 34, 42, 51, 60, 68};
    static const int32_t three[] = {0, 2, 3, 4};
    struct fixture *fixture = make(bed, 3, 4);
    memcpy(fixture->lengths, (int32_t[]){1000, 64, 1}, 12);
    check(bed, fixture, 0);
    flw_call_expect(&fixture->call, "num_splits", three);
    FLW_EXPECT(bed, fixture->rows[0][END_BLOCK] == 9 && fixture->rows[1][END_BLOCK] == 16,
               "blocks of 1000, 64, 1");
    FLW_EXPECT(bed, fixture->rows[2][FIRST] == 1 && fixture->rows[2][LAST] == 2, "part 2");
    FLW_EXPECT(bed, fixture->rows[3][FIRST] == 3 && fixture->rows[3][LAST] == 2, "part 3");

    fixture = make(bed, 8, 66);
    for (int i = 0; i < 8; i++) {
        fixture->lengths[i] = 8192;
    }
    check(bed, fixture, 0);
    flw_call_expect(&fixture->call, "num_splits", eight);

    fixture = make(bed, 1, 4);
    fixture->lengths[0] = 128;
    check(bed, fixture, 0);
    FLW_EXPECT(bed, fixture->splits[1] == 1, "splits of 128");
    for (int part = 1; part < 4; part++) {
        FLW_EXPECT(bed, fixture->rows[part][FIRST] == 1 && fixture->rows[part][LAST] == 0,
                   "part %d is idle", part);
    }
}

/* Lengths of every kind: empty, at the edges of a block, long. */
static struct fixture *fill(struct flw_bed *bed, struct fixture *fixture, int64_t longest)
{
    static const int32_t edges[] = {0, 1, 63, 64, 65, 128, 8192};
    for (int32_t i = 0; i < fixture->params.batch; i++) {
        int64_t kind = flw_bed_random_below(bed, 14);
        fixture->lengths[i] =
            kind < 7 ? edges[kind] : (int32_t)flw_bed_random_below(bed, longest + 1);
    }
    return fixture;
}

FLW_TEST(schedules_are_exact_and_cover_every_block_once)
{
    static const int32_t batches[] = {1, 2, 7, 8, 64, 256, 512, 1023, 1024, 1025, 4097};
    static const int32_t parts[] = {1, 2, 66, 132, 160, MOST_PARTS - 3};
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        for (size_t j = 0; j < sizeof parts / sizeof *parts; j++) {
            if (batches[i] < 600 || j == 3) {
                struct fixture *fixture = make(bed, batches[i], parts[j]);
                check(bed, fill(bed, fixture, j % 2 == 0 ? 131072 : 300), 0);
            }
        }
    }
}

FLW_TEST(an_empty_batch_has_rows_and_a_zero)
{
    static const int32_t empty[WORDS] = {0, -1, 0, 0, 0, 0, 0, 0};
    struct fixture *fixture = make(bed, 0, 66);
    check(bed, fixture, 0);
    for (int part = 0; part < 66; part++) {
        FLW_EXPECT(bed, memcmp(fixture->rows[part], empty, sizeof empty) == 0, "row %d", part);
    }
    fixture = make(bed, 5, 7);
    memset(fixture->lengths, 0, 20);
    check(bed, fixture, 0);
    FLW_EXPECT(bed, fixture->splits[5] >= 5, "an empty request owns a block");
}

FLW_TEST(the_tail_of_a_padded_batch_is_flat)
{
    for (int32_t valid = -1; valid <= 17; valid++) {
        struct fixture *fixture = fill(bed, make(bed, 16, 12), 5000);
        fixture->valid = valid;
        check(bed, fixture, 0);
    }
}

FLW_TEST(block_size_and_overhead_are_parameters)
{
    static const int32_t sizes[] = {1, 16, 64, 128, INT32_MAX};
    static const int32_t overheads[] = {-1, 1, 5, 40, 65536};
    for (int k = 0; k < 25; k++) {
        struct fixture *fixture = fill(bed, make(bed, 37, 24), 2000);
        fixture->params.block_size = sizes[k / 5];
        fixture->params.overhead_blocks = overheads[k % 5];
        check(bed, fixture, 0);
    }
}

FLW_TEST(the_longest_lengths_are_exact_and_negative_ones_are_flagged)
{
    struct fixture *fixture = make(bed, 300, 132);
    fixture->params.block_size = 1;
    for (int32_t i = 0; i < 300; i++) {
        fixture->lengths[i] = INT32_MAX - i;
    }
    check(bed, fixture, 0);
    fixture->lengths[7] = -1;
    fixture->lengths[299] = INT32_MIN;
    check(bed, fixture, FALLOW_FLAG_NEGATIVE);
}

FLW_TEST(a_graph_takes_count_and_lengths_from_the_device)
{
    struct fixture *fixture = fill(bed, make(bed, 512, 132), 131072);
    flw_call_capture(&fixture->call);
    for (fixture->valid = 512; fixture->valid >= 0; fixture->valid -= 64) {
        expect(fill(bed, fixture, 300 * fixture->valid));
        flw_call_replay(&fixture->call);
        compare(bed, fixture);
    }
}

FLW_TEST(parts_follow_from_the_heads)
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

FLW_TEST(mistakes_are_refused_by_name)
{
    FLW_CALL_REFUSE(&make(bed, 16, 66)->call,
                    "tile_metadata=@tile_metadata+4: tile_metadata is not aligned",
                    "flags=@num_splits+4: num_splits and flags overlap");
}

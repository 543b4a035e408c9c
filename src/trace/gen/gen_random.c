/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: traces of random sizes and lives, as the benchmarks of the RAPIDS Memory Manager draw them, on
 * one stream or several; and of a database's queries.
 * Does not: draw the numbers that those benchmarks draw: the rules are the same, the generator is not.
 *
 *   rmm            2 x count steps. A step draws a size from 1 byte to `max`. It is taken where live and
 *                  size together stay below `cap`, and, unless nothing is live, 73 times in a hundred
 *                  and while fewer than `count` were taken. Else a live block is freed, each as likely
 *                  as any other.
 *   multi-stream   the same by `threads` threads in random turns, each with its own blocks, thread t on
 *                  stream t mod `streams`; `shared` times in a hundred the freed block was last used by
 *                  another stream.
 *   kernels        `count` kernels in turn over the streams, 8 bytes each, freed behind the launch.
 *   query          scan, hash join, group-by and sort, over columns with validity masks.
 *
 * A table has rows_max / r rows, r drawn so that rank r comes 1/r as often as rank 1 (Zipf, ranks 1 to
 * 64); 2 to 6 columns of 4 (half of them), 8 (three in eight) or 16 bytes a value. A column of n rows
 * is w n bytes, and a mask of n bits in multiples of 64 bytes beside every second one.
 *
 *   scan   each column is read on stream 1 into a staging block of half its size, decoded there into
 *          the column, used on stream 0
 *   join   of the two tables: hash table of 8 bytes for each of 2^k >= 2 x the smaller table's rows;
 *          row numbers 2 x 4 m of the m rows that match (a half to all of the larger's); the
 *          columns of both gathered; the inputs freed
 *   group  m / 2^j groups, j 2 to 12: hash table 8 x 2^k >= 2 x groups, row numbers 4 m, results of
 *          8 bytes a group for three aggregates, keys gathered
 *   sort   keys twice and row numbers twice (8 and 4 bytes a row of the groups), scratch of 1/16 of
 *          them, the result gathered
 * The result is kept, up to 16 of them; the oldest goes first. Above 80 % of the device the oldest
 * results are copied out on stream 1 and freed; one in four queries reads one back and joins it.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/bits.h"
#include "trace/gen/gen.h"

/* ---- queries ---- */

struct flw_query_params {
    uint64_t queries;
    uint64_t rows_max;
    uint64_t device_bytes; /* spills above 80 % of it */
};

#define STREAM_COMPUTE 0
#define STREAM_COPY    1
#define RANKS          64
#define COLUMNS_MAX    6
#define RESULTS_MAX    16
#define MASK_BYTES     64
#define AGGREGATES     3

struct column {
    uint32_t data, mask;
    uint64_t value_bytes;
    bool has_mask;
};

struct table {
    struct column columns[2 * COLUMNS_MAX];
    size_t column_count;
    uint64_t rows;
    bool is_spilled;
};

struct store {
    struct flw_gen *gen;
    const struct flw_query_params *p;
    struct table results[RESULTS_MAX]; /* oldest first */
    size_t result_count;
};

static uint64_t mask_bytes(uint64_t rows)
{
    return flw_align_up(flw_div_up(rows, 8), MASK_BYTES);
}

/* 8 bytes for each of the smallest power of two that is at least 2 x rows, rows >= 1. */
static uint64_t table_bytes(uint64_t rows)
{
    return UINT64_C(8) << (flw_log2_floor(2 * rows - 1) + 1);
}

/* Zipf: the weight of rank r is 5040 / r in integers. */
static uint64_t draw_rows(struct store *s)
{
    uint64_t total = 0;
    for (uint64_t r = 1; r <= RANKS; r++) {
        total += 5040 / r;
    }
    uint64_t at = flw_gen_between(s->gen, 0, total - 1);
    uint64_t rank = 1;
    while (at >= 5040 / rank) {
        at -= 5040 / rank++;
    }
    return flw_max(s->p->rows_max / rank, 1);
}

static void drop_table(struct store *s, struct table *table)
{
    for (size_t i = 0; i < table->column_count; i++) {
        flw_gen_drop(s->gen, &table->columns[i].data);
        flw_gen_drop(s->gen, &table->columns[i].mask);
    }
}

static void use_table(struct store *s, const struct table *table, uint64_t stream)
{
    for (size_t i = 0; i < table->column_count; i++) {
        flw_gen_use(s->gen, table->columns[i].data, stream);
        flw_gen_use(s->gen, table->columns[i].mask, stream);
    }
}

/* ---- spilling ---- */

/* Make room for what comes: the oldest results go to the host until it fits in 80 % of the device. */
static void spill_for(struct store *s, uint64_t size_bytes)
{
    uint64_t limit_bytes = s->p->device_bytes / 5 * 4;
    for (size_t i = 0; i < s->result_count; i++) {
        struct table *table = &s->results[i];
        if (s->gen->live_bytes + size_bytes <= limit_bytes) {
            return;
        }
        if (!table->is_spilled) {
            use_table(s, table, STREAM_COPY);
            drop_table(s, table);
            table->is_spilled = true;
        }
    }
}

static uint32_t take(struct store *s, uint64_t size_bytes, uint64_t stream)
{
    spill_for(s, size_bytes);
    return flw_gen_take(s->gen, size_bytes, stream);
}

static uint32_t compute(struct store *s, uint64_t size_bytes)
{
    return take(s, size_bytes, STREAM_COMPUTE);
}

static void take_column(struct store *s, struct column *column, uint64_t rows, uint64_t stream)
{
    column->data = take(s, rows * column->value_bytes, stream);
    column->mask = column->has_mask ? take(s, mask_bytes(rows), stream) : FLW_GEN_NO_BLOCK;
}

static void add_column(struct table *table, uint64_t value_bytes, bool has_mask)
{
    table->columns[table->column_count++] =
        (struct column){FLW_GEN_NO_BLOCK, FLW_GEN_NO_BLOCK, value_bytes, has_mask};
}

static void evict_oldest(struct store *s)
{
    drop_table(s, &s->results[0]);
    for (size_t i = 1; i < s->result_count; i++) {
        s->results[i - 1] = s->results[i];
    }
    s->result_count--;
}

/* ---- operators ---- */

static void scan(struct store *s, struct table *out)
{
    *out = (struct table){.rows = draw_rows(s)};
    uint64_t count = flw_gen_between(s->gen, 2, COLUMNS_MAX);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t kind = flw_gen_between(s->gen, 0, 7);
        add_column(out, kind < 4 ? 4 : kind < 7 ? 8 : 16, i % 2 == 1);
        struct column *column = &out->columns[i];
        uint32_t staging = take(s, flw_max(out->rows * column->value_bytes / 2, 1), STREAM_COPY);
        take_column(s, column, out->rows, STREAM_COPY);
        flw_gen_give(s->gen, staging);
    }
    use_table(s, out, STREAM_COMPUTE);
}

/* A result that was kept, read back where it was spilled; it is the query's own then. */
static void fetch(struct store *s, struct table *out)
{
    size_t place = (size_t)flw_gen_between(s->gen, 0, s->result_count - 1);
    *out = s->results[place];
    for (size_t i = place + 1; i < s->result_count; i++) {
        s->results[i - 1] = s->results[i];
    }
    s->result_count--;
    if (out->is_spilled) {
        for (size_t i = 0; i < out->column_count; i++) {
            take_column(s, &out->columns[i], out->rows, STREAM_COPY);
        }
        use_table(s, out, STREAM_COMPUTE);
        out->is_spilled = false;
    }
}

static void gather(struct store *s, struct table *to, const struct table *from)
{
    for (size_t i = 0; i < from->column_count && to->column_count < COLUMNS_MAX; i++) {
        add_column(to, from->columns[i].value_bytes, from->columns[i].has_mask);
        take_column(s, &to->columns[to->column_count - 1], to->rows, STREAM_COMPUTE);
    }
}

static void join(struct store *s, struct table *left, struct table *right, struct table *out)
{
    uint64_t larger = flw_max(left->rows, right->rows);
    uint64_t smaller = flw_min(left->rows, right->rows);
    *out = (struct table){.rows = flw_gen_between(s->gen, flw_div_up(larger, 2), larger)};
    uint32_t hashes = compute(s, table_bytes(smaller));
    uint32_t left_rows = compute(s, out->rows * 4);
    uint32_t right_rows = compute(s, out->rows * 4);
    flw_gen_give(s->gen, hashes);
    gather(s, out, left);
    gather(s, out, right);
    FLW_GEN_GIVE(s->gen, left_rows, right_rows);
    drop_table(s, left);
    drop_table(s, right);
}

static void group(struct store *s, struct table *in, struct table *out)
{
    *out = (struct table){.rows = flw_max(in->rows >> flw_gen_between(s->gen, 2, 12), 1)};
    uint32_t hashes = compute(s, table_bytes(out->rows));
    uint32_t rows = compute(s, in->rows * 4);
    for (size_t i = 0; i < AGGREGATES; i++) {
        add_column(out, 8, i > 0);
        take_column(s, &out->columns[i], out->rows, STREAM_COMPUTE);
    }
    gather(s, out, in);
    FLW_GEN_GIVE(s->gen, rows, hashes);
    drop_table(s, in);
}

static void sort(struct store *s, struct table *in, struct table *out)
{
    uint32_t parts[5];
    *out = (struct table){.rows = in->rows};
    parts[0] = compute(s, in->rows * 8);
    parts[1] = compute(s, in->rows * 8);
    parts[2] = compute(s, in->rows * 4);
    parts[3] = compute(s, in->rows * 4);
    parts[4] = compute(s, flw_max(in->rows * 24 / 16, 1));
    FLW_GEN_GIVE(s->gen, parts[4], parts[1], parts[0]);
    gather(s, out, in);
    FLW_GEN_GIVE(s->gen, parts[2], parts[3]);
    drop_table(s, in);
}

static void run_query(struct store *s)
{
    struct table left;
    struct table right;
    struct table joined;
    struct table grouped;
    scan(s, &left);
    if (s->result_count > 0 && flw_gen_between(s->gen, 0, 3) == 0) {
        fetch(s, &right);
    } else {
        scan(s, &right);
    }
    join(s, &left, &right, &joined);
    group(s, &joined, &grouped);
    if (s->result_count == RESULTS_MAX) {
        evict_oldest(s);
    }
    struct table result;
    sort(s, &grouped, &result);
    s->results[s->result_count++] = result;
}

/* Adds two streams: 0 computes, 1 reads, spills and reads back. */
static void run_queries(struct flw_gen *gen, const struct flw_query_params *params)
{
    struct store store = {.gen = gen, .p = params};
    flw_gen_add_streams(gen, 2);
    for (uint64_t i = 0; i < params->queries && !gen->has_failed; i++) {
        flw_gen_begin_phase(gen, "query");
        run_query(&store);
        flw_gen_end_phase(gen, "query");
    }
    while (store.result_count > 0) {
        evict_oldest(&store);
    }
}

/* ---- sizes and lives ---- */

enum {
    PATTERN_RMM,
    PATTERN_MULTI_STREAM,
    PATTERN_KERNELS,
    PATTERN_QUERY
};

#define ALLOCATION_PERCENT 73
#define KERNEL_BYTES       8
#define THREADS_MAX        64

static const char *const patterns[] = {"rmm", "multi-stream", "kernels", "query", NULL};

static const char *const pattern_help[] = {
    "random sizes and lives on one stream",
    "the same by several threads on several streams, some blocks used by two",
    "a block of 8 bytes a kernel, in turn over the streams",
    "scan, join, group, sort over columns of Zipf's row counts on two streams, spilling at 80 %",
};

/* clang-format off */
#define OPTIONS(X) \
    X(PATTERN, "pattern", "which one", CHOICE, 0, 0, PATTERN_QUERY, patterns) \
    X(COUNT_OF_BLOCKS, "count", "blocks; queries where the pattern is query", COUNT, 1000, 1, 10000000, NULL) \
    X(MAX, "max", "bytes of the largest block", BYTES, 4096 * FLW_MIB, 1, 1024 * FLW_GIB, NULL) \
    X(CAP, "cap", "bytes that are live at most; those of the device, of queries", BYTES, 16000 * FLW_MIB, 1, 1024 * FLW_GIB, NULL) \
    X(STREAMS, "streams", "of multi-stream and kernels", COUNT, 4, 1, THREADS_MAX, NULL) \
    X(THREADS, "threads", "of multi-stream", COUNT, 4, 1, THREADS_MAX, NULL) \
    X(SHARED, "shared", "per cent of blocks that two streams use, of multi-stream", COUNT, 5, 0, 100, NULL) \
    X(ROWS, "rows", "of the largest table, of query", COUNT, 50000000, 1000, UINT64_C(100000000000), NULL) \
    X(SEED, "seed", "of the drawn numbers", COUNT, 1, 0, UINT64_MAX, NULL)
/* clang-format on */

enum {
    OPTIONS(FLW_GEN_OPTION_NUMBER) OPTION_COUNT
};

static const struct flw_gen_option options[] = {OPTIONS(FLW_GEN_OPTION_ROW)};

/* What one thread holds. */
struct thread {
    uint32_t *blocks;
    uint64_t live_count, taken_count, count;
    uint64_t stream;
};

static void free_one(struct flw_gen *gen, struct thread *thread)
{
    if (thread->live_count == 0) {
        return;
    }
    uint64_t place = flw_gen_between(gen, 0, thread->live_count - 1);
    uint32_t block = thread->blocks[place];
    thread->blocks[place] = thread->blocks[--thread->live_count];
    uint64_t streams = gen->build.trace->stream_count;
    if (streams > 1 && flw_gen_chance(gen, flw_gen_number(gen, OPTION_SHARED))) {
        flw_gen_use(gen, block, (thread->stream + flw_gen_between(gen, 1, streams - 1)) % streams);
    }
    flw_gen_give(gen, block);
}

static void step(struct flw_gen *gen, struct thread *thread)
{
    uint64_t size_bytes = flw_gen_between(gen, 1, flw_gen_number(gen, OPTION_MAX));
    bool takes = gen->live_bytes + size_bytes < flw_gen_number(gen, OPTION_CAP);
    if (thread->live_count > 0) {
        takes =
            flw_gen_chance(gen, ALLOCATION_PERCENT) && thread->taken_count < thread->count && takes;
    }
    if (takes) {
        thread->blocks[thread->live_count++] = flw_gen_take(gen, size_bytes, thread->stream);
        thread->taken_count++;
    } else {
        free_one(gen, thread);
    }
}

/* What 2 x count steps leave: a block taken in the last steps, where none was live then. */
static void finish(struct flw_gen *gen, struct thread *thread)
{
    while (thread->live_count > 0) {
        flw_gen_give(gen, thread->blocks[--thread->live_count]);
    }
}

static void run_threads(struct flw_gen *gen, uint64_t thread_count, uint64_t stream_count)
{
    struct thread threads[THREADS_MAX] = {{0}};
    uint64_t count = flw_gen_number(gen, OPTION_COUNT_OF_BLOCKS) / thread_count;
    uint64_t room = 2 * (count + 1); /* a thread */
    if (count == 0) {
        flw_gen_fail(gen, "--count %" PRIu64 " is not one block for each of %" PRIu64 " threads",
                     flw_gen_number(gen, OPTION_COUNT_OF_BLOCKS), thread_count);
        return;
    }
    uint32_t *blocks = calloc(thread_count * room, sizeof(*blocks));
    if (blocks == NULL) {
        flw_gen_fail(gen, "no memory for %llu blocks", (unsigned long long)count);
        return;
    }
    flw_gen_add_streams(gen, stream_count);
    for (uint64_t i = 0; i < thread_count; i++) {
        threads[i] = (struct thread){
            .stream = i % stream_count, .count = count, .blocks = blocks + i * room};
    }
    for (uint64_t i = 0; i < 2 * count * thread_count && !gen->has_failed; i++) {
        uint64_t turn = thread_count == 1 ? 0 : flw_gen_between(gen, 0, thread_count - 1);
        gen->context.thread = (uint32_t)turn;
        step(gen, &threads[turn]);
    }
    for (uint64_t i = 0; i < thread_count; i++) {
        gen->context.thread = (uint32_t)i;
        finish(gen, &threads[i]);
    }
    free(blocks);
}

static void run_kernels(struct flw_gen *gen)
{
    flw_gen_add_streams(gen, flw_gen_number(gen, OPTION_STREAMS));
    for (uint64_t i = 0; i < flw_gen_number(gen, OPTION_COUNT_OF_BLOCKS) && !gen->has_failed; i++) {
        uint64_t stream = i % flw_gen_number(gen, OPTION_STREAMS);
        flw_gen_give(gen, flw_gen_take(gen, KERNEL_BYTES, stream));
    }
}

static void run(struct flw_gen *gen)
{
    flw_gen_seed(gen, flw_gen_number(gen, OPTION_SEED));
    switch (flw_gen_number(gen, OPTION_PATTERN)) {
    case PATTERN_RMM:
        run_threads(gen, 1, 1);
        break;
    case PATTERN_MULTI_STREAM:
        run_threads(gen, flw_gen_number(gen, OPTION_THREADS), flw_gen_number(gen, OPTION_STREAMS));
        break;
    case PATTERN_KERNELS:
        run_kernels(gen);
        break;
    default: {
        struct flw_query_params params = {.queries = flw_gen_number(gen, OPTION_COUNT_OF_BLOCKS),
                                          .rows_max = flw_gen_number(gen, OPTION_ROWS),
                                          .device_bytes = flw_gen_number(gen, OPTION_CAP)};
        run_queries(gen, &params);
        break;
    }
    }
}

const struct flw_gen_kind flw_gen_random_kind = {
    .name = "random",
    .summary = "random sizes and lives as RMM's benchmarks draw them, and a database's queries",
    .example = "--count 10000 --max 256M -o random.ftext",
    .formula =
        "# 73 % of steps take a block of 1 byte to max, the rest free one; src/trace/gen_random.c\n",
    .version = 1,
    .options = options,
    .option_count = OPTION_COUNT,
    .word_help = pattern_help,
    .run = run,
};

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
 *   query          gen_query.c
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/bits.h"
#include "trace/gen_query.h"

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
        flw_query_run(gen, &params);
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

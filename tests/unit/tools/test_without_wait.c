/* SPDX-License-Identifier: Apache-2.0
 *
 * The least memory of an allocator without waits (flw_bound_without_wait): equal to the best of all choices for tiny
 * random programs, and between two bounds for longer ones.
 */
#include "support/test.h"

#include <string.h>

#include "base/bits.h"
#include "policies/policy.h"

#define OPS     512
#define BLOCKS  256
#define STREAMS 4

static struct flw_op ops[OPS];
static struct flw_program program;
static uint16_t homes[BLOCKS];
static uint64_t sizes[BLOCKS], now_units, live_bytes;

static uint64_t random_state;

static uint64_t draw_number(void)
{
    return flw_test_random(&random_state);
}

static void start(size_t stream_count)
{
    program = (struct flw_program){.ops = ops, .block_count = BLOCKS, .stream_count = stream_count};
    now_units = 0;
    live_bytes = 0;
}

static void add(uint64_t units, enum flw_op_kind kind, uint32_t block, uint16_t stream)
{
    assert_true(program.op_count < OPS && units >= now_units);
    ops[program.op_count++] = (struct flw_op){.size_bytes = sizes[block],
                                              .advance_units = units - now_units,
                                              .block = block,
                                              .stream = stream,
                                              .kind = (uint8_t)kind};
    now_units = units;
}

static void allocate(uint64_t units, uint32_t block, uint16_t stream, uint64_t bytes)
{
    sizes[block] = bytes;
    homes[block] = stream;
    live_bytes += bytes;
    program.max_live_bytes = flw_max(program.max_live_bytes, live_bytes);
    add(units, FLW_OP_ALLOC, block, stream);
}

static void use(uint64_t units, uint32_t block, uint16_t stream)
{
    add(units, FLW_OP_USE, block, stream);
}

static void give_back(uint64_t units, uint32_t block, uint16_t stream)
{
    live_bytes -= sizes[block];
    add(units, stream == homes[block] ? FLW_OP_FREE : FLW_OP_FREE_ELSEWHERE, block, stream);
}

static void expect(uint64_t lag_units, uint64_t bytes)
{
    assert_int_equal(flw_bound_without_wait(&program, lag_units), bytes);
}

/* ---- edges ---- */

TEST(nothing_is_needed_for_nothing)
{
    start(1);
    add(0, FLW_OP_PASS, 0, 0);
    expect(100, 0);
}

TEST(a_long_lag_and_a_late_clock_do_not_overflow)
{
    start(2);
    allocate(UINT64_MAX / 2, 0, 0, 100);
    give_back(UINT64_MAX / 2 + 1, 0, 0);
    allocate(UINT64_MAX / 2 + 5, 1, 1, 100);
    expect(UINT64_MAX / 4, 200);
    expect(5, 100);
}

/* ---- every choice ---- */

/* The same by times in the place of moments, byte by byte, each choice tried. */

struct byte {
    uint64_t ready_units, done_units; /* for the stream, for all */
    uint32_t block;                   /* BLOCKS: free */
    uint16_t stream;
};

struct trial {
    struct byte bytes[16];
    size_t count;
    uint64_t stream_done[STREAMS];
    bool is_user[BLOCKS][STREAMS];
};

static uint64_t lag, best;

static void try_from(const struct trial *from, size_t i, uint64_t units);

/* The block takes `left` more bytes: every allowed choice of each. */
static void try_bytes(const struct trial *trial, size_t i, uint64_t units, uint64_t left,
                      size_t first)
{
    const struct flw_op *op = &ops[i];
    if (trial->count >= best) {
        return;
    }
    if (left == 0) {
        struct trial next = *trial;
        next.stream_done[op->stream] = units + lag;
        try_from(&next, i + 1, units);
        return;
    }
    for (size_t k = first; k <= trial->count && k < 16; k++) {
        const struct byte *byte = &trial->bytes[k];
        if (k < trial->count && (byte->block != BLOCKS ||
                                 !(byte->done_units <= units ||
                                   (byte->stream == op->stream && byte->ready_units <= units)))) {
            continue;
        }
        struct trial next = *trial;
        next.count += k == trial->count;
        next.bytes[k].block = op->block;
        try_bytes(&next, i, units, left - 1, k + 1);
    }
}

static void try_free(struct trial *trial, const struct flw_op *op)
{
    uint64_t *done = &trial->stream_done[op->stream];
    uint64_t ready = 0;
    *done = flw_max(*done, trial->stream_done[homes[op->block]]);
    for (uint16_t s = 0; s < program.stream_count; s++) {
        if (s != op->stream && s != homes[op->block] && trial->is_user[op->block][s]) {
            ready = flw_max(ready, trial->stream_done[s]);
        }
    }
    for (size_t k = 0; k < trial->count; k++) {
        if (trial->bytes[k].block == op->block) {
            trial->bytes[k] = (struct byte){ready, flw_max(ready, *done), BLOCKS, op->stream};
        }
    }
}

static void try_from(const struct trial *from, size_t i, uint64_t units)
{
    struct trial trial = *from;
    for (; i < program.op_count; i++) {
        const struct flw_op *op = &ops[i];
        units += op->advance_units;
        if (op->kind == FLW_OP_ALLOC) {
            try_bytes(&trial, i, units, op->size_bytes, 0);
            return;
        }
        if (op->kind == FLW_OP_USE) {
            trial.stream_done[op->stream] = units + lag;
            trial.is_user[op->block][op->stream] = true;
        } else {
            try_free(&trial, op);
        }
    }
    best = flw_min(best, trial.count);
}

/* Drawn: up to `block_count` blocks of 1 to `most_bytes`, used and freed on any stream. */
static void draw(size_t block_count, uint64_t most_bytes, size_t most_alive)
{
    uint32_t alive[BLOCKS];
    size_t alive_count = 0;
    uint32_t block = 0;
    uint64_t units = 0;
    start(2 + draw_number() % (STREAMS - 1));
    while (block < block_count || alive_count != 0) {
        uint64_t dice = draw_number() % 8;
        uint16_t stream = (uint16_t)(draw_number() % program.stream_count);
        size_t which = alive_count == 0 ? 0 : draw_number() % alive_count;
        units += draw_number() % 4;
        if (block < block_count && alive_count < most_alive && (alive_count == 0 || dice < 4)) {
            alive[alive_count++] = block;
            allocate(units, block++, stream, 1 + draw_number() % most_bytes);
        } else if (dice % 4 == 0 && program.op_count + alive_count + block_count < OPS - BLOCKS) {
            use(units, alive[which], stream);
        } else {
            give_back(units, alive[which], dice < 6 ? homes[alive[which]] : stream);
            alive[which] = alive[--alive_count];
        }
    }
}

TEST(no_choice_of_bytes_holds_less)
{
    static const struct trial nothing;
    size_t above_count = 0;
    for (unsigned round = 0; round < 2000; round++) {
        draw(7, 2, 3);
        lag = 1 + draw_number() % 20;
        best = 15;
        try_from(&nothing, 0, 0);
        assert_true(best < 15);
        expect(lag, best);
        above_count += best > program.max_live_bytes;
    }
    assert_true(above_count > 200); /* in many rounds above the live bytes */
}

/* ---- between ---- */

/* One pool for each stream: the bytes held if no memory is passed to another stream, and a block's bytes are reusable
 * once the block's own stream may reuse the bytes. */
static uint64_t apart(uint64_t lag_units)
{
    uint64_t held[STREAMS] = {0}, peaks[STREAMS] = {0}, back_units[BLOCKS];
    uint64_t stream_done[STREAMS] = {0}, units = 0, sum = 0;
    bool is_out[BLOCKS] = {false}, is_user[BLOCKS][STREAMS] = {{false}};
    memset(back_units, 0xff, sizeof back_units);
    for (size_t i = 0; i < program.op_count; i++) {
        const struct flw_op *op = &ops[i];
        uint16_t home = homes[op->block];
        units += op->advance_units;
        for (uint32_t b = 0; b < BLOCKS; b++) {
            if (is_out[b] && back_units[b] <= units) {
                is_out[b] = false;
                held[homes[b]] -= sizes[b];
            }
        }
        if (op->kind == FLW_OP_ALLOC || op->kind == FLW_OP_USE) {
            stream_done[op->stream] = units + lag_units;
        }
        if (op->kind == FLW_OP_ALLOC) {
            is_out[op->block] = true;
            held[home] += op->size_bytes;
            peaks[home] = flw_max(peaks[home], held[home]);
        } else if (op->kind == FLW_OP_USE && op->stream != home) {
            is_user[op->block][op->stream] = true;
        } else if (op->kind == FLW_OP_FREE_ELSEWHERE) {
            uint64_t *done = &stream_done[op->stream];
            *done = flw_max(*done, stream_done[home]);
            back_units[op->block] = flw_max(units, *done);
        } else if (op->kind == FLW_OP_FREE) {
            back_units[op->block] = units;
        }
        for (uint16_t s = 0; s < STREAMS && back_units[op->block] != UINT64_MAX; s++) {
            if (is_user[op->block][s]) {
                back_units[op->block] = flw_max(back_units[op->block], stream_done[s]);
            }
        }
        if (op->kind == FLW_OP_FREE || op->kind == FLW_OP_FREE_ELSEWHERE) {
            if (back_units[op->block] <= units) {
                is_out[op->block] = false;
                held[home] -= op->size_bytes;
            }
        }
    }
    for (size_t s = 0; s < STREAMS; s++) {
        sum += peaks[s];
    }
    return sum;
}

TEST(it_lies_between_the_bound_and_a_pool_a_stream_and_grows_with_the_lag)
{
    size_t above_count = 0, below_count = 0;
    for (unsigned round = 0; round < 500; round++) {
        draw(100, 1000, 20);
        uint64_t before_bytes = program.max_live_bytes;
        for (uint64_t lag_units = 0; lag_units < 4000; lag_units = 2 * lag_units + 1) {
            uint64_t bytes = flw_bound_without_wait(&program, lag_units);
            uint64_t most_bytes = apart(lag_units);
            assert_true(lag_units != 0 || bytes == before_bytes);
            assert_true(bytes >= before_bytes);
            assert_true(bytes <= most_bytes);
            above_count += bytes > program.max_live_bytes;
            below_count += bytes < most_bytes;
            before_bytes = bytes;
        }
    }
    assert_true(above_count > 1000 && below_count > 1000);
}

static int seed_random(void **state)
{
    random_state = flw_test_seed("without_wait");
    return 0;
}

FLW_TEST_MAIN(seed_random, NULL)

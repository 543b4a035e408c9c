/* SPDX-License-Identifier: Apache-2.0
 *
 * property.host_waste: pinned bytes of libfallow-host for a mixed staging workload, relative to
 * the requested bytes at the peak; beside it PyTorch's rule for pinned memory: sizes rounded up to
 * powers of two, a free list for each size, no splitting and no release.
 *
 * The workload resembles a server's: index tensors (1 to 64 KiB) and token batches in each step,
 * key and value blocks (64 KiB to 4 MiB) that are swapped out, stay and return, chunks of weights
 * (16 to 256 MiB) during model changes; four streams. Work completes a lag after the submission,
 * in virtual time: the same seed produces the same numbers on every machine with jemalloc's usual
 * 4 KiB pages. With larger pages small blocks take more memory (host.h), which moves synchronising
 * calls to other steps. The test then requires only ANY_RATIO, the bound for any workload.
 *
 * Columns: live bytes at the peak; including blocks freed before the device was done ("used");
 * pinned bytes ("held"), relative to both; PyTorch's relative to used; sizes alone, rounded to
 * powers of two and to jemalloc's classes, relative to live bytes.
 *
 *   test_property_host_waste [--seed N] */
#include "support/test.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "fallow/host.h"
#include "support/sim.h"

#define KIB        ((uint64_t)1 << 10)
#define MIB        ((uint64_t)1 << 20)
#define STEPS      3000u
#define STEP_NS    1000000u /* of virtual time */
#define SLOTS      4096u
#define SHAPES     5u
#define LAYERS     120u
#define LIMIT      (64ull << 30)
#define MOST_RATIO 1.15
#define ANY_RATIO  1.3 /* promised in host.h for any workload */
#define MIXES      60u

enum stream_name {
    INPUT,
    SWAP_OUT,
    SWAP_IN,
    WEIGHTS,
    STREAMS
};

/* A block that is allocated, or a free that the device has not reached. */
struct slot {
    void *block;
    uint64_t bytes, until; /* the step of the free; 0: no block */
    enum stream_name stream;
};

struct in_flight {
    uint64_t bytes, done_ns;
};

/* PyTorch's pinned pool, by the power of two. */
struct rounded {
    uint64_t free_count[64], made_bytes;
};

struct workload {
    struct flw_sim sim;
    fallow_host *host;
    CUstream streams[STREAMS];
    struct slot slots[SLOTS];
    struct in_flight *queue; /* in the order of completion: one lag for all */
    size_t queue_begin, queue_end;
    struct rounded rounded;
    uint64_t shapes[SHAPES];
    uint64_t random, now_ns, lag_ns, step;
    uint64_t allocated_bytes, used_bytes, peak_allocated_bytes, peak_used_bytes, rounded_bytes,
        peak_rounded_bytes, class_bytes, peak_class_bytes;
};

struct figures {
    double over_allocated, over_used, rounded_over_used, rounding, most_ratio;
    uint64_t peak_used_bytes;
};

static uint64_t global_seed = 20261121;

static uint64_t between(struct workload *w, uint64_t low, uint64_t high)
{
    return low + flw_test_random(&w->random) % (high - low + 1);
}

/* Small ones are as likely as large ones, whatever the scale. */
static uint64_t spread(struct workload *w, uint64_t low, uint64_t high)
{
    uint64_t from = low, doublings = 0;
    while (from * 2 <= high) {
        from *= 2;
        doublings++;
    }
    from = low << between(w, 0, doublings);
    uint64_t to = from * 2 < high ? from * 2 : high;
    return between(w, from, to);
}

static unsigned log2_up(uint64_t x)
{
    return x <= 1 ? 0 : 64u - (unsigned)__builtin_clzll(x - 1);
}

/* Return jemalloc's size: four classes for each doubling, with a page of padding
 * above the slabs. */
static uint64_t class_of(uint64_t bytes)
{
    uint64_t step = 1ull << (log2_up(bytes) > 3 ? log2_up(bytes) - 3 : 0);
    uint64_t whole = (bytes + step - 1) / step * step;
    return whole > 14 * KIB ? whole + 4 * KIB : whole;
}

/* ---- time */

static void complete_due(struct workload *w)
{
    while (w->queue_begin < w->queue_end && w->queue[w->queue_begin].done_ns <= w->now_ns) {
        uint64_t bytes = w->queue[w->queue_begin++].bytes;
        w->used_bytes -= bytes;
        w->rounded.free_count[log2_up(bytes)]++;
    }
}

static void advance(struct workload *w, uint64_t ns)
{
    w->sim.advance(ns);
    w->now_ns = flw_sim_read_ledger(&w->sim).clock_ns; /* a synchronising call advances the
                                                           clock too */
    complete_due(w);
}

/* ---- blocks */

static void allocate(struct workload *w, uint64_t bytes, uint64_t steps, enum stream_name stream)
{
    static unsigned next;
    while (w->slots[next % SLOTS].block != NULL) {
        next++;
    }
    struct slot *slot = &w->slots[next % SLOTS];
    *slot = (struct slot){.bytes = bytes, .until = w->step + steps, .stream = stream};
    w->allocated_bytes += bytes;
    w->used_bytes += bytes; /* now: the call may wait for the device */
    w->peak_allocated_bytes =
        w->allocated_bytes > w->peak_allocated_bytes ? w->allocated_bytes : w->peak_allocated_bytes;
    w->peak_used_bytes = w->used_bytes > w->peak_used_bytes ? w->used_bytes : w->peak_used_bytes;
    assert_int_equal(fallow_host_alloc(w->host, bytes, &slot->block), FALLOW_OK);
    unsigned power = log2_up(bytes);
    w->class_bytes += class_of(bytes);
    if (w->class_bytes > w->peak_class_bytes) {
        w->peak_class_bytes = w->class_bytes;
    }
    w->rounded_bytes += 1ull << power;
    if (w->rounded_bytes > w->peak_rounded_bytes) {
        w->peak_rounded_bytes = w->rounded_bytes;
    }
    if (w->rounded.free_count[power] > 0) {
        w->rounded.free_count[power]--;
    } else {
        w->rounded.made_bytes += 1ull << power;
    }
}

/* Queue the copy and free the block right after. */
static void free_block(struct workload *w, struct slot *slot)
{
    flw_sim_range range = {.address = (uintptr_t)slot->block, .bytes = slot->bytes};
    assert_int_equal(w->sim.touch(w->streams[slot->stream], &range, 1), 0);
    assert_int_equal(fallow_host_free(w->host, slot->block, w->streams[slot->stream]), FALLOW_OK);
    w->allocated_bytes -= slot->bytes;
    w->rounded_bytes -= 1ull << log2_up(slot->bytes);
    w->class_bytes -= class_of(slot->bytes);
    w->queue[w->queue_end++] =
        (struct in_flight){.bytes = slot->bytes, .done_ns = w->now_ns + w->lag_ns};
    *slot = (struct slot){0};
}

static void give_due_back(struct workload *w)
{
    for (unsigned i = 0; i < SLOTS; i++) {
        if (w->slots[i].block != NULL && w->slots[i].until <= w->step) {
            free_block(w, &w->slots[i]);
        }
    }
}

/* ---- a server's work */

static void one_step(struct workload *w)
{
    uint64_t layer = w->step % 1000;
    for (uint64_t n = between(w, 6, 20); n > 0; n--) {
        allocate(w, spread(w, 1 * KIB, 64 * KIB), 0, INPUT);
    }
    allocate(w, between(w, 2 * KIB, 256 * KIB), 1, INPUT);
    if (between(w, 0, 9) < 4) { /* a sequence leaves the device for a while */
        uint64_t bytes = spread(w, 64 * KIB, 4 * MIB), steps = between(w, 5, 120);
        for (uint64_t n = between(w, 1, 12); n > 0; n--) {
            allocate(w, bytes, steps, between(w, 0, 1) ? SWAP_OUT : SWAP_IN);
        }
    }
    if (layer == 0) { /* another model: new sizes, the same in each layer */
        for (unsigned i = 0; i < SHAPES; i++) {
            w->shapes[i] = spread(w, 16 * MIB, 256 * MIB);
        }
    }
    if (layer < LAYERS) { /* three chunks at a time */
        allocate(w, w->shapes[layer % SHAPES], 2, WEIGHTS);
    }
    give_due_back(w);
    advance(w, STEP_NS);
    w->step++;
}

/* Return MOST_RATIO if small blocks share pages, else ANY_RATIO. */
static double most_ratio_of(fallow_pool *pool)
{
    fallow_host *host = NULL;
    void *blocks[2];
    fallow_host_config config = {.struct_size = sizeof config, .limit_bytes = LIMIT};
    assert_int_equal(fallow_host_create(pool, &config, &host), FALLOW_OK);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(fallow_host_alloc(host, 64, &blocks[i]), FALLOW_OK);
    }
    uint64_t pages[] = {(uintptr_t)blocks[0] / 4096, (uintptr_t)blocks[1] / 4096};
    fallow_host_destroy(host);
    return pages[0] == pages[1] ? MOST_RATIO : ANY_RATIO;
}

static struct figures run(uint64_t lag_ns, uint32_t slack_percent)
{
    struct workload *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->queue = calloc(STEPS * 64u + SLOTS, sizeof *w->queue);
    assert_non_null(w->queue);
    w->random = global_seed;
    w->lag_ns = lag_ns;
    assert_true(flw_sim_open(&w->sim));
    flw_sim_config world = flw_sim_config_default(1);
    world.schedule = FLW_SIM_CLOCK;
    world.lag_ns = lag_ns;
    flw_sim_begin(&w->sim, &world);
    for (unsigned i = 0; i < STREAMS; i++) {
        assert_int_equal(w->sim.cu.cuStreamCreate(&w->streams[i], CU_STREAM_NON_BLOCKING), 0);
    }
    fallow_pool *pool = NULL;
    fallow_pool_config device = {.struct_size = sizeof device, .driver = "sim"};
    assert_int_equal(fallow_pool_create(&device, &pool), FALLOW_OK);
    fallow_host_config config = {.struct_size = sizeof config,
                                 .limit_bytes = LIMIT,
                                 .slack_percent = slack_percent,
                                 .wait_ms = UINT32_MAX};
    assert_int_equal(fallow_host_create(pool, &config, &w->host), FALLOW_OK);
    while (w->step < STEPS) {
        one_step(w);
    }
    fallow_host_stats stats;
    fallow_host_stats_init(&stats);
    assert_int_equal(fallow_host_validate(w->host), FALLOW_OK);
    assert_int_equal(fallow_host_get_stats(w->host, &stats), FALLOW_OK);
    assert_int_equal(stats.peak_requested_bytes, w->peak_allocated_bytes);
    struct figures figures = {
        .over_allocated = (double)stats.peak_reserved_bytes / (double)w->peak_allocated_bytes,
        .over_used = (double)stats.peak_reserved_bytes / (double)w->peak_used_bytes,
        .rounded_over_used = (double)w->rounded.made_bytes / (double)w->peak_used_bytes,
        .rounding = (double)w->peak_rounded_bytes / (double)w->peak_allocated_bytes,
        .most_ratio = most_ratio_of(pool),
        .peak_used_bytes = w->peak_used_bytes};
    char slack[16];
    snprintf(slack, sizeof slack, slack_percent == UINT32_MAX ? "any" : "10");
    print_message("%6.1f %6s %9.0f %9.0f %9.0f %7.3f %7.3f %9.3f %7.3f %8.3f %6" PRIu64 " %6" PRIu64
                  " %7" PRIu64 " %8" PRIu64 "\n",
                  (double)lag_ns / 1e6, slack, (double)w->peak_allocated_bytes / (double)MIB,
                  (double)w->peak_used_bytes / (double)MIB,
                  (double)stats.peak_reserved_bytes / (double)MIB, figures.over_allocated,
                  figures.over_used, figures.rounded_over_used, figures.rounding,
                  (double)w->peak_class_bytes / (double)w->peak_allocated_bytes, stats.grow_count,
                  stats.release_count, stats.event_count, stats.alloc_count);
    fallow_host_destroy(w->host);
    fallow_pool_destroy(pool);
    flw_sim_close(&w->sim);
    free(w->queue);
    free(w);
    return figures;
}

static void a_mixed_workload_wastes_little(void **state)
{
    print_message("lag ms  slack  live MiB  used MiB  held MiB    live    used  PyTorch's  powers  "
                  "classes  grown  given  events   blocks\n");
    for (unsigned i = 0; i < 4; i++) {
        static const uint64_t lags_ns[] = {0, 500000, 2500000, 10000000};
        struct figures figures = run(lags_ns[i], 0);
        assert_true(figures.over_used <= figures.most_ratio);
        /* If work completes before the next step, only live blocks need to be held. */
        assert_true(lags_ns[i] >= STEP_NS || figures.over_allocated <= figures.most_ratio);
    }
    (void)run(2500000, UINT32_MAX);
}

/* ---- random replacement of blocks of a few sizes */

struct mix {
    unsigned count, one_large_of;      /* blocks; one in `one_large_of` is large (0: none) */
    uint64_t small_bytes, large_bytes; /* at most */
    uint64_t lag_ns;
};

static void replace_at_random(fallow_host *host, struct flw_sim *sim, const struct mix *mix,
                              uint64_t *random)
{
    CUstream stream;
    void **blocks = calloc(mix->count, sizeof *blocks);
    assert_non_null(blocks);
    assert_int_equal(sim->cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 0);
    for (unsigned i = 0; i < 30 * mix->count; i++) {
        unsigned which = i < mix->count ? i : (unsigned)(flw_test_random(random) % mix->count);
        bool is_large = mix->one_large_of != 0 && which % mix->one_large_of == 0;
        uint64_t most = is_large ? mix->large_bytes : mix->small_bytes;
        flw_sim_range range = {.address = (uintptr_t)blocks[which], .bytes = 1};
        if (blocks[which] != NULL) {
            assert_int_equal(sim->touch(stream, &range, 1), 0);
            assert_int_equal(fallow_host_free(host, blocks[which], stream), FALLOW_OK);
            sim->advance(mix->lag_ns / 8 + 1);
        }
        assert_int_equal(
            fallow_host_alloc(host, 1 + flw_test_random(random) % most, &blocks[which]), FALLOW_OK);
    }
    free(blocks);
}

/* Draw a number between the powers of two; each doubling is equally likely. */
static uint64_t drawn(uint64_t *random, unsigned low_log2, unsigned high_log2)
{
    uint64_t low = 1ull << (low_log2 + flw_test_random(random) % (high_log2 - low_log2));
    return low + flw_test_random(random) % low;
}

/* slack_percent: "1.3 times the most that was ever in use, and 8 MiB". */
static void slack_percent_bounds_what_is_pinned_of_any_mix(void **state)
{
    uint64_t random = global_seed;
    double worst = 0;
    for (size_t i = 0; i < MIXES; i++) {
        struct flw_sim sim;
        fallow_pool *pool = NULL;
        fallow_host *host = NULL;
        struct mix mix = {.count = (unsigned)drawn(&random, 3, 11),
                          .one_large_of = (unsigned)(flw_test_random(&random) % 5),
                          .small_bytes = drawn(&random, 9, 17),
                          .large_bytes = drawn(&random, 16, 23),
                          .lag_ns = flw_test_random(&random) % 3 * 1000000};
        flw_sim_config world = flw_sim_config_default(1);
        world.schedule = FLW_SIM_CLOCK;
        world.lag_ns = mix.lag_ns;
        assert_true(flw_sim_open(&sim));
        flw_sim_begin(&sim, &world);
        fallow_pool_config device = {.struct_size = sizeof device, .driver = "sim"};
        fallow_host_config config = {
            .struct_size = sizeof config, .limit_bytes = LIMIT, .wait_ms = UINT32_MAX};
        assert_int_equal(fallow_pool_create(&device, &pool), FALLOW_OK);
        assert_int_equal(fallow_host_create(pool, &config, &host), FALLOW_OK);
        replace_at_random(host, &sim, &mix, &random);
        fallow_host_stats stats;
        fallow_host_stats_init(&stats);
        assert_int_equal(fallow_host_get_stats(host, &stats), FALLOW_OK);
        double ratio =
            ((double)stats.peak_reserved_bytes - 8.0 * (double)MIB) / (double)stats.peak_used_bytes;
        worst = ratio > worst ? ratio : worst;
        if (ratio > 1.3) {
            fail_msg("%u blocks, one of %u up to %" PRIu64 " bytes, others up to %" PRIu64
                     ": %" PRIu64 " bytes in use, %" PRIu64 " pinned",
                     mix.count, mix.one_large_of, mix.large_bytes, mix.small_bytes,
                     stats.peak_used_bytes, stats.peak_reserved_bytes);
        }
        fallow_host_destroy(host);
        fallow_pool_destroy(pool);
        flw_sim_close(&sim);
    }
    print_message("%u mixes, the worst %.3f times what was in use, and 8 MiB\n", MIXES, worst);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mixed_workload_wastes_little),
        cmocka_unit_test(slack_percent_bounds_what_is_pinned_of_any_mix)};
    if (argc == 3 && strcmp(argv[1], "--seed") == 0) {
        global_seed = strtoull(argv[2], NULL, 0);
    }
    print_message("seed %" PRIu64 "\n", global_seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

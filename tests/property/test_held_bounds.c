/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: bounds on the memory that a pool holds, and on the driver calls of a first large block, on loads
 * with changing sizes, where work completes at once. The simulated device counts the memory held and checks every access; the
 * test counts the live blocks, with sizes rounded as documented. A bound is in thousandths of the peak of live bytes,
 * beside 16 MiB.
 *
 *   test_held_bounds [PART [SEED]]   run only the loads with PART in their names, or with another seed
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/random.h"
#include "fallow/fallow.h"
#include "memory/size_class.h"
#include "support/sim.h"

#define KIB          ((uint64_t)1 << 10)
#define MIB          ((uint64_t)1 << 20)
#define GIB          ((uint64_t)1 << 30)
#define BLOCKS_MOST  24000
#define STREAMS_MOST 4
#define PHASE        30000 /* operations until the sizes change */
#define BALANCED     FALLOW_BALANCED
#define MEMORY_FIRST FALLOW_MEMORY_FIRST

/* Each operation frees one of `block_count` blocks at random and allocates another if `most_live` permits. */
struct load {
    const char *name;
    fallow_economy economy;
    fallow_order order;
    fallow_page_source source;
    unsigned stream_count, block_count, operations;
    uint64_t most_live; /* 0: no limit */
    struct sizes {
        uint64_t least, most;
        bool is_uniform; /* otherwise each power of two is as likely as the others */
    } sizes[2];          /* of alternate phases; the second may be empty */
    unsigned most_held;
    unsigned most_trimmed; /* of 10 GiB live at a final trim to zero; 0: no trim */
};

#define STREAM_ORDER FALLOW_ORDER_STREAM, FALLOW_PAGES_HANDLES
#define SIZES_CHANGE              \
    {                             \
        {256, 64 * KIB, false},   \
        {                         \
            MIB, 256 * MIB, false \
        }                         \
    }
#define CHANGING(streams, gib) STREAM_ORDER, streams, 24000, 300000, (gib)*GIB, SIZES_CHANGE
#define STEADY(least, uniform)       \
    STREAM_ORDER, 1, 3000, 60000, 0, \
    {                                \
        {                            \
            least, MIB, uniform      \
        }                            \
    }
#define EQUAL                      \
    1, 1000, 4000, 0,              \
    {                              \
        {                          \
            1100000, 1100000, true \
        }                          \
    }

static const struct load loads[] = {
    {"32 GiB, sizes change, balanced", BALANCED, CHANGING(1, 32), 1170, 0},
    {"32 GiB, sizes change, memory first", MEMORY_FIRST, CHANGING(1, 32), 1050, 0},
    {"32 GiB, sizes change, four streams, balanced", BALANCED, CHANGING(4, 32), 1300, 0},
    {"32 GiB, sizes change, four streams, memory first", MEMORY_FIRST, CHANGING(4, 32), 1100, 0},
    {"4 GiB, sizes change, balanced", BALANCED, CHANGING(1, 4), 1260, 0},
    {"4 GiB, sizes change, memory first", MEMORY_FIRST, CHANGING(1, 4), 1120, 0},
    {"4 GiB, sizes change, four streams, balanced", BALANCED, CHANGING(4, 4), 1350, 0},
    {"4 GiB, sizes change, four streams, memory first", MEMORY_FIRST, CHANGING(4, 4), 1150, 0},
    {"512 B to 1 MiB, balanced", BALANCED, STEADY(512, false), 1150, 0},
    {"512 B to 1 MiB, memory first", MEMORY_FIRST, STEADY(512, false), 1120, 0},
    {"512 B to 1 MiB, uniform, memory first", MEMORY_FIRST, STEADY(512, true), 1060, 0},
    {"300 KB to 1 MiB, uniform, memory first", MEMORY_FIRST, STEADY(300000, true), 1060, 0},
    {"1.1 MB, segments", BALANCED, FALLOW_ORDER_STREAM, FALLOW_PAGES_SEGMENTS, EQUAL, 1120, 0},
    {"1.1 MB, context order", BALANCED, FALLOW_ORDER_CONTEXT, FALLOW_PAGES_AUTOMATIC, EQUAL, 1990,
     0},
    {"mixed sizes, trimmed",
     BALANCED,
     STREAM_ORDER,
     1,
     1000,
     20000,
     0,
     {{256, 256 * MIB, false}},
     1170,
     1210},
};

struct block {
    void *ptr;
    uint64_t bytes; /* live bytes */
    CUstream stream;
};

static struct flw_sim sim;
static CUstream streams[STREAMS_MOST];
static struct block blocks[BLOCKS_MOST];
static uint64_t live_bytes, peak_live_bytes;

static void must(fallow_status status)
{
    if (status != FALLOW_OK) {
        fprintf(stderr, "held_bounds: a call returned %s\n", fallow_status_name(status));
        exit(1);
    }
}

static uint64_t draw(const struct sizes *sizes, uint64_t *random)
{
    uint64_t least = sizes->least, most = sizes->most;
    if (!sizes->is_uniform) {
        least <<= flw_random_next(random) % flw_log2_floor(most / least);
        most = flw_min(2 * least, most);
    }
    return least + flw_random_next(random) % (most - least + 1);
}

static fallow_pool *begin(const struct load *load)
{
    fallow_pool *pool = NULL;
    fallow_pool_config config;
    flw_sim_config world = flw_sim_config_default(1);
    world.schedule = FLW_SIM_CLOCK;
    world.check = 1;
    flw_sim_begin(&sim, &world);
    for (unsigned i = 0; i < STREAMS_MOST; i++) {
        (void)sim.cu.cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING);
    }
    fallow_pool_config_init(&config);
    config.driver = "sim";
    config.economy = load->economy;
    config.order = load->order;
    config.page_source = load->source;
    must(fallow_pool_create(&config, &pool));
    memset(blocks, 0, sizeof blocks);
    live_bytes = peak_live_bytes = 0;
    return pool;
}

static void free_block(fallow_pool *pool, struct block *block)
{
    if (block->ptr != NULL) {
        must(fallow_free(pool, block->ptr, block->stream));
        live_bytes -= block->bytes;
        block->ptr = NULL;
    }
}

static void replace(fallow_pool *pool, const struct load *load, const struct sizes *sizes,
                    uint64_t *random)
{
    struct block *block = &blocks[flw_random_next(random) % load->block_count];
    free_block(pool, block);
    uint64_t bytes = draw(sizes, random);
    block->stream = streams[flw_random_next(random) % load->stream_count];
    block->bytes = flw_request_usable_bytes(bytes);
    if (load->most_live != 0 && live_bytes + block->bytes > load->most_live) {
        return;
    }
    must(fallow_alloc(pool, bytes, block->stream, &block->ptr));
    live_bytes += block->bytes;
    peak_live_bytes = flw_max(peak_live_bytes, live_bytes);
    flw_sim_range range = {(uint64_t)(uintptr_t)block->ptr, bytes, 1, 0};
    (void)sim.touch(block->stream, &range, 1);
    sim.advance(1);
}

/* Print the result; true if the bound is exceeded. */
static bool is_over(const struct load *load, const char *what, uint64_t held_bytes, uint64_t live,
                    unsigned most)
{
    uint64_t ratio = (held_bytes - flw_min(held_bytes, 16 * MIB)) * 1000 / live;
    printf("%s: %s %llu MiB, live %llu MiB: %llu thousandths and 16 MiB, at most %u%s\n",
           load->name, what, (unsigned long long)(held_bytes / MIB),
           (unsigned long long)(live / MIB), (unsigned long long)ratio, most,
           ratio > most ? ": OVER" : "");
    return ratio > most;
}

/* True if a bound is exceeded or a rule is broken. */
static bool run(const struct load *load, uint64_t random)
{
    fallow_pool *pool = begin(load);
    for (unsigned i = 0; i < load->operations; i++) {
        bool is_second = load->sizes[1].most != 0 && i / PHASE % 2 == 1;
        replace(pool, load, &load->sizes[is_second], &random);
    }
    bool failed = is_over(load, "held", flw_sim_read_ledger(&sim).peak_given_bytes, peak_live_bytes,
                          load->most_held);
    if (load->most_trimmed != 0) {
        size_t released;
        while (live_bytes > 10 * GIB) {
            free_block(pool, &blocks[flw_random_next(&random) % load->block_count]);
        }
        must(fallow_pool_trim(pool, 0, UINT64_MAX, &released));
        failed |= is_over(load, "after a trim", flw_sim_read_ledger(&sim).given_bytes, live_bytes,
                          load->most_trimmed);
    }
    for (unsigned i = 0; i < load->block_count; i++) {
        free_block(pool, &blocks[i]);
    }
    must(fallow_pool_validate(pool));
    fallow_pool_destroy(pool);
    return flw_sim_print_violations(&sim) > 0 || failed;
}

/* "The first 512 MiB of a pool, and of a trimmed one, take at most 24 driver calls and 4 ms of modelled time." True if
 * that is exceeded or a rule is broken. */
static bool is_first_slow(void)
{
    static const struct load load = {.economy = BALANCED, .source = FALLOW_PAGES_HANDLES};
    fallow_pool *pool = begin(&load);
    bool is_slow = false;
    for (unsigned round = 0; round < 2; round++) {
        void *ptr = NULL;
        size_t released;
        flw_sim_ledger before = flw_sim_read_ledger(&sim);
        must(fallow_alloc(pool, 512 * MIB, streams[0], &ptr));
        flw_sim_ledger after = flw_sim_read_ledger(&sim);
        uint64_t calls = after.call_count - before.call_count;
        uint64_t us = (after.modelled_host_ns - before.modelled_host_ns) / 1000;
        printf("first 512 MiB%s: %llu driver calls, %llu us, at most 24 and 4000\n",
               round == 0 ? "" : ", trimmed", (unsigned long long)calls, (unsigned long long)us);
        is_slow |= calls > 24 || us > 4000;
        must(fallow_free(pool, ptr, streams[0]));
        must(fallow_pool_trim(pool, 0, UINT64_MAX, &released));
    }
    fallow_pool_destroy(pool);
    return flw_sim_print_violations(&sim) > 0 || is_slow;
}

int main(int argc, char **argv)
{
    unsigned failures = 0, load_count = 0;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 2;
    if (!flw_sim_open(&sim)) {
        return 1;
    }
    for (size_t i = 0; i < sizeof loads / sizeof *loads; i++) {
        if (argc < 2 || strstr(loads[i].name, argv[1]) != NULL) {
            failures += run(&loads[i], seed);
            load_count++;
        }
    }
    if (load_count == 0) {
        fprintf(stderr, "held_bounds: no load has '%s' in its name\n", argv[1]);
        failures++;
    }
    failures += is_first_slow();
    flw_sim_close(&sim);
    return failures != 0;
}

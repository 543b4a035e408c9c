/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the proof that no wild pointer is taken for a block: millions of interior, foreign, stale,
 * bit-flipped and random values given to the public API are all refused and change nothing.
 */
#include "support/test.h"

#include <stdbool.h>

#include "fallow/fallow.h"
#include "support/sim.h"

#define WILD   20000000u
#define BLOCKS 2048
#define TABLE  (8 * BLOCKS)

struct bed {
    struct flw_sim sim;
    fallow_pool *pool, *other;
    CUstream stream;
    uint64_t live[BLOCKS], size[BLOCKS], foreign[64], stale[BLOCKS];
    uint64_t table[TABLE]; /* live pointers, open addressing */
    uint64_t seed;
};

static struct bed bed;

static uint64_t *place_of(uint64_t address)
{
    uint64_t at = (address * 0x9e3779b97f4a7c15ull) >> 50; /* 14 bits: TABLE */
    while (bed.table[at] != 0 && bed.table[at] != address) {
        at = (at + 1) % TABLE;
    }
    return &bed.table[at];
}

static uint64_t allocate(fallow_pool *pool, uint64_t size)
{
    void *ptr = NULL;
    assert_int_equal(fallow_alloc(pool, size, bed.stream, &ptr), FALLOW_OK);
    return (uint64_t)(uintptr_t)ptr;
}

/* Fill with slab classes and runs, with holes between them. */
static void fill_pools(void)
{
    for (unsigned i = 0; i < BLOCKS; i++) {
        uint64_t r = flw_test_random(&bed.seed);
        uint64_t log2 = 4 + r % 18;
        bed.size[i] = (1ull << log2) + (r >> 8) % (1ull << log2);
        bed.stale[i] = allocate(bed.pool, bed.size[i]);
        bed.live[i] = allocate(bed.pool, bed.size[i]);
    }
    for (unsigned i = 0; i < 64; i++) {
        bed.foreign[i] = allocate(bed.other, 1ull << (8 + i % 16));
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        void *ptr = (void *)(uintptr_t)bed.stale[i];
        assert_int_equal(fallow_free(bed.pool, ptr, bed.stream), FALLOW_OK);
        *place_of(bed.live[i]) = bed.live[i];
    }
}

static uint64_t wild_pointer(void)
{
    uint64_t r = flw_test_random(&bed.seed);
    unsigned i = (unsigned)((r >> 8) % BLOCKS);
    switch (r % 8) {
    case 0: /* inside a live block */
        return bed.live[i] + 1 + (r >> 24) % bed.size[i];
    case 1: /* inside it, at an address where a smaller class could begin */
        return bed.live[i] + (1 + (r >> 24) % 8) * 256;
    case 2:
        return bed.live[i] ^ (1ull << (r >> 24) % 64);
    case 3:
        return bed.live[i] ^ (1ull << (r >> 24) % 64) ^ (1ull << (r >> 32) % 64);
    case 4: /* freed before, or a few bytes below it */
        return bed.stale[i] - (r >> 24) % 8;
    case 5: /* another pool's */
        return bed.foreign[i % 64];
    case 6: /* near: any byte of the neighbourhood */
        return bed.live[i] + (r >> 24) % (1ull << 28) - (1ull << 27);
    default:
        return flw_test_random(&bed.seed);
    }
}

static uint64_t live_bytes(void)
{
    fallow_stats stats;
    fallow_stats_init(&stats);
    assert_int_equal(fallow_pool_get_stats(bed.pool, &stats), FALLOW_OK);
    return stats.live_bytes;
}

static fallow_status give_wild(uint64_t value, unsigned how)
{
    void *ptr = (void *)(uintptr_t)value;
    switch (how % 16) {
    case 0:
        return fallow_free_sized(bed.pool, ptr, 4096, bed.stream);
    case 1:
        return fallow_record_use(bed.pool, ptr, bed.stream);
    default:
        return fallow_free(bed.pool, ptr, bed.stream);
    }
}

TEST(no_wild_pointer_is_taken_for_a_block)
{
    fill_pools();
    uint64_t before = live_bytes(), tried = 0, accepted = 0;
    for (unsigned i = 0; tried < WILD; i++) {
        uint64_t value = wild_pointer();
        if (value == 0 || *place_of(value) == value) {
            continue; /* right by chance */
        }
        tried++;
        fallow_status status = give_wild(value, i);
        if (status != FALLOW_INVALID_POINTER) {
            accepted++;
            print_message("0x%llx: %s\n", (unsigned long long)value, fallow_status_name(status));
            assert_true(accepted < 10);
        }
    }
    assert_true(accepted == 0);
    assert_true(live_bytes() == before);
    print_message("%llu wild pointers, %llu accepted\n", (unsigned long long)tried,
                  (unsigned long long)accepted);
}

TEST(a_block_survives_them_and_is_returned_once)
{
    for (unsigned i = 0; i < BLOCKS; i++) {
        void *ptr = (void *)(uintptr_t)bed.live[i];
        assert_int_equal(fallow_free(bed.pool, ptr, bed.stream), FALLOW_OK);
        assert_int_equal(fallow_free(bed.pool, ptr, bed.stream), FALLOW_INVALID_POINTER);
    }
    assert_true(live_bytes() == 0);
}

static int begin(void **state)
{
    if (!flw_sim_open(&bed.sim)) {
        return -1;
    }
    flw_sim_config config = flw_sim_config_default(bed.seed);
    config.schedule = FLW_SIM_CLOCK;
    (void)flw_sim_begin(&bed.sim, &config);
    fallow_pool_config pool_config;
    fallow_pool_config_init(&pool_config);
    pool_config.driver = "sim";
    bool is_made = fallow_pool_create(&pool_config, &bed.pool) == FALLOW_OK &&
                   fallow_pool_create(&pool_config, &bed.other) == FALLOW_OK &&
                   bed.sim.cu.cuStreamCreate(&bed.stream, 0) == CUDA_SUCCESS;
    return is_made ? 0 : -1;
}

static int end(void **state)
{
    fallow_pool_destroy(bed.pool);
    fallow_pool_destroy(bed.other);
    bool is_clean =
        flw_sim_print_violations(&bed.sim) == 0 && flw_sim_read_ledger(&bed.sim).given_bytes == 0;
    return is_clean ? 0 : -1;
}

int main(void)
{
    bed.seed = flw_test_seed("unit.page_map");
    return _cmocka_run_group_tests("tests", flw_tests()->rows, flw_tests()->count, begin, end);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the bound on host memory: with 10^6 live blocks of any class the pool's tables take at
 * most 64 B for each, by its own count; printed beside it: resident memory including the simulated
 * driver. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fallow/fallow.h"
#include "memory/size_class.h"
#include "support/sim.h"

#if defined(FLW_TSAN)
#define CLASS_STEP 16u /* a class takes seconds there */
#else
#define CLASS_STEP 1u
#endif
#define BLOCKS     1000000u
#define MOST_BYTES 64.0

static uint64_t resident_bytes(void)
{
    char text[128] = "";
    char *total_end = text, *end = text;
    FILE *file = fopen("/proc/self/statm", "r"); /* pages: in all, resident, ... */
    if (file != NULL && fgets(text, sizeof text, file) != NULL) {
        (void)strtoull(text, &total_end, 10);
    }
    uint64_t resident_pages = strtoull(total_end, &end, 10);
    if (total_end == text || end == total_end) {
        fprintf(stderr, "host_bytes: /proc/self/statm cannot be read\n");
        exit(1);
    }
    fclose(file);
    return resident_pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static bool run(const struct flw_sim *sim, size_t size, void **ptrs)
{
    flw_sim_config world = flw_sim_config_default(1);
    fallow_pool_config config;
    fallow_pool *pool = NULL;
    fallow_stats stats;
    CUstream stream = NULL;
    world.device_bytes = 2ull << 40;
    flw_sim_begin(sim, &world);
    fallow_pool_config_init(&config);
    fallow_stats_init(&stats);
    config.driver = "sim";
    if (sim->cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS ||
        fallow_pool_create(&config, &pool) != FALLOW_OK) {
        fprintf(stderr, "host_bytes: no pool\n");
        return false;
    }
    memset(ptrs, 0xFF, BLOCKS * sizeof *ptrs); /* resident before the measurement */
    uint64_t before = resident_bytes();
    for (size_t i = 0; i < BLOCKS; i++) {
        if (fallow_alloc(pool, size, stream, &ptrs[i]) != FALLOW_OK) {
            fprintf(stderr, "host_bytes: no block %zu of %zu bytes\n", i, size);
            return false;
        }
    }
    uint64_t after = resident_bytes();
    bool good = fallow_pool_get_stats(pool, &stats) == FALLOW_OK && stats.live_count == BLOCKS;
    double counted = (double)stats.host_bytes / BLOCKS;
    double resident = after > before ? (double)(after - before) / BLOCKS : 0;
    good = good && stats.host_bytes != 0 && counted <= MOST_BYTES;
    printf(
        "%7zu B: %.1f B of host memory a live block, %.1f resident with the simulated driver's: %s\n",
        size, counted, resident, good ? "good" : "BROKEN");
    for (size_t i = 0; i < BLOCKS; i++) {
        good = fallow_free(pool, ptrs[i], stream) == FALLOW_OK && good;
    }
    good = fallow_pool_validate(pool) == FALLOW_OK && good;
    fallow_pool_destroy(pool);
    return good && flw_sim_read_ledger(sim).given_bytes == 0;
}

int main(void)
{
    struct flw_sim sim;
    bool good = flw_sim_open(&sim);
    void **ptrs = malloc(BLOCKS * sizeof *ptrs);
    for (unsigned c = 0; good && ptrs != NULL && c < FLW_CLASS_COUNT; c += CLASS_STEP) {
        good = run(&sim, flw_class_bytes(c), ptrs);
    }
    free(ptrs);
    return good ? 0 : 1;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a program that uses many streams; stream_cost.py counts the instructions.
 *
 *   stream_cost touch COUNT        allocate and free a block on each of COUNT streams; all stay alive
 *   stream_cost go COUNT           destroy each stream without a retire; the next one has the same handle
 *   stream_cost vanish COUNT       like `go` with blocks of 8 MiB, and every handle is new
 *   stream_cost fade COUNT         like `vanish` with small blocks
 *   stream_cost beside COUNT       like `fade` beside 2,000 live streams
 *   stream_cost retire COUNT       like `go`, but retire each stream first
 *   stream_cost die COUNT          like `go` with streams_may_die
 *
 * Prints the memory of the pool at the end.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/sim.h"

#include "fallow/fallow.h"

static size_t bytes = 5000;

static void must(bool is_so, const char *what)
{
    if (!is_so) {
        fprintf(stderr, "stream_cost: %s\n", what);
        exit(1);
    }
}

static void use(const struct flw_sim *sim, fallow_pool *pool, CUstream stream)
{
    void *ptr = NULL;
    must(fallow_alloc(pool, bytes, stream, &ptr) == FALLOW_OK, "no block");
    flw_sim_range range = {(uint64_t)(uintptr_t)ptr, bytes, 1, 0};
    must((sim->touch)(stream, &range, 1) == 0, "no touch");
    must(fallow_free(pool, ptr, stream) == FALLOW_OK, "no free");
}

int main(int count, char **words)
{
    struct flw_sim sim;
    fallow_pool_config config;
    fallow_pool *pool = NULL;
    fallow_stats stats;
    must(count == 3, "usage: stream_cost touch|go|vanish|fade|beside|retire|die COUNT");
    bool lives = strcmp(words[1], "touch") == 0, retires = strcmp(words[1], "retire") == 0;
    flw_sim_config world = flw_sim_config_default(5);
    world.schedule = FLW_SIM_CLOCK;
    bool vanishes = strcmp(words[1], "vanish") == 0, fades = strcmp(words[1], "fade") == 0;
    bool is_beside = strcmp(words[1], "beside") == 0;
    bytes = vanishes ? 8 << 20 : bytes;
    world.mild = vanishes || fades || is_beside ? FLW_SIM_MILD_HANDLE_REUSE : world.mild;
    must(flw_sim_open(&sim) && flw_sim_begin(&sim, &world) != NULL, "no world");
    fallow_pool_config_init(&config);
    config.driver = "sim";
    config.streams_may_die = strcmp(words[1], "die") == 0;
    must(fallow_pool_create(&config, &pool) == FALLOW_OK, "no pool");
    unsigned long live = is_beside ? 2000 : 0;
    for (unsigned long n = strtoul(words[2], NULL, 10) + live, made = 0; n > 0; n--) {
        CUstream stream = NULL;
        must(sim.cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS, "no stream");
        use(&sim, pool, stream);
        must(!retires || fallow_stream_retire(pool, stream) == FALLOW_OK, "no retire");
        must(lives || made++ < live || sim.cu.cuStreamDestroy_v2(stream) == CUDA_SUCCESS,
             "no destroy");
    }
    fallow_stats_init(&stats);
    must(fallow_pool_get_stats(pool, &stats) == FALLOW_OK, "no statistics");
    printf("%zu bytes held, %zu of the host, %u streams\n", (size_t)stats.reserved_bytes,
           (size_t)stats.host_bytes, (unsigned)stats.stream_count);
    fflush(NULL);
    _Exit(0); /* do not count the cleanup at exit */
}

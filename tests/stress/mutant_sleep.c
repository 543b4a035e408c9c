/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the fixed scenarios of the mutation suite for importers' memory, and for addresses and
 * contents over a sleep. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "fallow/share.h"
#include "fallow/sleep.h"
#include "support/sim.h"

bool flw_mutant_sleeps(const struct flw_sim *sim);

#define BLOCK_BYTES (3u << 20)

static bool is_wrong;

static void expect(bool holds, const char *sentence)
{
    if (!holds) {
        fprintf(stderr, "scenario: %s\n", sentence);
        is_wrong = true;
    }
}

static void must(CUresult result)
{
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "scenario: the test's own driver call answered %d\n", (int)result);
        abort();
    }
}

static fallow_pool *make_pool(const struct flw_sim *sim, CUstream *out_stream)
{
    flw_sim_config world = flw_sim_config_default(5);
    fallow_pool_config config;
    fallow_pool *pool = NULL;
    world.schedule = FLW_SIM_HELD;
    world.check = 1;
    world.backed = 1;
    (void)flw_sim_begin(sim, &world);
    must(sim->cu.cuStreamCreate(out_stream, CU_STREAM_NON_BLOCKING));
    fallow_pool_config_init(&config);
    config.driver = "sim";
    config.handle_types = FALLOW_HANDLE_FD;
    if (fallow_pool_create(&config, &pool) != FALLOW_OK) {
        abort();
    }
    return pool;
}

static void *allocate(fallow_pool *pool, size_t bytes, uint32_t flags, CUstream stream)
{
    fallow_request request;
    void *ptr = NULL;
    fallow_request_init(&request);
    request.size_bytes = bytes;
    request.flags = flags;
    expect(fallow_alloc_request(pool, &request, stream, &ptr) == FALLOW_OK, "a block is refused");
    return ptr;
}

static void check_exported_memory(const struct flw_sim *sim)
{
    CUstream stream;
    fallow_pool *pool = make_pool(sim, &stream);
    fallow_share share;
    fallow_share_init(&share);
    char *shared = allocate(pool, BLOCK_BYTES, FALLOW_REQUEST_EXPORT_FD, stream);
    expect(fallow_export(pool, shared, FALLOW_HANDLE_FD, &share) == FALLOW_OK,
           "an export is refused");
    expect(fallow_free(pool, shared, stream) == FALLOW_OK, "a free is refused");
    char *next = allocate(pool, BLOCK_BYTES, 0, stream);
    expect(next + BLOCK_BYTES <= shared || shared + share.handle_bytes <= next,
           "memory that importers may have is allocated again");
    close(share.descriptor);
    if (!is_wrong) {
        fallow_pool_destroy(pool);
    }
}

static void check_hits_asleep(const struct flw_sim *sim)
{
    CUstream stream;
    fallow_pool *pool = make_pool(sim, &stream);
    void *kept = allocate(pool, 4096, 0, stream), *ptr = NULL;
    for (int i = 0; i < 2; i++) { /* the next one would be a hit */
        expect(fallow_alloc(pool, 4096, stream, &ptr) == FALLOW_OK, "a block is refused");
        expect(fallow_free(pool, ptr, stream) == FALLOW_OK, "a free is refused");
    }
    must(sim->cu.cuCtxSynchronize());
    expect(fallow_pool_sleep(pool, NULL) == FALLOW_OK, "a sleep is refused");
    expect(fallow_free(pool, kept, stream) == FALLOW_OK, "a free asleep is refused");
    expect(fallow_alloc(pool, 4096, stream, &ptr) == FALLOW_ASLEEP, "a sleeping pool allocates");
    if (!is_wrong) {
        fallow_pool_destroy(pool);
    }
}

static void check_contents(const struct flw_sim *sim)
{
    CUstream stream;
    fallow_pool *pool = make_pool(sim, &stream);
    fallow_sleep_request request;
    unsigned word = 0x5eed;
    void *ptr = allocate(pool, sizeof word, 0, stream);
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)ptr;
    must(sim->cu.cuMemcpyHtoD_v2(at, &word, sizeof word));
    fallow_sleep_request_init(&request);
    request.flags = FALLOW_SLEEP_SAVE_ALL;
    expect(fallow_pool_sleep(pool, &request) == FALLOW_OK, "a sleep is refused");
    expect(fallow_pool_wake(pool) == FALLOW_OK, "a wake is refused");
    word = 0;
    must(sim->cu.cuMemcpyDtoH_v2(&word, at, sizeof word));
    expect(word == 0x5eed, "contents that were to be saved are lost");
    if (!is_wrong) {
        fallow_pool_destroy(pool);
    }
}

bool flw_mutant_sleeps(const struct flw_sim *sim)
{
    void (*const checks[])(const struct flw_sim *sim) = {check_exported_memory, check_hits_asleep,
                                                         check_contents};
    for (size_t i = 0; i < sizeof checks / sizeof *checks && !is_wrong; i++) {
        checks[i](sim);
        is_wrong |= !is_wrong && flw_sim_print_violations(sim) != 0;
    }
    return is_wrong;
}

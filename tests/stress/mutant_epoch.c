/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the mutation suite's scenario of pools in context order: a block is freed while the device
 * is held, in the same context or another, and must not be reused. Does not: finish the device's
 * work. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/sim.h"

#include "fallow/fallow.h"

bool flw_mutant_epochs(const struct flw_sim *sim);

#define BLOCK 40000u
#define MANY  256 /* closes an epoch */
#define MORE  1024

static void must(bool holds)
{
    if (!holds) {
        fprintf(stderr, "scenario: a pool in context order refuses a call\n");
        abort();
    }
}

static void *allocate(fallow_pool *pool)
{
    void *ptr = NULL;
    must(fallow_alloc(pool, BLOCK, NULL, &ptr) == FALLOW_OK);
    return ptr;
}

static fallow_pool *make_pool(CUcontext context)
{
    fallow_pool_config config;
    fallow_pool *pool = NULL;
    fallow_pool_config_init(&config);
    config.driver = "sim";
    config.order = FALLOW_ORDER_CONTEXT;
    config.context = context;
    must(fallow_pool_create(&config, &pool) == FALLOW_OK);
    return pool;
}

/* The work that was given in some context is not done: is a block that is freed now allocated
 * again? */
static bool comes_too_early(fallow_pool *pool, const char *sentence)
{
    static void *blocks[MANY];
    bool is_early = false;
    void *warm = allocate(pool), *ptr = allocate(pool);
    for (unsigned i = 0; i < MANY; i++) {
        blocks[i] = allocate(pool);
    }
    must(fallow_free(pool, warm, NULL) == FALLOW_OK && fallow_free(pool, ptr, NULL) == FALLOW_OK);
    for (unsigned i = 0; i < MANY; i++) {
        must(fallow_free(pool, blocks[i], NULL) == FALLOW_OK);
    }
    for (unsigned i = 0; i < MORE && !is_early; i++) {
        is_early = allocate(pool) == ptr;
    }
    if (is_early) {
        fprintf(stderr, "scenario: %s\n", sentence);
    }
    return is_early;
}

bool flw_mutant_epochs(const struct flw_sim *sim)
{
    CUcontext second = NULL;
    CUstream stream = NULL, other = NULL;
    flw_sim_config config = flw_sim_config_default(5);
    config.schedule = FLW_SIM_HELD;
    CUcontext first = flw_sim_begin(sim, &config);
    must(sim->cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    fallow_pool *pool = make_pool(first);
    must(sim->touch(stream, NULL, 0) == 0);
    bool is_wrong =
        comes_too_early(pool, "a block is allocated again while a stream may still use it");
    must(sim->cu.cuCtxSynchronize() == CUDA_SUCCESS);
    must(sim->cu.cuCtxCreate_v2(&second, 0, 0) == CUDA_SUCCESS);
    must(sim->cu.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    fallow_pool *beside = make_pool(second);
    must(sim->touch(other, NULL, 0) == 0);
    is_wrong |=
        comes_too_early(pool, "a block is allocated again while another context may use it");
    if (!is_wrong) {
        fallow_pool_destroy(beside);
        fallow_pool_destroy(pool);
    }
    return is_wrong;
}

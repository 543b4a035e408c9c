/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the proof that page sources consist of driver calls only, and that a whole pool works
 * through the public API on a device without virtual memory management: allocated, freed, trimmed,
 * and nothing kept.
 * Does not: test the heap over them (test_heap.c does). */
#include "support/test.h"

#include <stdatomic.h>
#include <stdbool.h>

#include "fallow/fallow.h"
#include "memory/size_class.h"
#include "memory/source.h"
#include "support/sim.h"
#include "support/trim.h"

static struct flw_sim sim;
static uint64_t seed;

static void begin_world(bool without_vmm)
{
    flw_sim_config config = flw_sim_config_default(seed);
    config.without_vmm = without_vmm;
    (void)flw_sim_begin(&sim, &config);
}

static void a_device_that_can_remap_is_recognised_and_one_that_cannot_is_not(void **state)
{
    struct flw_source source = {.driver = &sim.cu};
    bool can = false;
    begin_world(false);
    assert_int_equal(flw_source_vmm_ask(&source, &can), CUDA_SUCCESS);
    assert_true(can);
    assert_true(source.granularity_bytes >= FLW_UNIT_BYTES);
    assert_true(flw_is_pow2(source.granularity_bytes));
    begin_world(true);
    assert_int_equal(flw_source_vmm_ask(&source, &can), CUDA_SUCCESS);
    assert_false(can);
}

static void a_broken_answer_is_not_taken_for_a_device_that_cannot_remap(void **state)
{
    struct flw_source source = {.driver = &sim.cu};
    bool can = true;
    begin_world(false);
    (void)(sim.fail)("cuMemGetAllocationGranularity", 1, CUDA_ERROR_ILLEGAL_ADDRESS, 0);
    assert_int_equal(flw_source_vmm_ask(&source, &can), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_false(can);
}

static void the_remapping_source_counts_its_calls_and_undoes_them(void **state)
{
    _Atomic uint64_t calls = 0;
    struct flw_source source = {
        .ops = &flw_source_vmm, .driver = &sim.cu, .access_count = 1, .call_count = &calls};
    begin_world(false);
    bool can = false;
    assert_int_equal(flw_source_vmm_ask(&source, &can), CUDA_SUCCESS);
    uint64_t base = 0, handle = 0, bytes = 4 * source.granularity_bytes;
    uint32_t kinds = 0;
    uint64_t before = flw_sim_read_ledger(&sim).call_count;
    assert_int_equal(source.ops->reserve(&source, 4 * bytes, 0, &base), CUDA_SUCCESS);
    assert_int_equal(source.ops->create(&source, bytes, &kinds, &handle), CUDA_SUCCESS);
    assert_int_equal(source.ops->map(&source, base, bytes, handle), CUDA_SUCCESS);
    assert_int_equal(source.ops->set_access(&source, base, bytes), CUDA_SUCCESS);
    assert_true(flw_sim_read_ledger(&sim).given_bytes == bytes);
    assert_int_equal(sim.cu.cuMemsetD8_v2(base, 1, bytes), CUDA_SUCCESS);
    assert_int_equal(source.ops->unmap(&source, base, bytes), CUDA_SUCCESS);
    assert_int_equal(source.ops->release(&source, handle), CUDA_SUCCESS);
    assert_int_equal(source.ops->unreserve(&source, base, 4 * bytes), CUDA_SUCCESS);
    flw_sim_ledger ledger = flw_sim_read_ledger(&sim);
    assert_true(ledger.given_bytes == 0 && ledger.reserved_address_bytes == 0);
    assert_true(atomic_load(&calls) == 7);
    assert_true(ledger.call_count - before == 8); /* and the memset */
}

enum {
    ROW = 8
};

/* Reserve addresses with ROW handles of one grain mapped. */
static uint64_t map_row(struct flw_source *source, uint64_t handles[ROW])
{
    uint64_t base = 0, bytes = source->granularity_bytes;
    uint32_t kinds = 0;
    assert_int_equal(source->ops->reserve(source, ROW * bytes, 0, &base), CUDA_SUCCESS);
    for (unsigned i = 0; i < ROW; i++) {
        assert_int_equal(source->ops->create(source, bytes, &kinds, &handles[i]), CUDA_SUCCESS);
        assert_int_equal(source->ops->map(source, base + i * bytes, bytes, handles[i]),
                         CUDA_SUCCESS);
    }
    return base;
}

/* One call for a row; one each where that is refused, and from then on; none behind one that is refused. */
static void a_row_of_mappings_is_unmapped_by_one_call(void **state)
{
    static const struct {
        unsigned failing[2]; /* calls of cuMemUnmap, from 1; 0: none */
        CUresult answer;
        uint32_t done;
        uint64_t calls;
    } rounds[] = {{{0, 0}, CUDA_SUCCESS, ROW, 1},
                  {{1, 2}, CUDA_ERROR_UNKNOWN, 0, 2},
                  {{0, 0}, CUDA_SUCCESS, ROW, 1},
                  {{1, 4}, CUDA_ERROR_UNKNOWN, 2, 4},
                  {{0, 0}, CUDA_SUCCESS, ROW, ROW}};
    _Atomic uint64_t calls = 0;
    struct flw_source source = {
        .ops = &flw_source_vmm, .driver = &sim.cu, .access_count = 1, .call_count = &calls};
    begin_world(false);
    bool can = false;
    assert_int_equal(flw_source_vmm_ask(&source, &can), CUDA_SUCCESS);
    for (unsigned i = 0; i < sizeof rounds / sizeof *rounds; i++) {
        uint64_t handles[ROW], bytes[ROW];
        uint64_t base = map_row(&source, handles), grain = source.granularity_bytes;
        for (unsigned k = 0; k < ROW; k++) {
            bytes[k] = grain;
        }
        for (unsigned k = 0; k < 2 && rounds[i].failing[k] != 0; k++) {
            (void)(sim.fail)("cuMemUnmap", rounds[i].failing[k], CUDA_ERROR_UNKNOWN, 0);
        }
        uint64_t before = sim.call_count("cuMemUnmap");
        uint32_t done = ROW + 1;
        assert_int_equal(flw_source_unmap_all(&source, base, bytes, ROW, &done), rounds[i].answer);
        assert_int_equal(done, rounds[i].done);
        assert_true(sim.call_count("cuMemUnmap") - before == rounds[i].calls);
        assert_true(flw_sim_read_ledger(&sim).mapping_count == ROW - done);
        for (unsigned k = done; k < ROW; k++) {
            assert_int_equal(source.ops->unmap(&source, base + k * grain, grain), CUDA_SUCCESS);
        }
        for (unsigned k = 0; k < ROW; k++) {
            assert_int_equal(source.ops->release(&source, handles[k]), CUDA_SUCCESS);
        }
        assert_int_equal(source.ops->unreserve(&source, base, ROW * grain), CUDA_SUCCESS);
    }
}

static void a_segment_is_one_allocation(void **state)
{
    _Atomic uint64_t calls = 0;
    struct flw_source source = {.ops = &flw_source_slab, .driver = &sim.cu, .call_count = &calls};
    begin_world(true);
    uint64_t address = 0;
    assert_int_equal(source.ops->acquire(&source, 2 * FLW_MIB, &address), CUDA_SUCCESS);
    assert_true(address != 0 && flw_sim_read_ledger(&sim).given_bytes == 2 * FLW_MIB);
    assert_int_equal(source.ops->release_segment(&source, address), CUDA_SUCCESS);
    assert_true(flw_sim_read_ledger(&sim).given_bytes == 0);
    assert_true(atomic_load(&calls) == 2);
    assert_int_equal(source.ops->release_segment(&source, address), CUDA_ERROR_INVALID_VALUE);
}

/* ---- the public API without virtual memory management */

#define LIVE 128

struct client {
    fallow_pool *pool;
    CUstream streams[2];
    void *ptrs[LIVE];
    uint64_t sizes[LIVE];
    unsigned homes[LIVE];
};

static struct client client;

static uint64_t reserved_bytes(void)
{
    fallow_stats stats;
    fallow_stats_init(&stats);
    assert_int_equal(fallow_pool_get_stats(client.pool, &stats), FALLOW_OK);
    return stats.reserved_bytes;
}

static void allocate(unsigned i)
{
    uint64_t r = flw_test_random(&seed), log2 = r % 24;
    client.homes[i] = (unsigned)(r >> 8) % 2;
    client.sizes[i] = (1ull << log2) + (r >> 16) % (1ull << log2);
    assert_int_equal(fallow_alloc(client.pool, client.sizes[i], client.streams[client.homes[i]],
                                  &client.ptrs[i]),
                     FALLOW_OK);
    flw_sim_range range = {
        .address = (uint64_t)(uintptr_t)client.ptrs[i], .bytes = client.sizes[i], .is_write = 1};
    assert_int_equal(sim.touch(client.streams[client.homes[i]], &range, 1), CUDA_SUCCESS);
}

static void take_back(unsigned i)
{
    assert_int_equal(fallow_free(client.pool, client.ptrs[i], client.streams[client.homes[i]]),
                     FALLOW_OK);
    client.ptrs[i] = NULL;
}

static void a_pool_without_vmm_allocates_frees_trims_and_keeps_nothing(void **state)
{
    flw_sim_config sim_config = flw_sim_config_default(seed);
    sim_config.without_vmm = 1;
    sim_config.check = 1;
    (void)flw_sim_begin(&sim, &sim_config);
    fallow_pool_config config;
    fallow_pool_config_init(&config);
    config.driver = "sim";
    client = (struct client){0};
    assert_int_equal(fallow_pool_create(&config, &client.pool), FALLOW_OK);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(sim.cu.cuStreamCreate(&client.streams[i], CU_STREAM_NON_BLOCKING),
                         CUDA_SUCCESS);
    }
    for (unsigned n = 0; n < 6000; n++) {
        unsigned i = (unsigned)(flw_test_random(&seed) % LIVE);
        client.ptrs[i] == NULL ? allocate(i) : take_back(i);
        if (n % 32 == 0) {
            assert_true(reserved_bytes() == flw_sim_read_ledger(&sim).given_bytes);
        }
        if (n % 1500 == 1499) {
            assert_int_equal(flw_test_trim(client.pool, 0), FALLOW_OK);
        }
    }
    /* Live blocks stay through a trim; their contents are the client's. */
    assert_true(reserved_bytes() > 0);
    for (unsigned i = 0; i < LIVE; i++) {
        if (client.ptrs[i] != NULL) {
            take_back(i);
        }
    }
    assert_int_equal(sim.cu.cuCtxSynchronize(), CUDA_SUCCESS);
    assert_int_equal(flw_test_trim(client.pool, 0), FALLOW_OK);
    assert_true(reserved_bytes() == 0);
    assert_true(flw_sim_read_ledger(&sim).given_bytes == 0);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(fallow_stream_retire(client.pool, client.streams[i]), FALLOW_OK);
        assert_int_equal(sim.cu.cuStreamDestroy_v2(client.streams[i]), CUDA_SUCCESS);
    }
    fallow_pool_destroy(client.pool);
    flw_sim_ledger ledger = flw_sim_read_ledger(&sim);
    assert_true(ledger.allocation_count == 0 && ledger.event_count == 0);
    assert_true(flw_sim_print_violations(&sim) == 0);
}

static void the_limit_holds_without_vmm_too(void **state)
{
    begin_world(true);
    fallow_pool_config config;
    fallow_pool_config_init(&config);
    config.driver = "sim";
    config.limit_bytes = 64 * FLW_MIB;
    fallow_pool *pool = NULL;
    void *ptrs[64] = {0};
    unsigned count = 0;
    assert_int_equal(fallow_pool_create(&config, &pool), FALLOW_OK);
    while (count < 64 && fallow_alloc(pool, 3 * FLW_MIB, NULL, &ptrs[count]) == FALLOW_OK) {
        count++;
        assert_true(flw_sim_read_ledger(&sim).given_bytes <= config.limit_bytes);
    }
    assert_true(count >= 16 && count <= 21); /* at least three quarters of the memory was
                                                 usable */
    assert_null(ptrs[count]);
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(fallow_free(pool, ptrs[i], NULL), FALLOW_OK);
    }
    fallow_pool_destroy(pool);
    assert_true(flw_sim_read_ledger(&sim).given_bytes == 0);
}

/* With handles: never another block's handle. Without: a segment of its own. */
static void dedicated_blocks_share_nothing(bool without_vmm)
{
    begin_world(without_vmm);
    fallow_pool_config config;
    fallow_pool_config_init(&config);
    config.driver = "sim";
    fallow_pool *pool = NULL;
    assert_int_equal(fallow_pool_create(&config, &pool), FALLOW_OK);
    fallow_request request;
    fallow_request_init(&request);
    request.flags = FALLOW_REQUEST_DEDICATED;
    void *own[8], *others[24];
    for (unsigned i = 0; i < 8; i++) {
        request.size_bytes = 1 + i * 700000;
        assert_int_equal(fallow_alloc_request(pool, &request, NULL, &own[i]), FALLOW_OK);
        for (unsigned j = 3 * i; j < 3 * i + 3; j++) {
            assert_int_equal(fallow_alloc(pool, (j + 1) * 60000, NULL, &others[j]), FALLOW_OK);
        }
    }
    for (unsigned i = 0; i < 8; i++) {
        CUdeviceptr base = 0;
        size_t bytes = 0;
        assert_int_equal(
            sim.cu.cuMemGetAddressRange_v2(&base, &bytes, (CUdeviceptr)(uintptr_t)own[i]),
            CUDA_SUCCESS);
        for (unsigned j = 0; j < 24; j++) {
            uint64_t at = (uint64_t)(uintptr_t)others[j];
            assert_true(at + (j + 1) * 60000 <= base || at >= base + bytes);
        }
        for (unsigned j = 0; j < 8; j++) {
            uint64_t at = (uint64_t)(uintptr_t)own[j];
            assert_true(j == i || at < base || at >= base + bytes);
        }
    }
    for (unsigned i = 0; i < 8; i++) {
        assert_int_equal(fallow_free_sized(pool, own[i], 1 + i * 700000, NULL), FALLOW_OK);
    }
    for (unsigned j = 0; j < 24; j++) {
        assert_int_equal(fallow_free(pool, others[j], NULL), FALLOW_OK);
    }
    assert_int_equal(fallow_pool_validate(pool), FALLOW_OK);
    fallow_pool_destroy(pool);
    assert_true(flw_sim_read_ledger(&sim).given_bytes == 0);
}

static void a_dedicated_block_has_its_handle_alone(void **state)
{
    dedicated_blocks_share_nothing(false);
}

static void a_dedicated_block_has_its_segment_alone(void **state)
{
    dedicated_blocks_share_nothing(true);
}

int main(void)
{
    seed = flw_test_seed("unit.source");
    if (!flw_sim_open(&sim)) {
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_that_can_remap_is_recognised_and_one_that_cannot_is_not),
        cmocka_unit_test(a_broken_answer_is_not_taken_for_a_device_that_cannot_remap),
        cmocka_unit_test(the_remapping_source_counts_its_calls_and_undoes_them),
        cmocka_unit_test(a_row_of_mappings_is_unmapped_by_one_call),
        cmocka_unit_test(a_segment_is_one_allocation),
        cmocka_unit_test(a_pool_without_vmm_allocates_frees_trims_and_keeps_nothing),
        cmocka_unit_test(the_limit_holds_without_vmm_too),
        cmocka_unit_test(a_dedicated_block_has_its_handle_alone),
        cmocka_unit_test(a_dedicated_block_has_its_segment_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

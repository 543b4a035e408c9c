/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the proof that page sources consist of driver calls only.
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

TEST(a_device_that_can_remap_is_recognised_and_one_that_cannot_is_not)
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

TEST(a_broken_answer_is_not_taken_for_a_device_that_cannot_remap)
{
    struct flw_source source = {.driver = &sim.cu};
    bool can = true;
    begin_world(false);
    (void)(sim.fail)("cuMemGetAllocationGranularity", 1, CUDA_ERROR_ILLEGAL_ADDRESS, 0);
    assert_int_equal(flw_source_vmm_ask(&source, &can), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_false(can);
}

TEST(the_remapping_source_counts_its_calls_and_undoes_them)
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
TEST(a_row_of_mappings_is_unmapped_by_one_call)
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

TEST(a_segment_is_one_allocation)
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

int main(void)
{
    seed = flw_test_seed("unit.source");
    if (!flw_sim_open(&sim)) {
        return 1;
    }
    return _cmocka_run_group_tests("tests", flw_tests()->rows, flw_tests()->count, NULL, NULL);
}

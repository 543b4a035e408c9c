/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a heap on the simulated device for white-box tests, over any of three page sources, the
 * third of which is defined here: pinned host memory. Does not: use the public API. */
#ifndef FLW_TESTS_UNIT_HEAP_BED_H
#define FLW_TESTS_UNIT_HEAP_BED_H

#include "support/test.h"

#include <stdbool.h>

#include "heap/heap.h"
#include "support/sim.h"

enum heap_bed_source {
    BED_VMM,
    BED_SEGMENTS,
    BED_PINNED,
    BED_SOURCES
};

struct heap_bed {
    struct flw_sim sim;
    struct flw_heap heap;
    CUcontext context;
    CUstream stream;
    enum heap_bed_source source;
    uint64_t seed;
    uint64_t address_bytes; /* limit of the driver's reservations; 0: none */
};

/* ---- a third page source: nothing but two driver calls */

static inline CUresult pinned_acquire(struct flw_source *source, uint64_t bytes,
                                      uint64_t *out_address)
{
    void *address = NULL;
    atomic_fetch_add_explicit(source->call_count, 1, memory_order_relaxed);
    CUresult result = source->driver->cuMemHostAlloc(&address, bytes, CU_MEMHOSTALLOC_PORTABLE);
    *out_address = (uint64_t)(uintptr_t)address;
    return result;
}

static inline CUresult pinned_give_back(struct flw_source *source, uint64_t address)
{
    atomic_fetch_add_explicit(source->call_count, 1, memory_order_relaxed);
    return source->driver->cuMemFreeHost((void *)(uintptr_t)address);
}

static const struct flw_source_ops pinned_source = {
    .name = "pinned host memory", .acquire = pinned_acquire, .release_segment = pinned_give_back};

/* ---- begin, end */

/* Make a new world whose work waits for flw_sim_step, and a heap in it. */
static inline void bed_begin(struct heap_bed *bed, enum heap_bed_source source,
                             uint64_t limit_bytes)
{
    static const struct flw_source_ops *const sources[] = {&flw_source_vmm, &flw_source_slab,
                                                           &pinned_source};
    flw_sim_config config = flw_sim_config_default(bed->seed);
    config.schedule = FLW_SIM_HELD;
    config.device_bytes = FLW_GIB;
    config.without_vmm = source != BED_VMM;
    config.reserve_all_bytes = bed->address_bytes;
    bed->context = flw_sim_begin(&bed->sim, &config);
    bed->source = source;
    (void)flw_bin_table();
    struct flw_heap_config heap_config = {.driver = &bed->sim.cu,
                                          .context = bed->context,
                                          .source = sources[source],
                                          .device_bytes = FLW_GIB,
                                          .limit_bytes = limit_bytes};
    assert_int_equal(flw_heap_init(&bed->heap, &heap_config), FALLOW_OK);
    assert_int_equal(bed->sim.cu.cuStreamCreate(&bed->stream, CU_STREAM_NON_BLOCKING),
                     CUDA_SUCCESS);
}

static inline uint64_t bed_given_bytes(const struct heap_bed *bed)
{
    flw_sim_ledger ledger = flw_sim_read_ledger(&bed->sim);
    return ledger.given_bytes + ledger.pinned_bytes;
}

/* The heap's invariants, and the ledger of the driver against the heap's own. */
static inline void bed_check(struct heap_bed *bed)
{
    flw_lock_acquire(&bed->heap.lock);
    const char *broken = flw_heap_broken_invariant(&bed->heap);
    flw_lock_release(&bed->heap.lock);
    if (broken != NULL) {
        fail_msg("%s", broken);
    }
    assert_false(flw_heap_is_lost(&bed->heap));
    assert_true(bed_given_bytes(bed) == atomic_load(&bed->heap.reserved_bytes));
}

static inline void bed_end(struct heap_bed *bed)
{
    bed->sim.step(UINT64_MAX);
    assert_int_equal(bed->sim.cu.cuStreamDestroy_v2(bed->stream), CUDA_SUCCESS);
    flw_heap_finish(&bed->heap, false);
    flw_sim_ledger ledger = flw_sim_read_ledger(&bed->sim);
    assert_true(ledger.given_bytes == 0 && ledger.pinned_bytes == 0);
    assert_true(ledger.reserved_address_bytes == 0 && ledger.event_count == 0);
    assert_true(flw_sim_print_violations(&bed->sim) == 0);
}

/* ---- verbs */

static inline struct flw_domain *bed_domain(struct heap_bed *bed, const struct flw_order_ops *ops,
                                            CUstream stream)
{
    flw_lock_acquire(&bed->heap.lock);
    struct flw_domain *domain = flw_domain_create(&bed->heap, ops, stream, bed->context, 0);
    assert_non_null(domain);
    if (ops == &flw_order_stream) {
        flw_places_note_stream(&bed->heap.places, domain);
        atomic_fetch_add(&bed->heap.stream_count, 1);
    }
    flw_lock_release(&bed->heap.lock);
    return domain;
}

/* Free memory that the domain may have now, or NULL. */
static inline struct flw_span *bed_take(struct heap_bed *bed, struct flw_domain *domain,
                                        uint32_t units)
{
    flw_lock_acquire(&bed->heap.lock);
    struct flw_span *run = flw_heap_take_run(&bed->heap, domain, units, 1);
    flw_lock_release(&bed->heap.lock);
    return run;
}

static inline fallow_status bed_grow(struct heap_bed *bed, struct flw_domain *domain,
                                     uint32_t units, struct flw_span **out_run)
{
    struct flw_grow_request request = {.domain = domain,
                                       .unit_count = units,
                                       .align_units = 1,
                                       .budget_bytes = bed->heap.limit_bytes};
    return flw_heap_grow(&bed->heap, &request, out_run);
}

/* Take a run, growing if necessary. */
static inline struct flw_span *bed_obtain(struct heap_bed *bed, struct flw_domain *domain,
                                          uint32_t units)
{
    struct flw_span *run = bed_take(bed, domain, units);
    if (run == NULL) {
        assert_int_equal(bed_grow(bed, domain, units, &run), FALLOW_OK);
    }
    assert_true(run != NULL && run->u.run.unit_count == units);
    return run;
}

static inline void bed_put(struct heap_bed *bed, struct flw_domain *domain, struct flw_span *run)
{
    flw_lock_acquire(&bed->heap.lock);
    flw_heap_put_run(&bed->heap, domain, run);
    flw_lock_release(&bed->heap.lock);
}

/* Work on the stream that nothing completes before flw_sim_step. */
static inline void bed_give_work(struct heap_bed *bed)
{
    assert_int_equal(bed->sim.touch(bed->stream, NULL, 0), CUDA_SUCCESS);
}

static inline void bed_finish_work(struct heap_bed *bed)
{
    bed->sim.step(UINT64_MAX);
}

#endif

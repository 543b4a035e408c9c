/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the proof that fences cover only the memory freed before them, in captures, beside
 * synchronisations and on slabs of many streams; random programs and planted faults cover the rest. */
#include "test_heap_bed.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#define UNITS 24

static struct heap_bed bed;

/* Take all complete free memory, so that later takes get newly released memory. */
static void use_up(struct flw_domain *domain)
{
    struct flw_span *run = NULL;
    for (uint32_t units = 1u << 14; units > 0; units /= 2) {
        do {
            run = bed_take(&bed, domain, units);
        } while (run != NULL);
    }
}

static void each_source(void (*check)(void))
{
    for (unsigned source = 0; source < BED_SOURCES; source++) {
        bed_begin(&bed, (enum heap_bed_source)source, FLW_GIB / 2);
        check();
        bed_check(&bed);
        bed_end(&bed);
    }
}

TEST(a_place_that_is_used_again_keeps_its_old_points_complete)
{
    bed_begin(&bed, BED_VMM, FLW_GIB / 2);
    struct flw_domain *domain = bed_domain(&bed, &flw_order_stream, bed.stream);
    struct flw_span *run = bed_obtain(&bed, domain, UNITS);
    bed_put(&bed, domain, run);
    struct flw_point point = {.domain = domain->index, .seq = domain->seq};
    assert_int_equal(flw_domain_wait(&bed.heap, domain, domain->seq, UINT64_MAX), FALLOW_OK);
    flw_lock_acquire(&bed.heap.lock);
    flw_places_forget_stream(&bed.heap.places, domain);
    atomic_fetch_sub(&bed.heap.stream_count, 1);
    flw_domain_free_place(&bed.heap, domain);
    flw_lock_release(&bed.heap.lock);
    assert_null(domain->ops);
    struct flw_domain *next = bed_domain(&bed, &flw_order_context, NULL);
    assert_ptr_equal(next, domain);
    assert_true(flw_point_is_complete(&bed.heap, &point));
    assert_true(next->seq > point.seq && next->completed < next->seq);
    bed_check(&bed);
    bed_end(&bed);
}

/* A driver that begins a capture of the stream just before a record, as another thread might. */
static struct flw_driver real_driver;
static bool ends_at_once;

static CUresult CUDAAPI record_inside_a_capture(CUevent event, CUstream stream)
{
    CUgraph graph = NULL;
    CUresult result = real_driver.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    result = result == CUDA_SUCCESS ? real_driver.cuEventRecord(event, stream) : result;
    if (result == CUDA_SUCCESS && ends_at_once) {
        result = real_driver.cuStreamEndCapture(stream, &graph);
        result = result == CUDA_SUCCESS ? real_driver.cuGraphDestroy(graph) : result;
    }
    return result;
}

/* Before a fence is used, the stream's capture state is queried: an event recorded in a capture is
 * not queried, and no other stream waits for it, which would end the capture, or draw that stream
 * into it. */
static void use_beside_capture(struct flw_domain *donor, bool by_stream)
{
    CUstream handle = NULL;
    CUgraph graph = NULL;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    assert_int_equal(bed.sim.cu.cuStreamCreate(&handle, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    struct flw_domain *taker = bed_domain(&bed, &flw_order_stream, handle);
    if (by_stream) {
        assert_int_equal(flw_domain_order_after(&bed.heap, taker, donor, donor->seq - 1, false),
                         FALLOW_WOULD_WAIT);
    }
    assert_false(flw_heap_poll(&bed.heap));
    assert_null(donor->newest); /* void already */
    assert_int_equal(bed.sim.cu.cuStreamIsCapturing(handle, &status), CUDA_SUCCESS);
    assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_NONE);
    assert_int_equal(bed.sim.cu.cuStreamEndCapture(bed.stream, &graph), CUDA_SUCCESS);
    assert_int_equal(bed.sim.cu.cuGraphDestroy(graph), CUDA_SUCCESS);
}

static void check_captured_fence(bool goes_on, bool by_stream)
{
    bed_begin(&bed, BED_VMM, FLW_GIB / 2);
    struct flw_domain *donor = bed_domain(&bed, &flw_order_stream, bed.stream);
    struct flw_domain *context = bed_domain(&bed, &flw_order_context, NULL);
    struct flw_span *run = bed_obtain(&bed, donor, UNITS);
    use_up(donor);
    bed_put(&bed, donor, run);
    struct flw_driver racing = real_driver = *bed.heap.driver;
    racing.cuEventRecord = record_inside_a_capture;
    ends_at_once = !goes_on;
    const struct flw_driver *driver = bed.heap.driver;
    bed.heap.driver = &racing;
    assert_int_equal(flw_domain_fence(&bed.heap, donor), FALLOW_OK);
    bed.heap.driver = driver;
    if (goes_on) {
        use_beside_capture(donor, by_stream);
    }
    assert_false(flw_heap_poll(&bed.heap));
    assert_null(donor->newest); /* found void */
    assert_null(bed_take(&bed, context, UNITS));
    /* The next fence covers it. */
    assert_int_equal(flw_domain_wait(&bed.heap, donor, donor->seq - 1, UINT64_MAX), FALLOW_OK);
    assert_non_null(bed_take(&bed, context, UNITS));
    assert_int_equal(atomic_load(&bed.heap.lost_error), 0);
    bed_check(&bed);
    bed_end(&bed);
}

TEST(a_fence_that_a_capture_took_covers_nothing)
{
    check_captured_fence(true, false);
    check_captured_fence(true, true);
    check_captured_fence(false, false);
}

static void check_many_streams_on_a_slab(void)
{
    enum {
        CLASS = 20,
        STREAMS = FLW_POINTS_MAX + 7 /* more than a slab and a pending keep stamps of */
    };
    struct flw_slot *slots[512];
    struct flw_domain *domains[STREAMS];
    CUstream handles[STREAMS];
    for (unsigned i = 0; i < STREAMS; i++) {
        assert_int_equal(bed.sim.cu.cuStreamCreate(&handles[i], CU_STREAM_NON_BLOCKING), 0);
        domains[i] = bed_domain(&bed, &flw_order_stream, handles[i]);
    }
    struct flw_span *run = bed_obtain(&bed, domains[0], flw_class_slab_units(CLASS));
    use_up(domains[0]);
    flw_lock_acquire(&bed.heap.lock);
    assert_true(flw_heap_adopt_slab(&bed.heap, domains[0], CLASS, run));
    uint32_t count = flw_heap_take_slots(&bed.heap, domains[0], CLASS, 512, slots);
    assert_true(count >= STREAMS);
    for (uint32_t i = 0; i < count; i++) {
        flw_heap_put_slots(&bed.heap, domains[i % STREAMS], CLASS, &slots[i], 1);
    }
    assert_true(flw_heap_reclaim_slabs(&bed.heap));
    flw_lock_release(&bed.heap.lock);
    assert_int_equal(bed.heap.deferred_count, 1);
    assert_null(bed_take(&bed, domains[0], 1));

    /* All but the last stream may be complete. */
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i + 1 < STREAMS; i++) {
            assert_int_equal(flw_domain_fence(&bed.heap, domains[i]), FALLOW_OK);
        }
        bed_finish_work(&bed);
        (void)flw_heap_poll(&bed.heap);
        assert_null(bed_take(&bed, domains[0], 1));
    }
    assert_int_equal(flw_domain_fence(&bed.heap, domains[STREAMS - 1]), FALLOW_OK);
    bed_finish_work(&bed);
    assert_true(flw_heap_poll(&bed.heap));
    assert_int_equal(bed.heap.deferred_count, 0);
    assert_non_null(bed_take(&bed, domains[0], flw_class_slab_units(CLASS)));
    for (unsigned i = 0; i < STREAMS; i++) {
        assert_int_equal(bed.sim.cu.cuStreamDestroy_v2(handles[i]), CUDA_SUCCESS);
    }
}

TEST(a_slab_of_more_streams_than_points_waits_for_all_of_them)
{
    each_source(check_many_streams_on_a_slab);
}

static CUresult record_and_synchronise(CUevent event, CUstream stream)
{
    CUresult result = bed.sim.cu.cuEventRecord(event, stream);
    assert_int_equal(flw_heap_sync_context(&bed.heap), FALLOW_OK); /* another thread, just then */
    return result;
}

static void check_synchronised_record(void)
{
    struct flw_driver driver = bed.sim.cu;
    struct flw_domain *domain = bed_domain(&bed, &flw_order_stream, bed.stream);
    struct flw_span *run = bed_obtain(&bed, domain, UNITS);
    use_up(domain);
    bed_put(&bed, domain, run);
    driver.cuEventRecord = record_and_synchronise;
    bed.heap.driver = &driver;
    assert_int_equal(flw_domain_fence(&bed.heap, domain), FALLOW_OK);
    bed.heap.driver = &bed.sim.cu;
    bed_check(&bed);
    assert_false(flw_heap_poll(&bed.heap)); /* nothing is outstanding */
    assert_non_null(bed_take(&bed, domain, UNITS));
}

TEST(a_fence_that_a_synchronisation_overtakes_is_not_listed)
{
    each_source(check_synchronised_record);
}

/* ---- two synchronisations at once */

static struct {
    struct flw_domain *domain;
    struct flw_span *late; /* released after the first synchronisation's last snapshot */
    pthread_t second;
    sem_t is_first_over;
    atomic_uint calls;
} both;

static void *synchronise_too(void *unused)
{
    (void)unused;
    (void)bed.sim.cu.cuCtxSetCurrent(bed.context);
    return flw_heap_sync_context(&bed.heap) == FALLOW_OK ? &both : NULL;
}

static CUresult synchronise(void)
{
    if (atomic_fetch_add(&both.calls, 1) > 0) {
        (void)sem_wait(&both.is_first_over);
        return bed.sim.cu.cuCtxSynchronize();
    }
    CUresult result = bed.sim.cu.cuCtxSynchronize();
    bed_give_work(&bed);
    bed_put(&bed, both.domain, both.late);
    assert_int_equal(pthread_create(&both.second, NULL, synchronise_too, NULL), 0);
    for (unsigned i = 0; i < 100 && atomic_load(&both.calls) == 1; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); /* it may get this far too */
    }
    return result;
}

static void check_two_synchronisations(void)
{
    struct flw_driver driver = bed.sim.cu;
    struct flw_domain *taker = bed_domain(&bed, &flw_order_stream, NULL);
    void *end = NULL;
    both.domain = bed_domain(&bed, &flw_order_stream, bed.stream);
    both.late = bed_obtain(&bed, both.domain, UNITS);
    use_up(both.domain);
    atomic_store(&both.calls, 0);
    assert_int_equal(sem_init(&both.is_first_over, 0, 0), 0);
    driver.cuCtxSynchronize = synchronise;
    bed.heap.driver = &driver;
    assert_int_equal(flw_heap_sync_context(&bed.heap), FALLOW_OK);
    assert_null(bed_take(&bed, taker, UNITS)); /* the work has not been waited for */
    assert_int_equal(sem_post(&both.is_first_over), 0);
    assert_int_equal(pthread_join(both.second, &end), 0);
    bed.heap.driver = &bed.sim.cu;
    assert_ptr_equal(end, &both);
    assert_int_equal(atomic_load(&both.calls), 2);
    assert_non_null(bed_take(&bed, taker, UNITS));
}

TEST(a_synchronisation_completes_nothing_that_came_after_it_began)
{
    each_source(check_two_synchronisations);
}

int main(void)
{
    bed.seed = flw_test_seed("unit.domain");
    if (!flw_sim_open(&bed.sim)) {
        return 1;
    }
    return _cmocka_run_group_tests("tests", flw_tests()->rows, flw_tests()->count, NULL, NULL);
}

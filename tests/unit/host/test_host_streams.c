/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: pinned blocks and streams: retired, lost, default, of another context, being captured.
 */
#include "test_host.h"

static void a_retired_stream_may_be_destroyed(void **state)
{
    struct host_bed bed;
    CUstream stream = NULL;
    host_begin(&bed);
    assert_int_equal(bed.sim.cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 0);
    void *block = host_alloc(&bed, 1 * MIB), *used = host_alloc(&bed, 1 * MIB);
    host_copy(&bed, block, 1 * MIB, stream);
    host_copy(&bed, used, 1 * MIB, stream);
    assert_int_equal(fallow_host_record_use(bed.host, used, stream), FALLOW_OK);
    host_free(&bed, block, stream);
    assert_int_equal(fallow_host_stream_retire(bed.host, stream), FALLOW_OK);
    assert_int_equal(bed.sim.cu.cuStreamDestroy_v2(stream), 0);
    host_free(&bed, used, bed.stream); /* the last event covers the use there */
    assert_int_equal(fallow_host_poll(bed.host), FALLOW_OK);
    assert_int_equal(host_stats(&bed).deferred_bytes, 2 * MIB);
    host_check(&bed);
    bed.sim.step(UINT64_MAX);
    assert_int_equal(fallow_host_poll(bed.host), FALLOW_OK);
    assert_int_equal(host_stats(&bed).deferred_bytes, 0);
    assert_int_equal(host_stats(&bed).lost_streams, 0);
    host_end(&bed);
}

static void a_lost_stream_is_covered_by_its_context(void **state)
{
    struct host_bed bed;
    CUstream stream = NULL, heir = NULL;
    host_begin(&bed);
    assert_int_equal(bed.sim.cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 0);
    void *block = host_alloc(&bed, 1000);
    host_copy(&bed, block, 1000, stream);
    host_free(&bed, block, stream);
    assert_int_equal(bed.sim.cu.cuStreamDestroy_v2(stream), 0);
    assert_int_equal(bed.sim.cu.cuStreamCreate(&heir, CU_STREAM_NON_BLOCKING), 0);
    assert_ptr_equal(heir, stream); /* the hostile world gives the handle out again */
    assert_int_equal(fallow_host_poll(bed.host), FALLOW_OK);
    assert_int_equal(host_stats(&bed).lost_streams, 1);
    assert_int_equal(host_stats(&bed).deferred_bytes, 1000);
    block = host_alloc(&bed, 2000);
    assert_int_equal(bed.sim.cu.cuMemcpyHtoDAsync_v2(bed.device + MIB, block, 2000, heir), 0);
    host_free(&bed, block, heir); /* a new stream with the handle */
    host_check(&bed);
    assert_int_equal(fallow_host_trim(bed.host, 0, UINT64_MAX, NULL), FALLOW_OK);
    assert_int_equal(host_stats(&bed).deferred_bytes, 0);
    host_check(&bed);
    host_end(&bed);
}

static void default_streams_are_streams(void **state)
{
    struct host_bed bed;
    CUstream handles[] = {NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};
    host_begin(&bed);
    for (unsigned i = 0; i < 3; i++) {
        void *block = host_alloc(&bed, 5000);
        host_copy(&bed, block, 5000, handles[i]);
        host_free(&bed, block, handles[i]);
        assert_int_equal(fallow_host_poll(bed.host), FALLOW_OK);
        assert_int_equal(host_stats(&bed).deferred_bytes, 5000);
        bed.sim.step(UINT64_MAX);
        assert_int_equal(fallow_host_poll(bed.host), FALLOW_OK);
        assert_int_equal(host_stats(&bed).deferred_bytes, 0);
    }
    host_end(&bed);
}

static void a_stream_of_another_context_is_waited_for(void **state)
{
    struct host_bed bed;
    CUcontext context = NULL, popped = NULL;
    CUstream foreign = NULL;
    host_begin(&bed);
    assert_int_equal(bed.sim.cu.cuCtxCreate_v2(&context, 0, 0), 0);
    assert_int_equal(bed.sim.cu.cuStreamCreate(&foreign, CU_STREAM_NON_BLOCKING), 0);
    assert_int_equal(bed.sim.cu.cuCtxPopCurrent_v2(&popped), 0);
    void *block = host_alloc(&bed, 1 * MIB);
    flw_sim_range range = {.address = (uintptr_t)block, .bytes = 1 * MIB};
    assert_int_equal(bed.sim.cu.cuCtxPushCurrent_v2(context), 0);
    assert_int_equal(bed.sim.touch(foreign, &range, 1), 0);
    assert_int_equal(bed.sim.cu.cuCtxPopCurrent_v2(&popped), 0);
    host_free(&bed, block, foreign);
    assert_int_equal(fallow_host_poll(bed.host), FALLOW_OK);
    assert_int_equal(host_stats(&bed).deferred_bytes, 1 * MIB);
    bed.sim.step(UINT64_MAX);
    assert_int_equal(fallow_host_poll(bed.host), FALLOW_OK);
    assert_int_equal(host_stats(&bed).deferred_bytes, 0);
    assert_int_equal(fallow_host_stream_retire(bed.host, foreign), FALLOW_OK);
    fallow_host_destroy(bed.host); /* the events include the other context's */
    assert_int_equal(bed.sim.cu.cuCtxDestroy_v2(context), 0);
    host_end(&bed);
}

static void a_capture_is_neither_broken_nor_waited_for(void **state)
{
    struct host_bed bed;
    CUgraph graph = NULL;
    host_begin(&bed);
    void *before = host_alloc(&bed, 1 * MIB);
    assert_int_equal(bed.sim.cu.cuStreamBeginCapture_v2(bed.stream, CU_STREAM_CAPTURE_MODE_GLOBAL),
                     0);
    void *inside = host_alloc(&bed, 40 * MIB); /* pins, while a capture is open in global mode */
    host_free(&bed, before, bed.stream);       /* held: an event would become part of the graph */
    host_copy(&bed, inside, 1 * MIB, bed.other);
    host_free(&bed, inside, bed.other);
    assert_int_equal(fallow_host_poll(bed.host), FALLOW_OK);
    assert_int_equal(fallow_host_stream_retire(bed.host, bed.stream), FALLOW_BUSY);
    bed.sim.step(UINT64_MAX);
    assert_int_equal(fallow_host_poll(bed.host), FALLOW_OK);
    assert_int_equal(host_stats(&bed).deferred_bytes, 1 * MIB); /* the one of the captured stream */
    size_t released = 0;
    assert_int_equal(fallow_host_trim(bed.host, 0, 1, &released), FALLOW_TIMEOUT);
    assert_true(released >= 40 * MIB);
    host_check(&bed);
    assert_int_equal(bed.sim.cu.cuStreamEndCapture(bed.stream, &graph), 0); /* is whole */
    assert_int_equal(bed.sim.cu.cuGraphDestroy(graph), 0);
    assert_int_equal(fallow_host_poll(bed.host), FALLOW_OK);
    bed.sim.step(UINT64_MAX);
    assert_int_equal(fallow_host_poll(bed.host), FALLOW_OK);
    assert_int_equal(host_stats(&bed).deferred_bytes, 0);
    host_end(&bed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_retired_stream_may_be_destroyed),
        cmocka_unit_test(a_lost_stream_is_covered_by_its_context),
        cmocka_unit_test(default_streams_are_streams),
        cmocka_unit_test(a_stream_of_another_context_is_waited_for),
        cmocka_unit_test(a_capture_is_neither_broken_nor_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: pinned blocks and streams: retired, lost, default, of another context, being captured.
 */
#include "test_host.h"

TEST(a_retired_stream_may_be_destroyed)
{
    CUstream stream = NULL;
    host_begin();
    assert_ok(bed.sim.cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    void *block = host_alloc(1 * MIB), *used = host_alloc(1 * MIB);
    host_copy(block, 1 * MIB, stream);
    host_copy(used, 1 * MIB, stream);
    assert_ok(fallow_host_record_use(bed.host, used, stream));
    host_free(block, stream);
    assert_ok(fallow_host_stream_retire(bed.host, stream));
    assert_ok(bed.sim.cu.cuStreamDestroy_v2(stream));
    host_free(used, bed.stream); /* the last event covers the use there */
    assert_ok(fallow_host_poll(bed.host));
    assert_int_equal(host_stats().deferred_bytes, 2 * MIB);
    host_check();
    bed.sim.step(UINT64_MAX);
    assert_ok(fallow_host_poll(bed.host));
    assert_int_equal(host_stats().deferred_bytes, 0);
    assert_int_equal(host_stats().lost_streams, 0);
    host_end();
}

TEST(a_lost_stream_is_covered_by_its_context)
{
    CUstream stream = NULL, heir = NULL;
    host_begin();
    assert_ok(bed.sim.cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    void *block = host_alloc(1000);
    host_copy(block, 1000, stream);
    host_free(block, stream);
    assert_ok(bed.sim.cu.cuStreamDestroy_v2(stream));
    assert_ok(bed.sim.cu.cuStreamCreate(&heir, CU_STREAM_NON_BLOCKING));
    assert_ptr_equal(heir, stream); /* the hostile world gives the handle out again */
    assert_ok(fallow_host_poll(bed.host));
    assert_int_equal(host_stats().lost_streams, 1);
    assert_int_equal(host_stats().deferred_bytes, 1000);
    block = host_alloc(2000);
    assert_ok(bed.sim.cu.cuMemcpyHtoDAsync_v2(bed.device + MIB, block, 2000, heir));
    host_free(block, heir); /* a new stream with the handle */
    host_check();
    assert_ok(fallow_host_trim(bed.host, 0, UINT64_MAX, NULL));
    assert_int_equal(host_stats().deferred_bytes, 0);
    host_end();
}

TEST(default_streams_are_streams)
{
    CUstream handles[] = {NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};
    host_begin();
    for (unsigned i = 0; i < 3; i++) {
        void *block = host_alloc(5000);
        host_copy(block, 5000, handles[i]);
        host_free(block, handles[i]);
        assert_ok(fallow_host_poll(bed.host));
        assert_int_equal(host_stats().deferred_bytes, 5000);
        bed.sim.step(UINT64_MAX);
        assert_ok(fallow_host_poll(bed.host));
        assert_int_equal(host_stats().deferred_bytes, 0);
    }
    host_end();
}

TEST(a_stream_of_another_context_is_waited_for)
{
    CUcontext context = NULL, popped = NULL;
    CUstream foreign = NULL;
    host_begin();
    assert_ok(bed.sim.cu.cuCtxCreate_v2(&context, 0, 0));
    assert_ok(bed.sim.cu.cuStreamCreate(&foreign, CU_STREAM_NON_BLOCKING));
    assert_ok(bed.sim.cu.cuCtxPopCurrent_v2(&popped));
    void *block = host_alloc(1 * MIB);
    flw_sim_range range = {.address = (uintptr_t)block, .bytes = 1 * MIB};
    assert_ok(bed.sim.cu.cuCtxPushCurrent_v2(context));
    assert_int_equal(bed.sim.touch(foreign, &range, 1), 0);
    assert_ok(bed.sim.cu.cuCtxPopCurrent_v2(&popped));
    host_free(block, foreign);
    assert_ok(fallow_host_poll(bed.host));
    assert_int_equal(host_stats().deferred_bytes, 1 * MIB);
    bed.sim.step(UINT64_MAX);
    assert_ok(fallow_host_poll(bed.host));
    assert_int_equal(host_stats().deferred_bytes, 0);
    assert_ok(fallow_host_stream_retire(bed.host, foreign));
    fallow_host_destroy(bed.host); /* the events include the other context's */
    bed.host = NULL;
    assert_ok(bed.sim.cu.cuCtxDestroy_v2(context));
    host_end();
}

TEST(a_capture_is_neither_broken_nor_waited_for)
{
    CUgraph graph = NULL;
    host_begin();
    void *before = host_alloc(1 * MIB);
    assert_ok(bed.sim.cu.cuStreamBeginCapture_v2(bed.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    void *inside = host_alloc(40 * MIB); /* pins, while a capture is open in global mode */
    host_free(before, bed.stream);       /* held: an event would become part of the graph */
    host_copy(inside, 1 * MIB, bed.other);
    host_free(inside, bed.other);
    assert_ok(fallow_host_poll(bed.host));
    assert_int_equal(fallow_host_stream_retire(bed.host, bed.stream), FALLOW_BUSY);
    bed.sim.step(UINT64_MAX);
    assert_ok(fallow_host_poll(bed.host));
    assert_int_equal(host_stats().deferred_bytes, 1 * MIB); /* the one of the captured stream */
    size_t released = 0;
    assert_int_equal(fallow_host_trim(bed.host, 0, 1, &released), FALLOW_TIMEOUT);
    assert_true(released >= 40 * MIB);
    host_check();
    assert_ok(bed.sim.cu.cuStreamEndCapture(bed.stream, &graph)); /* is whole */
    assert_ok(bed.sim.cu.cuGraphDestroy(graph));
    assert_ok(fallow_host_poll(bed.host));
    bed.sim.step(UINT64_MAX);
    assert_ok(fallow_host_poll(bed.host));
    assert_int_equal(host_stats().deferred_bytes, 0);
    host_end();
}

FLW_TEST_MAIN(NULL, NULL)

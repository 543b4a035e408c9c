/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the events of a context that a user of a block had, and that ended.
 */
#include "test_api.h"

#include "fallow/sleep.h"
#include "support/trim.h"

/* Make a context of the program current; the first event has the handle of the pool's event in the
 * previous, destroyed context. */
static CUevent make_event_abroad(struct api *api, CUcontext *context)
{
    CUevent event = NULL;
    assert_int_equal(api->sim.cu.cuCtxCreate_v2(context, 0, 0), 0);
    assert_int_equal(api->sim.cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), 0);
    return event;
}

TEST(the_events_of_a_context_are_gone_with_it)
{
    struct api api;
    CUcontext first = NULL, context = NULL, popped;
    CUstream foreign = NULL;
    api_begin_with_pool(&api);
    CUevent event = make_event_abroad(&api, &first);
    assert_int_equal(api.sim.cu.cuEventDestroy_v2(event), 0);
    assert_int_equal(api.sim.cu.cuStreamCreate(&foreign, CU_STREAM_NON_BLOCKING), 0);
    assert_int_equal(api.sim.cu.cuCtxPopCurrent_v2(&popped), 0);
    void *ptr = api_alloc(&api, 5 * MIB, api.stream);
    assert_int_equal(fallow_record_use(api.pool, ptr, foreign), FALLOW_OK);
    assert_int_equal(fallow_stream_retire(api.pool, foreign),
                     FALLOW_OK); /* records an event there */
    api.sim.step(UINT64_MAX);
    assert_int_equal(fallow_pool_poll(api.pool), FALLOW_OK); /* and keeps it */
    assert_int_equal(api.sim.cu.cuCtxDestroy_v2(first), 0);

    assert_ptr_equal(make_event_abroad(&api, &context), event);
    assert_ptr_equal(context, first);
    assert_int_equal(api.sim.cu.cuStreamCreate(&foreign, CU_STREAM_NON_BLOCKING), 0);
    api_use(&api, ptr, 5 * MIB, foreign);
    assert_int_equal(fallow_record_use(api.pool, ptr, foreign), FALLOW_OK);
    assert_int_equal(fallow_stream_retire(api.pool, foreign), FALLOW_OK);
    assert_int_equal(api.sim.cu.cuEventQuery(event), 0); /* not recorded by the pool */
    assert_int_equal(api.sim.cu.cuCtxPopCurrent_v2(&popped), 0);
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    fallow_pool_destroy(api.pool);
    api.pool = NULL;
    assert_int_equal(api.sim.cu.cuEventQuery(event), 0); /* nor destroyed */
    assert_int_equal(api.sim.cu.cuCtxDestroy_v2(context), 0);
    api_end(&api);
}

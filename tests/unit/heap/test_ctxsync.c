/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the mutual exclusion of a capture's beginning and a synchronisation of the context. */
#include "support/test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "heap/order/sync.h"

static CUresult record(CUevent event, CUstream stream)
{
    (void)event;
    (void)stream;
    return CUDA_SUCCESS;
}

static struct flw_driver driver = {.cuEventRecord = record}; /* identifies a driver */
static atomic_bool is_announced;
static char contexts[2];

static CUcontext context_at(unsigned i)
{
    return (CUcontext)(void *)&contexts[i];
}

TEST(captures_and_synchronisations_exclude_each_other)
{
    assert_true(flw_ctxsync_try(&driver, context_at(0)));
    assert_false(flw_ctxsync_try(&driver, context_at(0)));
    assert_true(flw_ctxsync_try(&driver, context_at(1)));
    flw_ctxsync_end(&driver, context_at(0));
    flw_ctxsync_end(&driver, context_at(1));
    flw_ctxsync_announce(&driver, context_at(0));
    assert_false(flw_ctxsync_try(&driver, context_at(0)));
    assert_false(flw_ctxsync_begin(&driver, context_at(0)));
    flw_ctxsync_retract(&driver, context_at(0));
    assert_true(flw_ctxsync_try(&driver, context_at(0)));
    flw_ctxsync_end(&driver, context_at(0));
}

static void *announce_cancelled(void *argument)
{
    (void)argument;
    (void)pthread_cancel(pthread_self());
    flw_ctxsync_announce(&driver, context_at(0));
    atomic_store(&is_announced, true);
    pthread_testcancel();
    return NULL;
}

/* A thread that ended in the wait would keep the table for good. */
TEST(a_cancelled_thread_ends_when_its_call_has)
{
    pthread_t thread;
    void *result;
    assert_true(flw_ctxsync_try(&driver, context_at(0)));
    assert_int_equal(pthread_create(&thread, NULL, announce_cancelled, NULL), 0);
    usleep(20000); /* it waits by now; otherwise the test passes without testing */
    assert_false(atomic_load(&is_announced));
    flw_ctxsync_end(&driver, context_at(0));
    pthread_join(thread, &result);
    assert_ptr_equal(result, PTHREAD_CANCELED);
    assert_true(atomic_load(&is_announced));
    flw_ctxsync_retract(&driver, context_at(0));
    assert_true(flw_ctxsync_try(&driver, context_at(0)));
    flw_ctxsync_end(&driver, context_at(0));
}

FLW_TEST_MAIN(NULL, NULL)

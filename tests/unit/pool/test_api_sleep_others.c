/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: watchers of a sleep.
 */
#include "unit/pool/test_api.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

struct watcher {
    struct api *api;
    char *order;
    char before, after;
    int refuses;
    void *frees;
};

static int before_sleep(void *context)
{
    struct watcher *watcher = context;
    strncat(watcher->order, &watcher->before, 1);
    if (watcher->frees != NULL) { /* it may use the pool, which still allocates */
        void *ptr = api_alloc(watcher->api, 3000, watcher->api->stream);
        assert_int_equal(fallow_free(watcher->api->pool, ptr, watcher->api->stream), FALLOW_OK);
        assert_int_equal(fallow_free(watcher->api->pool, watcher->frees, watcher->api->stream),
                         FALLOW_OK);
        watcher->frees = NULL;
        assert_int_equal(fallow_pool_sleep(watcher->api->pool, NULL), FALLOW_BUSY);
    }
    return watcher->refuses;
}

static void after_wake(void *context)
{
    struct watcher *watcher = context;
    strncat(watcher->order, &watcher->after, 1);
    if (!watcher->refuses) {
        void *ptr = api_alloc(watcher->api, 3000, watcher->api->stream);
        assert_int_equal(fallow_free(watcher->api->pool, ptr, watcher->api->stream), FALLOW_OK);
    }
}

TEST(watchers_are_told_before_and_after)
{
    struct api api;
    fallow_sleep_request request;
    char order[32] = "";
    struct watcher first = {&api, order, 'a', 'A', 0, NULL};
    struct watcher second = {&api, order, 'b', 'B', 0, NULL};
    struct watcher third = {&api, order, 'c', 'C', 0, NULL};
    api_begin_with_pool(&api);
    first.frees = api_alloc(&api, 50 * MIB, api.stream);
    assert_int_equal(fallow_pool_watch_sleep(api.pool, NULL, NULL, NULL), FALLOW_INVALID_ARGUMENT);
    assert_int_equal(fallow_pool_watch_sleep(api.pool, before_sleep, after_wake, &first),
                     FALLOW_OK);
    assert_int_equal(fallow_pool_watch_sleep(api.pool, before_sleep, after_wake, &second),
                     FALLOW_OK);
    assert_int_equal(fallow_pool_watch_sleep(api.pool, before_sleep, after_wake, &third),
                     FALLOW_OK);
    fallow_sleep_request_init(&request);
    request.flags = FALLOW_SLEEP_WAIT;
    assert_int_equal(fallow_pool_sleep(api.pool, &request), FALLOW_OK);
    assert_string_equal(order, "abc");
    assert_int_equal(api_stats(&api).live_count, 0);
    assert_int_equal(api_stats(&api).asleep_bytes, 0);
    assert_int_equal(fallow_pool_wake(api.pool), FALLOW_OK);
    assert_string_equal(order, "abcCBA");
    order[0] = '\0';
    second.refuses = 1;
    assert_int_equal(fallow_pool_sleep(api.pool, NULL), FALLOW_BUSY);
    assert_string_equal(order, "abBA"); /* a watcher that was not asked is not called */
    assert_int_equal(api_stats(&api).is_asleep, 0);
    order[0] = '\0';
    assert_int_equal(fallow_pool_unwatch_sleep(api.pool, before_sleep, after_wake, &second),
                     FALLOW_OK);
    assert_int_equal(fallow_pool_unwatch_sleep(api.pool, before_sleep, after_wake, &second),
                     FALLOW_NOT_FOUND);
    void *ptr = api_alloc(&api, MIB, api.stream);
    api_use(&api, ptr, MIB, api.stream);
    assert_int_equal(fallow_pool_sleep(api.pool, NULL), FALLOW_BUSY); /* work runs */
    assert_string_equal(order, "acCA");
    for (int i = 2; i < 16; i++) {
        assert_int_equal(fallow_pool_watch_sleep(api.pool, before_sleep, NULL, &first), FALLOW_OK);
    }
    assert_int_equal(fallow_pool_watch_sleep(api.pool, before_sleep, NULL, &first), FALLOW_BUSY);
    api_end(&api);
}

/* ---- threads */

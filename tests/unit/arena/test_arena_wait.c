/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: begins that wait for an arena: order, time limits, and wake-ups.
 */
#include "unit/arena/test_arena.h"

#include <sched.h>

#include "arena/arena.h"

#define WAITERS 6

struct line { /* queue of waiting begins in one round */
    fallow_arena *arena;
    const fallow_layout *layout;
    CUstream stream;
    uint32_t served[WAITERS]; /* written only during a lease */
    uint32_t served_count;
};

struct waiter {
    struct line *line;
    pthread_t thread;
    uint32_t number, wait_ms;
    fallow_status status;
};

/* Create an arena without a log, since the bed's log may be written by one thread only. */
static fallow_arena *make_quiet_arena(void)
{
    fallow_arena *arena = NULL;
    assert_ok(fallow_arena_create(api.pool, NULL, &arena));
    return arena;
}

static void *wait_in_line(void *context)
{
    struct waiter *waiter = context;
    struct line *line = waiter->line;
    fallow_lease *lease = NULL;
    waiter->status =
        fallow_lease_begin_within(line->arena, line->layout, line->stream, waiter->wait_ms, &lease);
    if (waiter->status == FALLOW_OK) {
        line->served[line->served_count++] = waiter->number;
        end_lease(lease, line->stream);
    }
    return NULL;
}

static void start(struct waiter *waiter, struct line *line, uint32_t number, uint32_t wait_ms)
{
    *waiter = (struct waiter){.line = line, .number = number, .wait_ms = wait_ms};
    assert_int_equal(pthread_create(&waiter->thread, NULL, wait_in_line, waiter), 0);
}

static uint32_t queue_length(const fallow_arena *handle)
{
    fallow_arena *arena = flw_arena_of(handle);
    uint32_t length = 0;
    pthread_mutex_lock(&arena->lock);
    for (const struct flw_arena_waiter *each = arena->waiters; each != NULL; each = each->next) {
        length++;
    }
    assert_int_equal((atomic_load(&arena->state) & FLW_ARENA_AWAITED) != 0, length != 0);
    pthread_mutex_unlock(&arena->lock);
    return length;
}

/* Queue waiters one after the other. Waiters with a short limit leave the queue from any position. */
static void run_round(struct line *line, uint64_t *random)
{
    struct waiter patient[WAITERS], hasty;
    uint32_t count = 1 + (uint32_t)(flw_test_random(random) % WAITERS);
    fallow_lease *lease = NULL, *tried = NULL;
    bool is_at_work = flw_test_random(random) % 2 == 0;
    if (is_at_work) {
        fallow_arena *arena = line->arena;
        assert_ok(flw_arena_enter(&arena));
    } else {
        lease = begin_lease(line->arena, line->layout, line->stream);
    }
    line->served_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        bool is_beside = flw_test_random(random) % 2 == 0;
        if (is_beside) {
            start(&hasty, line, 99, 1 + (uint32_t)(flw_test_random(random) % 3));
        }
        start(&patient[i], line, i, flw_test_random(random) % 2 == 0 ? UINT32_MAX : 600000);
        if (is_beside) {
            assert_int_equal(pthread_join(hasty.thread, NULL), 0);
            assert_int_equal(hasty.status, FALLOW_BUSY);
        }
        while (queue_length(line->arena) != i + 1) {
            sched_yield();
        }
    }
    if (is_at_work) {
        flw_arena_release_claim(flw_arena_of(line->arena));
    } else {
        end_lease(lease, line->stream);
    }
    while (fallow_lease_begin(line->arena, line->layout, line->stream, &tried) == FALLOW_BUSY) {
        sched_yield();
    }
    assert_int_equal(line->served_count, count); /* a begin that does not wait is served last */
    end_lease(tried, line->stream);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(pthread_join(patient[i].thread, NULL), 0);
        assert_ok(patient[i].status);
        assert_int_equal(line->served[i], i);
    }
    assert_int_equal(queue_length(line->arena), 0);
}

TEST(begins_are_served_as_they_came)
{
    uint64_t random = flw_test_seed("test_arena_wait");
    bed_begin();
    fallow_layout *layout = make_plain_layout(4096);
    struct line line = {.arena = make_quiet_arena(), .layout = layout, .stream = api.stream};
    for (int i = 0; i < 60; i++) {
        run_round(&line, &random);
    }
    struct waiter late;
    fallow_lease *lease = begin_lease(line.arena, layout, api.stream);
    start(&late, &line, 0, 1);
    assert_int_equal(pthread_join(late.thread, NULL), 0);
    assert_int_equal(late.status, FALLOW_BUSY);
    char text[64];
    fallow_arena_last_error(line.arena, text, sizeof text);
    assert_non_null(strstr(text, "a lease is open"));
    end_lease(lease, api.stream);
    bed_end();
}

struct crowd {
    struct line line;
    uint64_t random;
    uint64_t *lease_count; /* written only during a lease */
    uint64_t own_count;
};

static void *crowd_in(void *context)
{
    struct crowd *crowd = context;
    struct line *line = &crowd->line;
    for (int i = 0; i < 400; i++) {
        static const uint32_t limits[] = {0, 1, UINT32_MAX, UINT32_MAX};
        uint32_t wait_ms = limits[flw_test_random(&crowd->random) % 4];
        fallow_lease *lease = NULL;
        fallow_status status =
            fallow_lease_begin_within(line->arena, line->layout, line->stream, wait_ms, &lease);
        if (status == FALLOW_OK) {
            ++*crowd->lease_count;
            crowd->own_count++;
            if (flw_test_random(&crowd->random) % 8 == 0) {
                sched_yield();
            }
            end_lease(lease, line->stream);
        } else {
            assert_int_equal(status, FALLOW_BUSY);
            assert_int_not_equal(wait_ms, UINT32_MAX);
        }
        if (flw_test_random(&crowd->random) % 16 == 0) {
            status = fallow_arena_trim(line->arena);
            assert_true(status == FALLOW_OK || status == FALLOW_BUSY);
        }
    }
    return NULL;
}

/* A lost wake-up hangs this test; two leases at once are a data race that ThreadSanitizer reports. */
TEST(threads_crowd_in_and_none_sleeps_on)
{
    struct crowd crowd[4];
    pthread_t threads[4];
    uint64_t seed = flw_test_seed("test_arena_wait"), lease_count = 0, sum = 0;
    bed_begin();
    fallow_layout *layout = make_plain_layout(4096);
    fallow_arena *arena = make_quiet_arena();
    for (size_t i = 0; i < 4; i++) {
        crowd[i] = (struct crowd){.line = {.arena = arena, .layout = layout, .stream = api.stream},
                                  .random = seed + 99 * i,
                                  .lease_count = &lease_count};
        assert_int_equal(pthread_create(&threads[i], NULL, crowd_in, &crowd[i]), 0);
    }
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        sum += crowd[i].own_count;
    }
    assert_int_equal(lease_count, sum);
    assert_int_equal(arena_stats(arena).lease_count, sum);
    assert_int_equal(queue_length(arena), 0);
    bed_end();
}

FLW_TEST_MAIN(NULL, NULL)

/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: tests of the gate (pool/state/gate.h) alone.
 */
#include "support/test.h"

#include <pthread.h>
#include <sched.h>

#include "pool/state/gate.h"

#define AWAITS 300000

struct knock {
    struct flw_gate gate;
    atomic_bool began, ends;
};

/* Enter and leave repeatedly during a turn. */
static void *knock(void *argument)
{
    struct knock *knock = argument;
    atomic_store(&knock->began, true);
    while (!atomic_load(&knock->ends)) {
        if (flw_gate_enter(&knock->gate, false) == FALLOW_OK) {
            flw_gate_leave(&knock->gate);
        }
    }
    return NULL;
}

TEST(a_turn_that_may_wait_is_not_refused_for_those_who_knock)
{
    static struct knock shared;
    pthread_t thread;
    unsigned refused = 0;
    flw_gate_set(&shared.gate, FLW_GATE_HELD);
    assert_int_equal(pthread_create(&thread, NULL, knock, &shared), 0);
    while (!atomic_load(&shared.began)) {
        sched_yield();
    }
    for (unsigned i = 0; i < AWAITS; i++) {
        refused += !flw_gate_await(&shared.gate, true);
    }
    atomic_store(&shared.ends, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(refused, 0);
}

TEST(a_turn_that_may_not_wait_is_refused_while_one_is_inside)
{
    static struct flw_gate gate;
    assert_int_equal(flw_gate_enter(&gate, false), FALLOW_OK);
    flw_gate_set(&gate, FLW_GATE_HELD);
    assert_int_equal(flw_gate_enter(&gate, false), FALLOW_WOULD_WAIT);
    assert_false(flw_gate_await(&gate, false));
    flw_gate_leave(&gate);
    assert_true(flw_gate_await(&gate, false));
    flw_gate_set(&gate, FLW_GATE_ASLEEP);
    assert_int_equal(flw_gate_enter(&gate, true), FALLOW_ASLEEP);
    assert_true(flw_gate_await(&gate, false));
}

TEST(a_short_turn_leaves_a_sleeping_pool_asleep)
{
    static struct flw_gate gate;
    assert_true(flw_gate_await_turn(&gate));
    assert_false(flw_gate_await_turn(&gate)); /* its own */
    flw_gate_hold(&gate);
    assert_int_equal(flw_gate_enter(&gate, false), FALLOW_WOULD_WAIT);
    flw_gate_let_in(&gate);
    assert_int_equal(flw_gate_enter(&gate, false), FALLOW_OK);
    flw_gate_leave(&gate);
    flw_gate_set(&gate, FLW_GATE_ASLEEP);
    flw_gate_hold(&gate);
    assert_true(flw_gate_is_asleep(&gate)); /* as queried by statistics and arenas in other
                                                threads */
    assert_int_equal(flw_gate_enter(&gate, true), FALLOW_ASLEEP);
    flw_gate_let_in(&gate);
    assert_true(flw_gate_is_asleep(&gate));
    flw_gate_end_turn(&gate);
    assert_true(flw_gate_begin_turn(&gate));
}

FLW_TEST_MAIN(NULL, NULL)

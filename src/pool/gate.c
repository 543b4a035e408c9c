/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/gate.h"

#include <sched.h>
#include <time.h>

#include "base/lock.h"

/* A turn is a handful of driver calls, or as long as the device works. */
static void pause_once(unsigned *tries)
{
    if ((*tries)++ < 64) {
        sched_yield();
    } else {
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    }
}

fallow_status flw_gate_wait(struct flw_gate *gate, bool may_wait)
{
    unsigned tries = 0;
    FLW_ASSERT(flw_lock_none_held());
    for (;;) {
        flw_gate_leave(gate);
        int state = atomic_load(&gate->state);
        if (state == FLW_GATE_ASLEEP) {
            return FALLOW_ASLEEP;
        }
        if (state == FLW_GATE_HELD && !may_wait) {
            return FALLOW_WOULD_WAIT;
        }
        if (state == FLW_GATE_HELD) {
            pause_once(&tries);
        }
        atomic_fetch_add(&gate->inside, 1);
        if (atomic_load(&gate->state) == FLW_GATE_OPEN) {
            return FALLOW_OK;
        }
    }
}

bool flw_gate_await(struct flw_gate *gate, bool may_wait)
{
    unsigned tries = 0;
    for (;;) { /* one look decides: those who wait outside count themselves in and out */
        if (atomic_load(&gate->inside) == 0) {
            return true;
        }
        if (!may_wait) {
            return false;
        }
        pause_once(&tries);
    }
}

bool flw_gate_await_turn(struct flw_gate *gate)
{
    unsigned tries = 0;
    while (!flw_gate_begin_turn(gate)) {
        if (atomic_load(&gate->turner) == flw_thread_token()) {
            return false;
        }
        pause_once(&tries);
    }
    return true;
}

void flw_gate_hold(struct flw_gate *gate)
{
    if (!flw_gate_is_asleep(gate)) {
        flw_gate_set(gate, FLW_GATE_HELD);
    }
    (void)flw_gate_await(gate, true);
}

void flw_gate_let_in(struct flw_gate *gate)
{
    if (!flw_gate_is_asleep(gate)) {
        flw_gate_set(gate, FLW_GATE_OPEN);
    }
}

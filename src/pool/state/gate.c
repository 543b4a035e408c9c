/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/state/gate.h"

#include "base/backoff.h"
#include "base/lock.h"

fallow_status flw_gate_wait(struct flw_gate *gate, bool may_wait)
{
    struct flw_backoff backoff = {0};
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
            flw_backoff_wait(&backoff);
        }
        atomic_fetch_add(&gate->inside, 1);
        if (atomic_load(&gate->state) == FLW_GATE_OPEN) {
            return FALLOW_OK;
        }
    }
}

bool flw_gate_await(struct flw_gate *gate, bool may_wait)
{
    struct flw_backoff backoff = {0};
    for (;;) { /* one check decides: waiting callers count themselves in and out */
        if (atomic_load(&gate->inside) == 0) {
            return true;
        }
        if (!may_wait) {
            return false;
        }
        flw_backoff_wait(&backoff);
    }
}

bool flw_gate_await_turn(struct flw_gate *gate)
{
    struct flw_backoff backoff = {0};
    while (!flw_gate_begin_turn(gate)) {
        if (atomic_load(&gate->turner) == flw_thread_token()) {
            return false;
        }
        flw_backoff_wait(&backoff);
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

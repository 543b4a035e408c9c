/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the gate of a pool: who is inside a call that gets, maps, fills or releases physical
 * memory, and the *turns* (a sleep, a wake, a change of peers, a validation) that need every thread
 * to be outside. Does not: concern hits, frees or anything else that leaves physical memory alone.
 * A sleep closes the caches besides.
 *
 * A caller counts itself inside, then looks at the state; a turn sets the state, then looks at the
 * count: one of the two sees the other. No thread that is inside enters again, or calls back a
 * user: that one may be waited for by the turn, and wait for it.
 */
#ifndef FLW_POOL_GATE_H
#define FLW_POOL_GATE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/bits.h"
#include "base/check.h"
#include "fallow/status.h"
#include "heap/state/thread.h"

enum flw_gate_state {
    FLW_GATE_OPEN,
    FLW_GATE_HELD,  /* a turn is under way: wait for its outcome */
    FLW_GATE_ASLEEP /* refuse */
};

struct flw_gate {
    _Alignas(FLW_LINE_PAIR) atomic_int state;
    atomic_uint inside;
    _Atomic uintptr_t turner; /* whose turn it is, callbacks of a sleep included; 0: no thread's */
    atomic_bool closes_hits;  /* caches that are made meanwhile are closed too */
};

/* The gate was not open: the caller is counted out. */
fallow_status flw_gate_wait(struct flw_gate *gate, bool may_wait);

/* OK: inside, until flw_gate_leave. ASLEEP; WOULD_WAIT: a turn is under way and may_wait is false. */
static inline fallow_status flw_gate_enter(struct flw_gate *gate, bool may_wait)
{
    atomic_fetch_add(&gate->inside, 1);
    if (FLW_LIKELY(atomic_load(&gate->state) == FLW_GATE_OPEN)) {
        return FALLOW_OK;
    }
    return flw_gate_wait(gate, may_wait);
}

static inline void flw_gate_leave(struct flw_gate *gate)
{
    atomic_fetch_sub(&gate->inside, 1);
}

/* After a leave for a callback. Whatever it answers, the caller leaves once more; not OK: at once. */
static inline fallow_status flw_gate_enter_again(struct flw_gate *gate)
{
    fallow_status status = flw_gate_enter(gate, true);
    if (status != FALLOW_OK) {
        atomic_fetch_add(&gate->inside, 1);
    }
    return status;
}

static inline bool flw_gate_is_asleep(const struct flw_gate *gate)
{
    return atomic_load_explicit(&gate->state, memory_order_acquire) == FLW_GATE_ASLEEP;
}

/* False: another thread is at a turn, or this one, in a callback. */
static inline bool flw_gate_begin_turn(struct flw_gate *gate)
{
    uintptr_t none = 0;
    return atomic_compare_exchange_strong(&gate->turner, &none, flw_thread_token());
}

/* The same, after other threads' turns. False: it is this one's, which is in a callback of it. */
bool flw_gate_await_turn(struct flw_gate *gate);

static inline void flw_gate_end_turn(struct flw_gate *gate)
{
    atomic_store(&gate->turner, 0);
}

/* The turn's owner. From now on no thread comes in. */
static inline void flw_gate_set(struct flw_gate *gate, enum flw_gate_state state)
{
    atomic_store(&gate->state, (int)state);
}

/* The same: wait for those that are inside. False: there are some, and it may not wait. */
bool flw_gate_await(struct flw_gate *gate, bool may_wait);

/* The same for a short turn: from here to flw_gate_let_in no thread is inside. A pool that sleeps
 * goes on refusing, and saying that it sleeps. */
void flw_gate_hold(struct flw_gate *gate);
void flw_gate_let_in(struct flw_gate *gate);

#endif

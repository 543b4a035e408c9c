/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the gate of a pool: the threads inside calls that acquire, map, fill or release physical
 * memory, and the *turns* (a sleep, a wake, a change of peers, a validation) that need every
 * thread outside. Does not: affect hits, frees or other calls that leave physical memory alone. A
 * sleep also closes the caches.
 *
 * A caller counts itself inside, then reads the state; a turn sets the state, then reads the
 * count: one of the two sees the other. A thread inside must not enter again, or call a user's
 * callback: the turn may wait for it, and it for the turn. */
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
    FLW_GATE_HELD,  /* a turn is under way: wait for the end */
    FLW_GATE_ASLEEP /* refuse */
};

struct flw_gate {
    _Alignas(FLW_LINE_PAIR) atomic_int state;
    atomic_uint inside;
    _Atomic uintptr_t turner; /* thread of the turn, including callbacks of a sleep; 0: none */
    atomic_bool closes_hits;  /* caches created meanwhile are closed too */
};

/* Slow half of flw_gate_enter. On failure the caller is no longer counted as inside. */
fallow_status flw_gate_wait(struct flw_gate *gate, bool may_wait);

/* OK: inside, until flw_gate_leave. ASLEEP; WOULD_WAIT: a turn is under way and
 * may_wait is false. */
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

/* Re-enter after leaving for a callback. The caller must call flw_gate_leave exactly once more,
 * immediately if this fails. */
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

/* Begin a turn. False: another thread has one, or this one, in a callback. */
static inline bool flw_gate_begin_turn(struct flw_gate *gate)
{
    uintptr_t none = 0;
    return atomic_compare_exchange_strong(&gate->turner, &none, flw_thread_token());
}

/* The same, after other threads' turns. False: this thread has one and is in a callback of it. */
bool flw_gate_await_turn(struct flw_gate *gate);

static inline void flw_gate_end_turn(struct flw_gate *gate)
{
    atomic_store(&gate->turner, 0);
}

/* For the turn's owner: let no more threads in. */
static inline void flw_gate_set(struct flw_gate *gate, enum flw_gate_state state)
{
    atomic_store(&gate->state, (int)state);
}

/* For the turn's owner: wait for threads inside. False: there are some and may_wait is false. */
bool flw_gate_await(struct flw_gate *gate, bool may_wait);

/* The same for a short turn: no thread is inside from here to flw_gate_let_in. A sleeping pool
 * continues to return ASLEEP. */
void flw_gate_hold(struct flw_gate *gate);
void flw_gate_let_in(struct flw_gate *gate);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "base/lock.h"

#include <sched.h>

/* Contended: spin on a read, so the line stays shared, then give the processor to the holder. */
void flw_lock_wait(struct flw_lock *lock)
{
    unsigned spins = 0;
    do {
        while (atomic_load_explicit(&lock->held, memory_order_relaxed) != 0) {
            if (++spins < 64) {
#if defined(__x86_64__)
                __builtin_ia32_pause();
#endif
            } else {
                sched_yield();
            }
        }
    } while (atomic_exchange_explicit(&lock->held, 1, memory_order_acquire) != 0);
}

#if FLW_CHECK_LEVEL >= 1
/* Bit r set: a lock of rank r is held. Initial-exec: no other model is free of memory on first use. */
static _Thread_local unsigned held_ranks __attribute__((tls_model("initial-exec")));

void flw_lock_note_acquire(unsigned rank)
{
    FLW_ASSERT(rank < FLW_RANK_COUNT && (held_ranks >> rank) == 0);
    held_ranks |= 1u << rank;
}

void flw_lock_note_release(unsigned rank)
{
    FLW_ASSERT((held_ranks & (1u << rank)) != 0);
    held_ranks &= ~(1u << rank);
}

bool flw_lock_none_held(void)
{
    return held_ranks == 0;
}
#endif

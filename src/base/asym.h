/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the asymmetric lock. Its owner, one thread, pays two plain stores; a *drainer*, any other
 * thread, pays a membarrier(2), so that it can empty the owner's cache without an atomic on the
 * owner's path.
 *
 *   owner      busy = 1 (plain) · compiler fence · test the key · work · busy = 0 (release)
 *   drainer    under a lock of its own: poison the key · membarrier · wait for busy == 0 · work ·
 * restore
 *
 * Why it is right: the processor may delay the owner's store of busy past its load of the key
 * (store buffer). membarrier runs a full barrier on every running thread of the process between the
 * drainer's poison and its look at busy. If the owner's load of the key came before that barrier,
 * its earlier store of busy is visible by then and the drainer waits; if it came after, it sees the
 * poison and does not enter. tests/check has every interleaving of this, and the one that fails
 * without the barrier.
 *
 * Memory orders: busy = 0 (release) pairs with the drainer's acquire load in flw_asym_wait; the
 * drainer's restore of the key (release) pairs with the owner's load of it: the owner reads
 * everything through the same cache after it, on x86 in order, elsewhere by the acquire below.
 *
 * Without membarrier (old or filtered kernels) and under ThreadSanitizer, which cannot see it, the
 * owner pays a sequentially consistent fence: FLW_ASYM_FENCED, chosen at build time for the
 * sanitizer; at run time the key stays poisoned instead and every call takes the cache's own lock.
 */
#ifndef FLW_BASE_ASYM_H
#define FLW_BASE_ASYM_H

#include <linux/membarrier.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

struct flw_asym {
    _Atomic uint64_t busy; /* 1: the owner is inside. Written by the owner only */
};

#if defined(FLW_TSAN)
#define FLW_ASYM_FENCED 1
#endif

static inline void flw_asym_enter(struct flw_asym *asym)
{
#if defined(FLW_ASYM_FENCED)
    /* An exchange: sequentially consistent, and an acquire of the drainer's release below. */
    (void)atomic_exchange_explicit(&asym->busy, 1, memory_order_seq_cst);
#else
    atomic_store_explicit(&asym->busy, 1, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
#if !defined(__x86_64__)
    atomic_thread_fence(memory_order_acquire);
#endif
#endif
}

static inline void flw_asym_leave(struct flw_asym *asym)
{
    atomic_store_explicit(&asym->busy, 0, memory_order_release);
}

/* Once a process, before the first cache: true if drainers may rely on membarrier. 10 ms or more
 * when threads are running. */
static inline bool flw_asym_register(void)
{
#if defined(FLW_ASYM_FENCED)
    return true;
#else
    return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
#endif
}

/* One barrier serves any number of caches poisoned before it. */
static inline void flw_asym_barrier(void)
{
#if defined(FLW_ASYM_FENCED)
    atomic_thread_fence(memory_order_seq_cst);
#else
    (void)syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
#endif
}

/* The owner may be preempted inside: give it the processor, never spin on it. */
static inline void flw_asym_wait(struct flw_asym *asym)
{
    while (atomic_load_explicit(&asym->busy, memory_order_acquire) != 0) {
        sched_yield();
    }
}

#endif

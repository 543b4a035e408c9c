/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the asymmetric lock. Its owner, one thread, pays two plain stores. A *drainer*, any other
 * thread, pays a membarrier(2). Drainers can empty the owner's cache without an atomic operation
 * on the owner's path.
 *
 *   owner      busy = 1 (plain) · compiler fence · test the key (acquire) · work · busy = 0 (release)
 *   drainer    poison the key · membarrier · wait for busy == 0 · work · restore the key (release)
 *
 * Drainers exclude each other by locks of their own. Several keys may be poisoned before one
 * membarrier.
 *
 * Correctness: the processor may delay the owner's store of busy past the load of the key (store
 * buffer). membarrier runs a full barrier on every running thread of the process, between the
 * drainer's poison and the read of busy. If the owner's load of the key precedes that barrier, the
 * earlier store of busy is visible and the drainer waits. Otherwise the owner reads the poison and
 * does not enter. check.asym_model explores every execution of this protocol on a machine with
 * store buffers and on one with every reordering that ARMv8 permits. It also finds the failures:
 * without the barrier, and if the test of the key does not precede the work.
 *
 * Memory orders: busy = 0 (release) pairs with the drainer's acquire load in flw_asym_wait, so the
 * owner's work is complete. The drainer's restore of the key (release) pairs with the owner's test
 * of the key (acquire): the owner reads the cache after the key and so never uses blocks that the
 * drainer has taken. x86 keeps loads in order and only the compiler needs the order; ARMv8 has an
 * instruction for it (ldar, ldapr). A fence before the test would not order the loads after it.
 *
 * Without membarrier (an old kernel, or a filter) the key stays poisoned and every call takes the
 * cache's own lock. A kernel may grant membarrier first and refuse it later (a seccomp filter,
 * ENOMEM): flw_asym_slow_barrier then establishes the order once more by other means for all poisoned
 * keys, and no key is restored again.
 *
 * ThreadSanitizer models neither membarrier nor fences. Under it (FLW_ASYM_FENCED) owner and
 * drainer instead do a read-modify-write of one word of this lock. The later of two such
 * operations reads from the earlier one: if the owner is first, the drainer sees busy; if the
 * drainer is first, the owner sees the poison. The proof is the same, in terms that the sanitizer
 * models. Each lock has a word of its own, so owners that only hit are not ordered among each
 * other, as in other builds, and the sanitizer still detects their races. */
#ifndef FLW_BASE_ASYM_H
#define FLW_BASE_ASYM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/bits.h"

#if defined(FLW_TSAN)
#define FLW_ASYM_FENCED 1
#endif

struct flw_asym {
    _Atomic uint64_t busy; /* 1: the owner is inside; written by the owner only */
#if defined(FLW_ASYM_FENCED)
    _Atomic uint64_t order; /* constant; only the order of the writes matters */
    bool is_unowned;
#endif
};

/* Lock that many threads enter as owners and no thread drains: the key never matches. */
#if defined(FLW_ASYM_FENCED)
#define FLW_ASYM_UNOWNED   \
    {                      \
        .is_unowned = true \
    }
#else
#define FLW_ASYM_UNOWNED \
    {                    \
        0                \
    }
#endif

static inline void flw_asym_enter(struct flw_asym *asym)
{
#if defined(FLW_ASYM_FENCED)
    atomic_store_explicit(&asym->busy, 1, memory_order_relaxed);
    if (!asym->is_unowned) {
        (void)atomic_fetch_add_explicit(&asym->order, 0, memory_order_acq_rel);
    }
#else
    atomic_store_explicit(&asym->busy, 1, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
#endif
}

/* True if the key is `expected`; call it inside. Later reads follow the read of the key. (On x86 a
 * plain load, which the compiler can fold into the compare; an atomic load costs one more
 * instruction.) */
static inline bool flw_asym_key_is(const void *const *key, const void *expected)
{
#if defined(__x86_64__) && !defined(FLW_ASYM_FENCED)
    if (FLW_UNLIKELY(*key != expected)) {
        return false;
    }
    atomic_signal_fence(memory_order_acquire);
    return true;
#else
    return __atomic_load_n(key, __ATOMIC_ACQUIRE) == expected;
#endif
}

static inline void flw_asym_leave(struct flw_asym *asym)
{
    atomic_store_explicit(&asym->busy, 0, memory_order_release);
}

/* Register with the kernel, once per process, before the first cache. Returns true if drainers may
 * use membarrier. Takes 10 ms or more while other threads run. */
bool flw_asym_register(void);

/* Run one barrier, for any number of caches poisoned before. Returns false if the kernel now
 * refuses; nothing is ordered then. */
bool flw_asym_barrier(void);

/* Establish the order without the refused barrier, once; takes 20 ms, or the time of
 * MEMBARRIER_CMD_GLOBAL. The caller keeps the poisoned keys poisoned. */
void flw_asym_slow_barrier(void);

/* Slow half of flw_asym_wait: the owner may have lost the processor inside. */
void flw_asym_wait_longer(const struct flw_asym *asym);

/* Wait until the owner has left. Call after a barrier. */
static inline void flw_asym_wait(struct flw_asym *asym)
{
#if defined(FLW_ASYM_FENCED)
    (void)atomic_fetch_add_explicit(&asym->order, 0, memory_order_acq_rel);
#endif
    if (FLW_UNLIKELY(atomic_load_explicit(&asym->busy, memory_order_acquire) != 0)) {
        flw_asym_wait_longer(asym);
    }
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the asymmetric lock. Its owner, one thread, pays two plain stores; a *drainer*, any other
 * thread, pays a membarrier(2), so that it can empty the owner's cache without an atomic on the
 * owner's path.
 *
 *   owner      busy = 1 (plain) · compiler fence · test the key (acquire) · work · busy = 0 (release)
 *   drainer    poison the key · membarrier · wait for busy == 0 · work · restore the key (release)
 *
 * Drainers keep each other away by locks of their own. Several keys may be poisoned before one
 * membarrier.
 *
 * Why it is right: the processor may delay the owner's store of busy past its load of the key
 * (store buffer). membarrier runs a full barrier on every running thread of the process between the
 * drainer's poison and its look at busy. If the owner's load of the key came before that barrier,
 * its earlier store of busy is visible by then and the drainer waits; if it came after, it sees the
 * poison and does not enter. check.asym_model has every execution of this on a machine with store
 * buffers and on one that reorders whatever ARMv8 lets it reorder, and those that fail: without the
 * barrier, and where the test of the key does not come before what it guards.
 *
 * Memory orders: busy = 0 (release) pairs with the drainer's acquire load in flw_asym_wait: what the
 * owner did inside is done. The drainer's restore of the key (release) pairs with the owner's test of
 * it (acquire): what the owner reads inside it reads after the key, so it never works on what the
 * drainer has taken. x86 keeps loads in order by itself and only the compiler has to be told; ARMv8
 * has an instruction for it (ldar, ldapr). A fence before the test would order nothing that matters.
 *
 * Where the kernel has no membarrier (old, or filtered) the key stays poisoned and every call takes
 * the cache's own lock. A kernel that grants it at first may refuse it later (a seccomp filter, ENOMEM):
 * then flw_asym_settle makes the order once more, by other means, for everything that is poisoned by
 * then, and nothing is opened again.
 *
 * ThreadSanitizer sees neither membarrier nor fences; for it (FLW_ASYM_FENCED) the owner and whoever
 * waits for it do a read-modify-write of one word of this lock in their place. Of two such the later
 * reads from the earlier and comes after it: the owner's first, and the drainer sees busy; the
 * drainer's first, and the owner sees the poison. The same proof, in terms that the sanitizer follows.
 * The word is each lock's own: owners that only hit are as little ordered among each other as in any
 * other build, so that a race of theirs is seen.
 */
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
    _Atomic uint64_t busy; /* 1: the owner is inside. Written by the owner only */
#if defined(FLW_ASYM_FENCED)
    _Atomic uint64_t order; /* never changes; only the order of its writes matters */
    bool is_unowned;
#endif
};

/* Of a lock that many threads enter as owners and none ever drains: its key never matches. */
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

/* Inside: is the key `expected`? What is read afterwards is read after the key. (On x86 a plain load,
 * which a compare takes from memory; an atomic one costs an instruction more.) */
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

/* Once a process, before the first cache: true if drainers may rely on membarrier. 10 ms or more
 * when threads are running. */
bool flw_asym_register(void);

/* One barrier serves any number of caches poisoned before it. False: the kernel refuses it now; nothing
 * has been ordered. */
bool flw_asym_barrier(void);

/* In the place of a barrier that was refused, once: it takes 20 ms, or what MEMBARRIER_CMD_GLOBAL takes.
 * The caller sees to it that what is poisoned by now stays so. */
void flw_asym_settle(void);

/* The rest of flw_asym_wait: the owner may have lost its processor inside. */
void flw_asym_wait_longer(const struct flw_asym *asym);

/* After a barrier: until the owner is out. */
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

/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the drainer's side of the asymmetric lock that needs the kernel, or time.
 */
#include "base/asym.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/backoff.h"

#if defined(FLW_ASYM_FENCED)
/* Owners and who waits for them order themselves; nothing is ever refused. */
bool flw_asym_register(void)
{
    return true;
}

bool flw_asym_barrier(void)
{
    return true;
}

void flw_asym_settle(void)
{
}
#else
static bool ask(int command)
{
    int saved = errno;
    bool is_done = syscall(SYS_membarrier, command, 0, 0) == 0;
    errno = saved;
    return is_done;
}

bool flw_asym_register(void)
{
    return ask(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
}

bool flw_asym_barrier(void)
{
    return ask(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}

/* An owner that was inside when its key was poisoned has read the key before, and its store of busy
 * comes before that in its program: the store is on its way to memory at most, in its processor's
 * store buffer. MEMBARRIER_CMD_GLOBAL waits until every processor has changed threads, and needs no
 * memory. Where that is refused too, what is left is time: stores leave the buffer by themselves, within
 * a microsecond, and at every interrupt. No manual states a bound, so this one is four orders of magnitude
 * above what processors take, and stands for one barrier in the life of a pool. */
#define SETTLE_NS 20000000l

void flw_asym_settle(void)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (!ask(MEMBARRIER_CMD_GLOBAL)) {
        flw_sleep_ns(SETTLE_NS);
    }
    atomic_thread_fence(memory_order_seq_cst);
}
#endif

void flw_asym_wait_longer(const struct flw_asym *asym)
{
    struct flw_backoff backoff = {0};
    while (atomic_load_explicit(&asym->busy, memory_order_acquire) != 0) {
        flw_backoff_wait(&backoff);
    }
}

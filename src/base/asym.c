/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the slow half of the drainer's side of the asymmetric lock: kernel calls and waits. */
#include "base/asym.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/backoff.h"

#if defined(FLW_ASYM_FENCED)
/* Callers serialise owners and drainers themselves; nothing is refused. */
bool flw_asym_register(void)
{
    return true;
}

bool flw_asym_barrier(void)
{
    return true;
}

void flw_asym_slow_barrier(void)
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

/* The order without MEMBARRIER_CMD_PRIVATE_EXPEDITED. An owner that entered before the key was
 * poisoned stored busy before it read the key. At most that store is still in the processor's
 * store buffer. MEMBARRIER_CMD_GLOBAL waits until every processor has switched threads and needs
 * no memory. If the kernel refuses that too, the fallback is time: a store leaves the buffer
 * within a microsecond and at every interrupt. No manual states a bound; this one is 10,000 times
 * the usual time and is paid once in the life of a pool. */
#define STORE_DRAIN_NS 20000000l

void flw_asym_slow_barrier(void)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (!ask(MEMBARRIER_CMD_GLOBAL)) {
        flw_sleep_ns(STORE_DRAIN_NS);
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

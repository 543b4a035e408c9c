/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the calling thread's identity. Tokens are unique among living threads.
 */
#ifndef FLW_HEAP_STATE_THREAD_H
#define FLW_HEAP_STATE_THREAD_H

#include <pthread.h>
#include <stdint.h>

static inline uintptr_t flw_thread_token(void)
{
    return (uintptr_t)pthread_self();
}

#endif

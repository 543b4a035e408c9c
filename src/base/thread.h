/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: starting a thread inside a foreign program. */
#ifndef FLW_BASE_THREAD_H
#define FLW_BASE_THREAD_H

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>

/* Start a thread with all signals blocked. Returns 0 or the error. */
static inline int flw_thread_start(pthread_t *thread, size_t stack_bytes, void *(*run)(void *),
                                   void *argument)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    int error = pthread_attr_init(&attributes);
    if (error != 0) {
        return error;
    }
    (void)pthread_attr_setstacksize(&attributes, stack_bytes);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(thread, &attributes, run, argument);
    if (error == EINVAL) { /* the program's thread-local storage alone needs more */
        error = pthread_create(thread, NULL, run, argument);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return error;
}

#endif

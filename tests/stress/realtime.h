/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: two threads on one processor, one of them with a real-time priority (SCHED_FIFO), and the
 * kernel's counts of their switches. Independent of their work.
 *
 * While the real-time thread is runnable, the ordinary one does not run: the real-time thread has
 * to sleep, or the other never continues. The kernel counts voluntary switches (ru_nvcsw) and
 * involuntary ones (ru_nivcsw): as the first on the processor the real-time thread is stopped only
 * by the kernel's limit on real-time threads, when it spins for most of a second. */
#ifndef FLW_TESTS_STRESS_REALTIME_H
#define FLW_TESTS_STRESS_REALTIME_H

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

struct turns {
    long slept, stopped;
};

static inline struct turns turns_now(void)
{
    struct rusage usage;
    (void)getrusage(RUSAGE_THREAD, &usage);
    return (struct turns){usage.ru_nvcsw, usage.ru_nivcsw};
}

static inline struct turns turns_since(const struct turns *before)
{
    struct turns now = turns_now();
    return (struct turns){now.slept - before->slept, now.stopped - before->stopped};
}

/* Pin the calling thread, and threads that it creates, to the first processor. */
static inline bool stay_on_one_processor(void)
{
    cpu_set_t all, one;
    int first = 0;
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof all, &all) != 0) {
        return false;
    }
    while (!CPU_ISSET(first, &all)) {
        first++;
    }
    CPU_SET(first, &one);
    return sched_setaffinity(0, sizeof one, &one) == 0;
}

/* False, and a sentence: the kernel refuses. */
static inline bool start_realtime(pthread_t *thread, void *(*run)(void *), void *argument)
{
    pthread_attr_t attributes;
    struct sched_param priority = {.sched_priority = 1};
    (void)pthread_attr_init(&attributes);
    (void)pthread_attr_setinheritsched(&attributes, PTHREAD_EXPLICIT_SCHED);
    (void)pthread_attr_setschedpolicy(&attributes, SCHED_FIFO);
    (void)pthread_attr_setschedparam(&attributes, &priority);
    int error = pthread_create(thread, &attributes, run, argument);
    (void)pthread_attr_destroy(&attributes);
    if (error != 0) {
        fprintf(stderr,
                "skipped: this kernel gives the user no thread under SCHED_FIFO (%s): run as root, "
                "or with CAP_SYS_NICE, or 'ulimit -r 1'\n",
                strerror(error));
    }
    return error == 0;
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the shared state of a stress run: the run, the workers, and the operations of a worker.
 * Each step keeps the contract of the public calls, so any error found by the rule checker, the
 * overlap set, the ledger or a status is the pool's fault.
 *
 * A run is *quiet* while the pool falls asleep, sleeps or wakes: no step touches the pool's
 * memory, all others continue. It is *lost* once the pool has lost the device, which must be
 * reported by a status. */
#ifndef FLW_TESTS_STRESS_WORKER_H
#define FLW_TESTS_STRESS_WORKER_H

#include <pthread.h>
#include <stdatomic.h>

#include "stress_run.h"

#define STRESS_MAILBOX_SLOTS 64
#define STRESS_IMPORTS       4

/* Blocks on their way from one thread to another; used on shared streams only. */
struct mailbox {
    pthread_mutex_t mutex;
    unsigned count;
    struct flw_client_block blocks[STRESS_MAILBOX_SLOTS];
};

struct worker;

struct run {
    struct stress_settings settings;
    struct worker *workers;
    struct flw_sim sim;
    struct flw_put put;
    void *importer;    /* a second pool that maps exported blocks of the first; NULL: none */
    CUcontext context; /* the primary context, if it will end */
    struct flw_overlap *overlap;
    struct mailbox mailbox;
    CUstream shared[STRESS_SHARED_STREAMS];
    fallow_stats stats;        /* at the end */
    pthread_mutex_t sleeper;   /* held by the worker that puts the pool to sleep */
    pthread_mutex_t turnstile; /* gives priority to a thread waiting for `steps` */
    pthread_rwlock_t steps;    /* read: a step; write: is_quiet changes */
    bool is_quiet;
    atomic_bool has_loss;
    char loss[200];                     /* how the device was lost; "": it was not */
    atomic_bool failed, lost, is_reset; /* is_reset: the primary context has ended */
    atomic_uint planned_faults, refusals_by_driver;
    atomic_bool is_gone; /* a call was made to answer gone_answer: the device may be lost by that */
    _Atomic int gone_answer;
    bool is_refused;     /* the driver refuses calls for good (the profile) */
    uint64_t kept_bytes; /* refused by the driver, as logged at the end */
    bool has_kept;       /* something */
    atomic_uint sleeps, peers, exports, foreign_uses, oom_calls;
};

struct worker {
    struct run *run;
    struct flw_client client;
    uint64_t ops_left, life_ops, until_validate;
    pthread_t thread;
    bool wants_sleep, wants_renewal; /* do so after the step, outside of `steps` */
    bool is_in_capture;              /* callbacks of the pool must not touch the blocks */
    CUcontext foreign;               /* private context with a stream; NULL: none at present */
    CUstream foreign_stream;
    void *imports[STRESS_IMPORTS];
    unsigned import_count;
};

void stress_fail(struct worker *worker, const char *call, fallow_status status);
/* True if the pool may return this status for a valid request in this run: OUT_OF_MEMORY, not OK.
 * Records a loss. */
bool stress_allows(struct worker *worker, fallow_status status);
/* OK, or allowed; else the run fails. */
void stress_expect(struct worker *worker, const char *call, fallow_status status);

/* ---- stress_step.c */

uint32_t stress_pick_stream(struct worker *worker);
void stress_free_one(struct worker *worker, size_t index);
/* Run one operation under `steps`; stress_rare has the rare ones. */
void stress_step(struct worker *worker);

/* ---- stress_rare.c */

void stress_rare(struct worker *worker);
/* Destroy a stream that all threads use, with or without a retire; all continue on the new stream with the same handle.
 * Call outside of `steps`. */
void stress_renew_shared(struct worker *worker);
/* With one thread every counter is exact at every moment. */
void stress_compare_ledger(struct worker *worker);

/* ---- stress_sleep.c: outside of `steps` */

void stress_watch(struct run *run);
void stress_sleep(struct worker *worker);

/* ---- stress_others.c: other contexts, devices, pools */

void stress_share(struct worker *worker);
void stress_change_peers(struct worker *worker);
void stress_use_abroad(struct worker *worker);
/* Gives up imports and the other context. */
void stress_leave_others(struct worker *worker);

/* ---- stress_fault.c */

/* The next call, or one of the next few, of an entry point that pools use is refused. */
void stress_plan_fault(struct worker *worker);

/* ---- stress_run.c */

/* Return the worker of this thread; NULL: a thread of the pool. */
struct worker *stress_self(void);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: one policy's run over a program on a device, and its result. A run begins and ends its own world on the device.
 * Does not: print.
 */
#ifndef FLW_TOOL_RUN_H
#define FLW_TOOL_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/program.h"
#include "common/replay_device.h"
#include "policies/policy.h"
#include "trace/trace/trace.h"

#define FLW_RUN_MESSAGE_BYTES   512
#define FLW_RUN_VIOLATION_BYTES 512
#define FLW_RUN_SAMPLE_EVERY    61 /* operations between two timed ones; odd, as ops alternate */

struct flw_run;

/* Observes a run of one thread and one pass. NULL members are not called. */
struct flw_run_observer {
    void (*after_op)(void *context, const struct flw_run *run, size_t i);
    /* Receives the sorted samples, the cost of taking a sample, and the length of a tick. */
    void (*take_times)(void *context, const struct flw_run *run, uint64_t overhead_ticks,
                       double ns_a_tick);
    void *context;
};

struct flw_run_setup {
    struct flw_device *device;
    const struct flw_trace *trace;
    const struct flw_program *program;
    uint64_t device_bytes; /* of the simulated device */
    uint64_t limit_bytes;  /* 0 = none */
    uint64_t lag_units;    /* 0 = no device work */
    unsigned pass_count;   /* consecutive replays of the trace on one policy; at least 1 */
    bool checks;           /* run the rule checker */
    bool times;            /* time single operations */
    bool uses_threads;     /* one thread per stream, for policies that allow it */
    unsigned sample_every; /* 0 = FLW_RUN_SAMPLE_EVERY */
    const struct flw_run_observer *observer; /* NULL = none */
};

/* Times of a kind of operation, without the cost of timing. */
struct flw_run_times {
    size_t count; /* 0: no operation was timed, and all other members are 0 */
    double mean_ns, p50_ns, p90_ns, p99_ns, p999_ns, max_ns;
};

/* Counts of a part of the run, named as in JSON: requests, including the blocks of the start, and the work for them.
 * Waits are the host's. */
#define FLW_RUN_COUNTS(X)                \
    X(driver_call_count, "driver_calls") \
    X(event_count, "events_recorded")    \
    X(steal_count, "steals")             \
    X(wait_count, "waits")               \
    X(remap_wait_count, "remap_waits")   \
    X(stream_wait_count, "stream_waits") \
    X(alloc_count, "allocations")

/* FLW_NOT_APPLICABLE: unknown. */
struct flw_run_counts {
#define X(member, name) uint64_t member;
    FLW_RUN_COUNTS(X)
#undef X
};

struct flw_run_result {
    const struct flw_policy *policy;
    bool has_run;        /* false: message is the reason */
    bool is_unsupported; /* ... because this device cannot run the policy */
    uint64_t peak_requested_bytes;
    bool is_reserved_from_ledger;
    uint64_t failure_count;
    uint64_t first_failure_bytes; /* the first request that failed */
    uint64_t refused_count;       /* rejected frees or announcements */
    /* Counts of the policy, except those of which the ledger has better ones. */
    struct flw_policy_statistics statistics;
    /* Account of the ledger until the trace's end; FLW_NOT_APPLICABLE without a ledger. */
    struct flw_device_account account;
    /* Counts of all passes; of the last pass, if there are several; and of the last quarter of the last pass's requests
     * with one thread, which shows the steady state. */
    struct flw_run_counts all, last_pass, last_quarter;
    uint64_t leaked_bytes; /* still allocated after the policy finished */
    uint64_t violation_count;
    char violation[FLW_RUN_VIOLATION_BYTES]; /* the first */
    uint64_t smallest_limit_bytes;
    uint64_t wall_ns;
    unsigned thread_count;
    bool has_times;
    struct flw_run_times all_times, alloc_times, free_times;
    char message[FLW_RUN_MESSAGE_BYTES];
};

/* State of the loop, for one thread and for several. */
struct flw_run {
    const struct flw_run_setup *setup;
    const struct flw_policy *policy;
    void *self;
    uint64_t *addresses; /* by block; 0 = not allocated */
    uint32_t *samples;   /* ticks of allocs from the front, of frees from the back; sorted: all */
    size_t alloc_sample_count, free_sample_count, sample_count, sample_capacity;
    uint64_t pass_alloc_count;          /* requests in a pass */
    unsigned sample_every, sample_wait; /* ops between two timed ones, and until the next one */
    uint64_t live_bytes, peak_bytes;
    uint64_t failure_count, first_failure_bytes, refused_count;
    bool has_lost_device; /* the device failed to accept work */
    struct flw_run_counts before_pass,
        before_quarter; /* counts before the last pass and its last quarter */
};

/* Run a policy. Returns false after writing result->message, one line. Policies that allocate nothing need no
 * device. */
bool flw_run_policy(const struct flw_run_setup *setup, const struct flw_policy *policy,
                    struct flw_run_result *result);

/* --- run_ops.c --- */

/* Do one op, or a range of the program's ops, and add to the run's counts. */
void flw_run_op(struct flw_run *run, const struct flw_op *op);
void flw_run_range(struct flw_run *run, size_t begin, size_t end);

/* Do all ops with one thread per stream. Returns false after writing the message. */
bool flw_run_threaded(struct flw_run *run, char *message);

/* --- run.c --- */

/* Find by bisection the smallest limit at which every request is served; FLW_NOT_APPLICABLE if there is none below the
 * device's size. The result of the unlimited run bounds the search. */
uint64_t flw_run_find_limit(const struct flw_run_setup *setup, const struct flw_policy *policy,
                            const struct flw_run_result *unlimited);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what a policy is to a replay: an allocator behind seven calls. Each policy is one small
 * file. Does not: run anything.
 *
 * To add one: write policy_<name>.c, declare it below, list it in policy.c.
 */
#ifndef FLW_TOOL_POLICY_H
#define FLW_TOOL_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fallow/fallow.h"

#include "program.h"

struct flw_device;
struct flw_trace;

#define FLW_POLICY_MESSAGE_BYTES 256

/* A number that does not apply to a policy: null in JSON, "-" in the table. */
#define FLW_NOT_APPLICABLE UINT64_MAX

struct flw_policy_setup {
    struct flw_device *device; /* NULL for policies that need none */
    const struct flw_trace *trace;
    const struct flw_program *program;
    uint64_t limit_bytes; /* 0 = what the device has */
};

/* Fill with FLW_NOT_APPLICABLE first. What the device's ledger knows better is taken from there. */
struct flw_policy_statistics {
    uint64_t peak_requested_bytes; /* where the policy knows better than the replay */
    uint64_t peak_reserved_bytes;  /* the policy's own counter */
    uint64_t failure_count;        /* policies that lend nothing: what the trace says */
    uint64_t grow_count;
    uint64_t driver_call_count;
    uint64_t event_count;
    uint64_t steal_count;
    uint64_t wait_count;
    uint64_t remap_count;
    uint64_t remap_wait_count;
    uint64_t hit_count;
    uint64_t match_count;   /* addresses equal to the recorded ones ... */
    uint64_t compare_count; /* ... of so many compared */
    uint64_t segment_count; /* taken since the first event */
    uint64_t recorded_segment_count;
    bool has_same_segments; /* sizes and order equal to the recorded ones */
    bool is_seeded;         /* started from the recorded initial segments */
};

/* What a pool counts in the library's words, remaps left alone: not every pool has them. */
void flw_policy_take_stats(struct flw_policy_statistics *out, const fallow_stats *stats);

struct flw_policy {
    const char *name;
    const char *sim_label; /* shown on the simulated device; NULL = name */
    bool lends;            /* false: says numbers of the trace, runs nothing */
    bool is_thread_safe;   /* alloc, free and use from several threads */
    bool limits_by_device; /* a limit is the device's size, not a setting */
    /* False: this device cannot run the policy at all. NULL: every device can. */
    bool (*is_supported)(const struct flw_device *device);
    /* NULL: message says what failed. */
    void *(*create)(const struct flw_policy_setup *setup, char *message);
    /* False: no memory. *out_address is never 0 on success. */
    bool (*alloc)(void *self, const struct flw_op *op, uint64_t *out_address);
    /* False: refused, which is an error of the policy or of the replay. */
    bool (*free)(void *self, const struct flw_op *op, uint64_t address);
    /* op->stream uses the block. NULL: nothing to announce. */
    bool (*use)(void *self, const struct flw_op *op, uint64_t address);
    /* A segment event of the recorded allocator passed, or the trace's end (FLW_OP_PASS). NULL: not
     * interested. */
    void (*advance)(void *self, const struct flw_op *op);
    void (*get_statistics)(void *self, struct flw_policy_statistics *out);
    /* Give everything back. */
    void (*finish)(void *self);
};

extern const struct flw_policy flw_policy_fallow, flw_policy_fallow_memory_first, flw_policy_naive,
    flw_policy_driver, flw_policy_async, flw_policy_pytorch, flw_policy_recorded, flw_policy_bound;

/* The i-th policy of this build, in the table's order; NULL past the end. */
const struct flw_policy *flw_policy_get(size_t i);

/* By name (`length` characters); NULL if there is none. */
const struct flw_policy *flw_policy_find(const char *name, size_t length);

#endif

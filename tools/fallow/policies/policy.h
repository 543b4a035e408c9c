/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what a policy is to a replay: an allocator behind seven calls, with settings of its own.
 * Each policy is one small file. Does not: run anything.
 *
 * To add one: write <name>.c, declare it below, list it in plan.c. Its settings are a table
 * of names and kinds; setting.c reads them.
 */
#ifndef FLW_TOOL_POLICY_H
#define FLW_TOOL_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fallow/fallow.h"

#include "common/figures.h"
#include "common/program.h"

struct flw_device;
struct flw_trace;

#define FLW_POLICY_MESSAGE_BYTES 256
#define FLW_POLICY_NAME_BYTES    192 /* settings included */
#define FLW_POLICY_SETTINGS      4   /* most that a policy has */

/* What a setting's value may be. */
enum flw_setting_kind {
    FLW_SETTING_COUNT, /* a whole number, least to most */
    FLW_SETTING_POWER, /* a power of two, least to most */
    FLW_SETTING_BYTES, /* bytes, or "max" = UINT64_MAX */
    FLW_SETTING_SHARE, /* above 0 and below 1; kept in millionths */
    FLW_SETTING_FLAG   /* 0 or 1 */
};

#define FLW_SETTING_ONE 1000000ull /* 1, as a share */

/* "name=value" behind a policy's name and a colon. */
struct flw_policy_setting {
    const char *name;
    uint64_t least, most; /* COUNT and POWER */
    uint64_t standard;    /* the value where none is given */
    enum flw_setting_kind kind;
};

struct flw_policy_setup {
    const struct flw_policy *policy; /* the one that is made: with its values */
    struct flw_device *device;       /* NULL for policies that need none */
    const struct flw_trace *trace;
    const struct flw_program *program;
    uint64_t limit_bytes; /* 0 = what the device has */
    uint64_t lag_units;   /* of the simulated device; 0 = no device work */
};

/* Fill with FLW_NOT_APPLICABLE first. What the device's ledger knows better is put in by the run. */
struct flw_policy_statistics {
    uint64_t peak_requested_bytes; /* where the policy knows better than the replay */
    uint64_t peak_reserved_bytes;  /* the policy's own counter; the ledger's where there is one */
    uint64_t failure_count;        /* policies that allocate nothing: what the trace says */
    uint64_t grow_count;
    uint64_t driver_call_count;
    uint64_t event_count;
    uint64_t steal_count;
    uint64_t wait_count;
    uint64_t remap_count;
    uint64_t remap_wait_count;
    uint64_t hit_count;
    uint64_t split_count, merge_count; /* blocks cut in two, neighbours joined */
    uint64_t deferred_bytes;     /* freed, and given to no one until events of other streams were
                                done */
    uint64_t without_wait_bytes; /* the bound: flw_bound_without_wait */
    uint64_t match_count;        /* addresses equal to the recorded ones ... */
    uint64_t compare_count;      /* ... of so many compared */
    uint64_t segment_count;      /* taken since the first event */
    uint64_t recorded_segment_count;
    bool has_same_segments; /* sizes and order equal to the recorded ones */
    bool is_seeded;         /* started from the recorded initial segments */
};

struct flw_policy {
    const char *name;       /* with the settings as given */
    const char *summary;    /* a line for the help */
    const char *sim_label;  /* shown on the simulated device; NULL = name */
    bool allocates;         /* false: says numbers of the trace, runs nothing */
    bool is_thread_safe;    /* alloc, free and use from several threads */
    bool keeps_pools_apart; /* memory of private pools of the recording is given to no one else */
    bool limits_by_device;  /* a limit is the device's size, not a setting */
    /* False: this device cannot run the policy at all. NULL: every device can. */
    bool (*is_supported)(const struct flw_device *device);
    /* NULL: message says what failed. */
    void *(*create)(const struct flw_policy_setup *setup, char *message);
    /* False: no memory. *out_address is never 0 on success, and of memory of the device, where the work is done. */
    bool (*alloc)(void *self, const struct flw_op *op, uint64_t *out_address);
    /* False: refused, which is an error of the policy or of the replay. */
    bool (*free)(void *self, const struct flw_op *op, uint64_t address);
    /* op->stream uses the block. NULL: nothing to announce. */
    bool (*use)(void *self, const struct flw_op *op, uint64_t address);
    /* What is no request passed: a segment event of the recorded allocator, the
     * end of a free, a wait of the recorded host, the trace's end (FLW_OP_PASS). NULL: not interested. */
    void (*advance)(void *self, const struct flw_op *op);
    /* What the block that was just allocated takes of the policy's memory; 0 = this time unknown.
     * NULL: the policy cannot say how it rounds. */
    uint64_t (*block_bytes)(void *self, const struct flw_op *op, uint64_t address);
    void (*get_statistics)(void *self, struct flw_policy_statistics *out);
    /* Release everything. */
    void (*finish)(void *self);
    const struct flw_policy_setting *settings;
    size_t setting_count;
    uint64_t values[FLW_POLICY_SETTINGS]; /* read them with flw_policy_value */
    unsigned value_mask;                  /* which of them were given */
};

/* A policy with the settings that somebody asked for. Points into itself: not to be copied. */
struct flw_policy_choice {
    struct flw_policy policy;
    char name[FLW_POLICY_NAME_BYTES];
    char sim_label[FLW_POLICY_NAME_BYTES + 16];
};

extern const struct flw_policy flw_policy_fallow, flw_policy_fallow_memory_first,
    flw_policy_fallow_speed_first, flw_policy_driver, flw_policy_async, flw_policy_pytorch,
    flw_policy_pytorch_expandable, flw_policy_recorded, flw_policy_bound;

/* The i-th policy of this build, in the table's order; NULL past the end. */
const struct flw_policy *flw_policy_get(size_t i);

/* By name (`length` characters); NULL if there is none. */
const struct flw_policy *flw_policy_find(const char *name, size_t length);

/* "NAME" or "NAME:SETTING=VALUE,SETTING=VALUE" (`length` characters). False: message is one line
 * that names what is wrong and what is allowed. */
bool flw_policy_choose(const char *text, size_t length, struct flw_policy_choice *out,
                       char *message);

/* --- recorded.c --- */

/* The least that an allocator can hold that makes neither the host nor a stream wait, where work is done
 * one lag after it was given, as on the simulated device: unfinished work keeps what it may touch. A
 * block's bytes count from its allocation to its free. From then on the stream of the free may take
 * them, since its work comes after what it has been given before; all others may when that is done.
 * What other streams have used is taken by none before their uses are done. Bytes have no place:
 * nothing is lost to fragments. Private pools and the recorded host's waits count for nothing. From
 * max_live_bytes on; that with one stream, or with a lag of 0. Of one pass. O((n + streams) log n). */
uint64_t flw_bound_without_wait(const struct flw_program *program, uint64_t lag_units);

/* --- setting.c --- */

/* How many characters the first policy of a comma-separated list takes, its settings included. */
size_t flw_policy_length(const char *list);

/* `base` with the settings of `text`, which is what follows the colon. As flw_policy_choose. */
bool flw_policy_set(const struct flw_policy *base, const char *text, size_t length,
                    struct flw_policy_choice *out, char *message);

#define FLW_POLICY_ALLOWED_BYTES 96

/* What the setting's value may be, in words. */
void flw_policy_say_allowed(const struct flw_policy_setting *setting,
                            char out[FLW_POLICY_ALLOWED_BYTES]);

static inline uint64_t flw_policy_value(const struct flw_policy *policy, size_t setting)
{
    return (policy->value_mask >> setting & 1) != 0 ? policy->values[setting]
                                                    : policy->settings[setting].standard;
}

#endif

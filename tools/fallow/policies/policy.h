/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the interface of a policy: an allocator with a few calls and its own settings.
 * Does not: run policies.
 *
 * To add a policy, write <name>.c, declare the policy below, and list it in plan.c. Its settings are a table of names
 * and kinds, which setting.c reads.
 */
#ifndef FLW_TOOL_POLICY_H
#define FLW_TOOL_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "common/figures.h"
#include "common/program.h"

struct flw_device;
struct flw_trace;

#define FLW_POLICY_MESSAGE_BYTES 256
#define FLW_POLICY_NAME_BYTES    192 /* settings included */
#define FLW_POLICY_SETTINGS      4   /* most settings of a policy */

/* Kinds of values of a setting. */
enum flw_setting_kind {
    FLW_SETTING_COUNT, /* a whole number, least to most */
    FLW_SETTING_POWER, /* a power of two, least to most */
    FLW_SETTING_BYTES, /* bytes, or "max" = UINT64_MAX */
    FLW_SETTING_SHARE, /* above 0 and below 1; kept in millionths */
    FLW_SETTING_FLAG   /* 0 or 1 */
};

#define FLW_SETTING_ONE 1000000ull /* 1, as a share */

/* A setting: "name=value" after a policy's name and a colon. */
struct flw_policy_setting {
    const char *name;
    uint64_t least, most; /* COUNT and POWER */
    uint64_t standard;    /* the default value */
    enum flw_setting_kind kind;
};

struct flw_policy_setup {
    const struct flw_policy *policy; /* this policy, with its values */
    struct flw_device *device;       /* NULL for policies that need none */
    const struct flw_trace *trace;
    const struct flw_program *program;
    uint64_t limit_bytes; /* 0 = the device's memory */
    uint64_t lag_units;   /* of the simulated device; 0 = no device work */
};

/* Statistics. Fill with FLW_NOT_APPLICABLE first. The run replaces those that the device's ledger counts better. */
struct flw_policy_statistics {
    uint64_t peak_requested_bytes; /* if the policy counts better than the replay */
    uint64_t peak_reserved_bytes;  /* by the policy's own counter */
    uint64_t failure_count; /* for policies that allocate nothing: the failures in the trace */
    uint64_t grow_count;
    uint64_t driver_call_count;
    uint64_t event_count;
    uint64_t steal_count;
    uint64_t wait_count;
    uint64_t remap_count;
    uint64_t remap_wait_count;
    uint64_t hit_count;
    uint64_t split_count, merge_count; /* blocks cut in two, neighbours joined */
    uint64_t deferred_bytes;     /* freed, but held back until events of other streams completed */
    uint64_t without_wait_bytes; /* the bound: flw_bound_without_wait */
    uint64_t match_count;        /* addresses equal to the recorded ones ... */
    uint64_t compare_count;      /* ... of so many compared */
    uint64_t segment_count;      /* allocated since the first event */
    uint64_t recorded_segment_count;
    bool has_same_segments; /* sizes and order equal to the recorded ones */
    bool is_seeded;         /* started from the recorded initial segments */
};

static inline void flw_policy_clear_statistics(struct flw_policy_statistics *statistics)
{
    memset(statistics, 0xff, sizeof *statistics); /* FLW_NOT_APPLICABLE in every count */
    statistics->has_same_segments = statistics->is_seeded = false;
}

struct flw_policy {
    const char *name;       /* with the settings as given */
    const char *summary;    /* a line for the help */
    const char *sim_label;  /* shown on the simulated device; NULL = name */
    int variant;            /* distinguishes the policies of one file */
    bool allocates;         /* false: has only get_statistics, with the struct flw_policy_setup as
                       `self` */
    bool is_thread_safe;    /* alloc, free and use from several threads */
    bool keeps_pools_apart; /* memory of the recording's private pools serves no other requests */
    bool limits_by_device;  /* a limit is the device's size, not a setting */
    /* False: this device cannot run the policy at all. NULL: every device can. */
    bool (*is_supported)(const struct flw_device *device);
    /* Returns NULL after writing the message. */
    void *(*create)(const struct flw_policy_setup *setup, char *message);
    /* Returns false if memory runs out. *out_address is never 0 on success, and is device memory if there is device
     * work. */
    bool (*alloc)(void *self, const struct flw_op *op, uint64_t *out_address);
    /* Returns false if the free is rejected, which is an error of the policy or of the replay. */
    bool (*free)(void *self, const struct flw_op *op, uint64_t address);
    /* op->stream uses the block. NULL: nothing to announce. */
    bool (*use)(void *self, const struct flw_op *op, uint64_t address);
    /* Called for other ops: a segment event of the recorded allocator, the end of a free, a wait of the recorded host,
     * the trace's end (FLW_OP_PASS). NULL: not needed. */
    void (*advance)(void *self, const struct flw_op *op);
    /* Returns the bytes of the policy's memory that the last allocated block takes; 0 = unknown this time. NULL: the
     * policy cannot report rounding. */
    uint64_t (*block_bytes)(void *self, const struct flw_op *op, uint64_t address);
    void (*get_statistics)(void *self, struct flw_policy_statistics *out);
    /* Release everything. */
    void (*finish)(void *self);
    const struct flw_policy_setting *settings;
    size_t setting_count;
    uint64_t values[FLW_POLICY_SETTINGS]; /* read them with flw_policy_value */
    unsigned value_mask;                  /* values that were given */
};

/* A policy with settings from the command line. Points into itself: do not copy. */
struct flw_policy_choice {
    struct flw_policy policy;
    char name[FLW_POLICY_NAME_BYTES];
    char sim_label[FLW_POLICY_NAME_BYTES + 16];
};

extern const struct flw_policy flw_policy_fallow, flw_policy_fallow_memory_first,
    flw_policy_fallow_speed_first, flw_policy_driver, flw_policy_async, flw_policy_pytorch,
    flw_policy_pytorch_expandable, flw_policy_recorded, flw_policy_bound;

/* Return the i-th policy of this build, in the table's order, or NULL. */
const struct flw_policy *flw_policy_get(size_t i);

/* Parse "NAME" or "NAME:SETTING=VALUE,SETTING=VALUE" (`length` characters). Returns false if that fails: message is one
 * line with the error and the allowed values. */
bool flw_policy_choose(const char *text, size_t length, struct flw_policy_choice *out,
                       char *message);

/* --- recorded.c --- */

/* Return the least memory of an allocator that makes neither the host nor a stream wait, if work completes one lag
 * after its submission, as on the simulated device. Unfinished work keeps the memory that it may use. A block's bytes
 * count from the allocation to the free. From then on the stream of the free may reuse them, because its work is
 * ordered after the earlier work; other streams may when that work is complete. Bytes that other streams used are not
 * reused before these uses complete. Bytes have no addresses, so there is no fragmentation. Private pools and the
 * recorded host's waits are ignored. At least max_live_bytes; equal to it for one stream, or a lag of 0. For one pass.
 * O((n + streams) log n). */
uint64_t flw_bound_without_wait(const struct flw_program *program, uint64_t lag_units);

/* --- setting.c --- */

/* Return the length of the first policy of a comma-separated list, settings included. */
size_t flw_policy_length(const char *list);

/* Set the settings of `text`, the part after the colon, on `base`. Returns as flw_policy_choose. */
bool flw_policy_set(const struct flw_policy *base, const char *text, size_t length,
                    struct flw_policy_choice *out, char *message);

#define FLW_POLICY_ALLOWED_BYTES 96

/* Describe the allowed values of a setting. */
void flw_policy_say_allowed(const struct flw_policy_setting *setting,
                            char out[FLW_POLICY_ALLOWED_BYTES]);

static inline uint64_t flw_policy_value(const struct flw_policy *policy, size_t setting)
{
    return (policy->value_mask >> setting & 1) != 0 ? policy->values[setting]
                                                    : policy->settings[setting].standard;
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the audit of fills: the program's live blocks, which of them were touched, the zero-fills
 * that are candidates for removal, and their counts.
 * Does not: call the driver (the hooks do); claim that a fill can be removed. A *candidate* is a
 * zero-fill of memory that no visible call has touched since the allocation, no more.
 *
 * A touch is a copy, a fill or a launch with an address inside the block among the arguments. If
 * arguments cannot be read, and at a graph launch, every live block counts as touched.
 *
 * Order: that of the threads' calls, not of the device.
 *
 * Synchronization: thread-safe. One lock for the blocks and the page, held for a lookup. */
#ifndef FLW_PRELOAD_AUDIT_AUDIT_H
#define FLW_PRELOAD_AUDIT_AUDIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "preload/audit/fillkernel.h"

struct flw_audit_config {
    const char *prefix;                              /* of the page's file; permanent */
    uint64_t trial_id;                               /* 0: no trial */
    unsigned char poison;                            /* the byte for the site on trial */
    void (*complain)(const char *prefix, int error); /* called if the audit could not start;
                                                         may be NULL */
};

enum flw_audit_state {
    FLW_AUDIT_OFF,
    FLW_AUDIT_ASKED, /* starts at the first event */
    FLW_AUDIT_STARTING,
    FLW_AUDIT_ON
};

extern atomic_int flw_audit_state; /* read by flw_audit_is_on */

/* Request an audit; a program that uses no device leaves no file. */
void flw_audit_ask(const struct flw_audit_config *config);
/* Start the requested audit, here or in another thread, which is waited for. False: it cannot
 * start. */
bool flw_audit_wake(void);
/* In the child of a fork: record nothing more, and leave the page to the parent. True: there is
 * none yet. */
bool flw_audit_stop(void);

static inline bool flw_audit_is_on(void)
{
    int state = atomic_load_explicit(&flw_audit_state, memory_order_acquire);
    return state == FLW_AUDIT_ON || (state != FLW_AUDIT_OFF && flw_audit_wake());
}

/* Report that device memory was allocated; that it is about to be freed. */
void flw_audit_alloc(uint64_t address, uint64_t bytes);
void flw_audit_free(uint64_t address);

/* Report an access. Does nothing outside blocks. */
void flw_audit_touch(uint64_t address);
enum flw_audit_hidden {
    FLW_AUDIT_GRAPH,
    FLW_AUDIT_OTHER
};
/* Report a possible access of any block. */
void flw_audit_touch_all(enum flw_audit_hidden what);

struct flw_audit_fill {
    uint64_t address;
    uint64_t bytes; /* written bytes */
    uint64_t span;  /* from the first to the end of the last: larger if rows have gaps */
    bool is_zero;
    bool is_captured; /* runs with the graph */
    const char *call;
    uintptr_t caller;
};

struct flw_audit_launch {
    const char *name; /* NULL: unknown */
    const struct flw_parameter *parameters;
    uint32_t parameter_count;
    bool is_read;     /* the parameters are complete */
    bool is_captured; /* accesses nothing before the graph is launched; that launch touches
                         everything */
    uintptr_t caller;
};

enum flw_audit_verdict {
    FLW_AUDIT_NO_FILL,
    FLW_AUDIT_CANDIDATE,
    FLW_AUDIT_REUSED,
    FLW_AUDIT_NONZERO,
    FLW_AUDIT_FOREIGN,
    FLW_AUDIT_CAPTURED
};

/* Result of the judgement before the driver call, for the count after it. */
struct flw_audit_judgement {
    enum flw_audit_verdict verdict;
    bool is_on_trial; /* fill with poison instead */
    bool is_value_read;
    bool is_range_read; /* address and bytes are exact; otherwise up to the block's end */
    uint64_t address, bytes;
    const char *call;
    uintptr_t caller;
};

/* Judge a fill, and mark the memory. `call` and `name` must stay valid until the count. */
void flw_audit_judge_fill(const struct flw_audit_fill *fill, struct flw_audit_judgement *out);
/* The same for a launch: a known fill kernel is judged, any other touches the arguments. */
void flw_audit_judge_launch(const struct flw_audit_launch *launch, struct flw_audit_judgement *out);
/* Count a fill after the driver accepted the call; is_poisoned: the fill was replaced. */
void flw_audit_count(const struct flw_audit_judgement *judgement, bool is_poisoned);

unsigned char flw_audit_poison(void);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the audit of fills: which blocks the program holds, what has touched them, which zero-fills
 * are candidates for being dropped, and what is counted of that.
 * Does not: call the driver (the hooks do); claim that a fill can go. A *candidate* is a zero-fill
 * over memory that nothing in view has touched since it was allocated, and no more than that.
 *
 * A touch is a copy, a fill or a launch with an address inside the block among its arguments. Where
 * arguments cannot be read, and at a graph launch, every block that is allocated counts as touched.
 *
 * Order: of the calls, as threads make them; not of the device.
 *
 * Synchronization: thread safe. One lock over the blocks and the page, held for a look-up.
 */
#ifndef FLW_PRELOAD_AUDIT_AUDIT_H
#define FLW_PRELOAD_AUDIT_AUDIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "preload/audit/fillkernel.h"

struct flw_audit_config {
    const char *prefix;                              /* of the page's file; stays */
    uint64_t trial_id;                               /* 0: no trial */
    unsigned char poison;                            /* what the site on trial is filled with */
    void (*complain)(const char *prefix, int error); /* the audit could not start; may be NULL */
};

enum flw_audit_state {
    FLW_AUDIT_OFF,
    FLW_AUDIT_ASKED, /* starts when something is first to be seen */
    FLW_AUDIT_STARTING,
    FLW_AUDIT_ON
};

extern atomic_int flw_audit_state; /* read it through flw_audit_is_on */

/* An audit is wanted; a program that uses no device leaves no file. */
void flw_audit_ask(const struct flw_audit_config *config);
/* What was asked for begins, here or in another thread, which is waited for. False: it cannot. */
bool flw_audit_wake(void);
/* For the child of a fork: nothing more is seen, and the page is left to the parent. True: there is
 * none yet. */
bool flw_audit_stop(void);

static inline bool flw_audit_is_on(void)
{
    int state = atomic_load_explicit(&flw_audit_state, memory_order_acquire);
    return state == FLW_AUDIT_ON || (state != FLW_AUDIT_OFF && flw_audit_wake());
}

/* Device memory was allocated, is about to be freed. */
void flw_audit_alloc(uint64_t address, uint64_t bytes);
void flw_audit_free(uint64_t address);

/* Something uses memory there. Does nothing where no block is. */
void flw_audit_touch(uint64_t address);
enum flw_audit_hidden {
    FLW_AUDIT_GRAPH,
    FLW_AUDIT_OTHER
};
/* Something may use any block. */
void flw_audit_touch_all(enum flw_audit_hidden what);

struct flw_audit_fill {
    uint64_t address;
    uint64_t bytes; /* that are written */
    uint64_t span;  /* from the first to the end of the last: larger where rows have gaps */
    bool is_zero;
    bool is_captured; /* it runs when the graph does */
    const char *call;
    uintptr_t caller;
};

struct flw_audit_launch {
    const char *name; /* NULL: the driver does not say */
    const struct flw_parameter *parameters;
    uint32_t parameter_count;
    bool is_read; /* the parameters are all there are */
    bool
        is_captured; /* it touches nothing before the graph is launched, which touches everything */
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

/* Between the look before the driver's call and the count after it. */
struct flw_audit_judgement {
    enum flw_audit_verdict verdict;
    bool is_on_trial; /* give it poison instead */
    bool is_value_read;
    bool is_range_read; /* address and bytes are exact; else they end with the block */
    uint64_t address, bytes;
    const char *call;
    uintptr_t caller;
};

/* Looks at a fill, and marks the memory. `call` and `name` must stay until the count. */
void flw_audit_judge_fill(const struct flw_audit_fill *fill, struct flw_audit_judgement *out);
/* The same of a launch: a known fill kernel is judged, any other touches what it is given. */
void flw_audit_judge_launch(const struct flw_audit_launch *launch, struct flw_audit_judgement *out);
/* After the driver took the call; was the fill replaced? */
void flw_audit_count(const struct flw_audit_judgement *judgement, bool is_poisoned);

unsigned char flw_audit_poison(void);

#endif

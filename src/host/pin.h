/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a host pool's access to the driver: the table (the device pool's own), the frame around
 * calls, the two ways to pinned memory, the loss of the device.
 * Does not: lock, or decide how much.
 *
 * cuMemHostAlloc places pages by the calling thread's policy, often on the wrong node of a machine
 * with several, and a copy then crosses the link between them. Memory that is mapped, bound and
 * registered here is on the right node, whichever thread allocates. With one node that would only
 * be slower: there the driver allocates. */
#ifndef FLW_HOST_PIN_H
#define FLW_HOST_PIN_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/lock.h"
#include "driver/answer.h"
#include "driver/section.h"
#include "host/pages.h"

#include "fallow/host.h"

struct flw_pin {
    struct flw_driver cu; /* the device pool's entry points; object NULL */
    CUcontext context;
    _Atomic int node; /* node that memory is bound to; -1: the driver allocates */
    bool is_strict;   /* the user named the node */
    _Atomic uint64_t call_count;
    _Atomic int lost_error; /* CUresult that lost the device; 0 none */
    const char *_Atomic lost_call;
};

/* A section of driver calls: a context is current, captures are undisturbed. */
struct flw_pin_section {
    struct flw_driver_section frame;
    CUresult refusal; /* why it was not entered */
};

/* Makes driver calls. On failure `message` (FLW_DRIVER_MESSAGE_BYTES) has the reason. */
fallow_status flw_pin_init(struct flw_pin *pin, fallow_pool *pool, const fallow_host_config *config,
                           char *message);

/* Enter the driver. False: the device is lost, the context is (NULL: the pool's), or the driver
 * refuses now; see section->refusal. leave undoes it. Makes driver calls. */
bool flw_pin_enter(struct flw_pin *pin, struct flw_pin_section *section, CUcontext context);
void flw_pin_leave(struct flw_pin *pin, struct flw_pin_section *section);
/* Hold a section around a call that may enter several times, so that the first serves all. Makes
 * no driver call itself. */
void flw_pin_hold(struct flw_pin *pin, struct flw_pin_section *section);

/* Pin a chunk: set base, is_registered, is_bound. *out_call: the failed call. Makes driver calls
 * in a section. */
CUresult flw_pin_acquire(struct flw_pin *pin, struct flw_chunk *chunk, const char **out_call);
CUresult flw_pin_release(struct flw_pin *pin, const struct flw_chunk *chunk);

/* Process a result about the pool's own context (driver/answer.h), which may lose the device. */
void flw_pin_heed(struct flw_pin *pin, CUresult result, const char *call);
void flw_pin_lose(struct flw_pin *pin, CUresult error, const char *call);
const char *flw_pin_error_name(const struct flw_pin *pin, int error);

static inline bool flw_pin_is_lost(const struct flw_pin *pin)
{
    return atomic_load_explicit(&pin->lost_error, memory_order_relaxed) != 0;
}

/* Return the driver for one more call; no ranked lock is held over it. */
static inline const struct flw_driver *flw_pin_ask(struct flw_pin *pin)
{
    FLW_ASSERT(flw_lock_none_held());
    atomic_fetch_add_explicit(&pin->call_count, 1, memory_order_relaxed);
    return &pin->cu;
}

/* True for a refusal now: during a capture, in a host function, for want of memory,
 * or otherwise. */
static inline bool flw_pin_is_refusal(CUresult result)
{
    return result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY &&
           !flw_result_is_stale(result) && !flw_result_is_gone(result);
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the driver as a host pool sees it: the table (the device pool's own), the frame around calls,
 * the two ways to pinned memory, the loss of the device.
 * Does not: lock, or decide how much.
 *
 * cuMemHostAlloc puts pages wherever the calling thread's policy says, often on the wrong node of a
 * machine with several, and a copy from there crosses the link between them. Memory that is mapped
 * and bound here, then registered, lies where it should, whoever asks first. On one node it would
 * only be the longer way: there the driver allocates.
 */
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
    _Atomic int node; /* memory is bound to; -1: the driver allocates */
    bool is_strict;   /* the node was asked for by name */
    _Atomic uint64_t call_count;
    _Atomic int lost_error; /* CUresult that lost the device; 0 none */
    const char *_Atomic lost_call;
};

/* A stretch of driver calls: a context current, captures undisturbed. */
struct flw_pin_section {
    struct flw_driver_section frame;
    CUresult refusal; /* why it was not entered */
};

/* Driver calls. What went wrong is in message, FLW_DRIVER_MESSAGE_BYTES. */
fallow_status flw_pin_init(struct flw_pin *pin, fallow_pool *pool, const fallow_host_config *config,
                           char *message);

/* Driver calls. False: the device is lost, the context is (NULL: the pool's), or the driver refuses now;
 * section->refusal says which. leave undoes it. */
bool flw_pin_enter(struct flw_pin *pin, struct flw_pin_section *section, CUcontext context);
void flw_pin_leave(struct flw_pin *pin, struct flw_pin_section *section);
/* Around a call that may enter more than once: the first pays for all. No driver call by itself. */
void flw_pin_hold(struct flw_pin *pin, struct flw_pin_section *section);

/* Driver calls, inside a section. Fills base, is_registered, is_bound of a chunk. *out_call: what answered. */
CUresult flw_pin_acquire(struct flw_pin *pin, struct flw_chunk *chunk, const char **out_call);
CUresult flw_pin_release(struct flw_pin *pin, const struct flw_chunk *chunk);

/* An answer about the pool's own context (driver/answer.h): one that says so loses the device. */
void flw_pin_heed(struct flw_pin *pin, CUresult result, const char *call);
void flw_pin_lose(struct flw_pin *pin, CUresult error, const char *call);
const char *flw_pin_error_name(const struct flw_pin *pin, int error);

static inline bool flw_pin_is_lost(const struct flw_pin *pin)
{
    return atomic_load_explicit(&pin->lost_error, memory_order_relaxed) != 0;
}

/* The driver, for one more call of it; no ranked lock is held over that. */
static inline const struct flw_driver *flw_pin_ask(struct flw_pin *pin)
{
    FLW_ASSERT(flw_lock_none_held());
    atomic_fetch_add_explicit(&pin->call_count, 1, memory_order_relaxed);
    return &pin->cu;
}

/* Not now: beside a capture, in a host function, for want of memory, or whatever it is. */
static inline bool flw_pin_is_refusal(CUresult result)
{
    return result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY &&
           !flw_result_is_stale(result) && !flw_result_is_gone(result);
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the fields of a host pool.
 *
 * INVARIANTS (fallow_host_validate recomputes them)
 *   1. reserved_bytes is the sum over chunks, except growths and releases under way; at most
 *      limit_bytes, always: it is raised before the driver call.
 *   2. requested_bytes and deferred_bytes are the sums over live and over freed blocks.
 * Synchronization: `lock`, except fields that are immutable after create. It is never held over a driver call. */
#ifndef FLW_HOST_HOSTPOOL_H
#define FLW_HOST_HOSTPOOL_H

#include "base/lock.h"
#include "host/hostblock.h"
#include "host/hostfence.h"
#include "host/pages.h"
#include "host/pin.h"
#include "host/small_blocks.h"

#include "fallow/host.h"

struct flw_hostpool {
    struct flw_lock lock;
    fallow_host *handle;
    fallow_host_config config;
    struct flw_pin pin;
    struct flw_pages pages;
    struct flw_small_blocks small_blocks;
    struct flw_blocks blocks;
    struct flw_hostfences fences;

    uint64_t limit_bytes;
    uint64_t reserved_bytes, bound_bytes;
    uint64_t requested_bytes, deferred_bytes;
    uint64_t peak_requested_bytes, peak_used_bytes, peak_reserved_bytes;
    uint64_t peak_taken_bytes; /* peak_used_bytes in whole pages; 0: jemalloc serves small
                                   blocks */
    uint64_t live_count, alloc_count, free_count;
    uint64_t grow_count, release_count;
    uint32_t moving_count; /* growths and releases under way */
    _Atomic uint64_t misuse_count, oom_count;
    char error[FLW_DRIVER_MESSAGE_BYTES]; /* the last message */
};

/* Return the pool of a handle; NULL: destroyed, or not a pool. */
struct flw_hostpool *flw_hostpool_of(const fallow_host *handle);

/* Store the message for fallow_host_last_error; return the status. */
fallow_status flw_hostpool_refuse(struct flw_hostpool *pool, fallow_status status,
                                  const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The same, for the driver call that lost the device. */
fallow_status flw_hostpool_refuse_lost(struct flw_hostpool *pool);
void flw_hostpool_log(struct flw_hostpool *pool, fallow_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Remove complete uses: blocks that wait for nothing else are returned. Lock held, released in
 * between. */
void flw_hostpool_complete(struct flw_hostpool *pool, struct flw_hostuse *uses);

#endif

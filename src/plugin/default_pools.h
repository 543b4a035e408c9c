/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the default pools of the process, one per device and order, and their messages to the
 * user.
 *
 * Only here does the library use process-wide pools, the environment and stderr: a framework that
 * calls a function address has no handle, no settings and no place for a message.
 *
 * Synchronization: the pools are atomic; everything that creates or replaces one holds a mutex,
 * which may be held over driver calls and is not a ranked lock. */
#ifndef FLW_PLUGIN_DEFAULT_POOLS_H
#define FLW_PLUGIN_DEFAULT_POOLS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "pool/pool.h"

#include "fallow/plugin.h"

#define FLW_PLUGIN_DEVICES 64
#define FLW_PLUGIN_ORDERS  2

struct flw_plugin_device {
    fallow_pool *_Atomic pools[FLW_PLUGIN_ORDERS]; /* NULL: not created */
    atomic_bool was_replaced;                      /* a pool was lost: old pointers may return */
    atomic_uint open_ids; /* between begin and end: the torch pair calls flw_graph_ids_announce */
    uint64_t limit_bytes; /* of the pools, by memory_fraction; 0: none; under the mutex */
};

/* NULL: no such device number. */
struct flw_plugin_device *flw_plugin_device_of(int device);

/* Return the pool, created if there is none; NULL and a status if that fails, after a message. */
fallow_pool *flw_plugin_make(int device, fallow_plugin_order order, fallow_status *out_status);

static inline fallow_pool *flw_plugin_pool_of(const struct flw_plugin_device *at,
                                              fallow_plugin_order order)
{
    return atomic_load_explicit(&at->pools[order], memory_order_acquire);
}

/* The reason of a failed allocation; FALLOW_OK: no failure. */
struct flw_plugin_refusal {
    fallow_status status;
    char text[512]; /* as on stderr */
};

/* Allocate, retry once after a trim, report a failure. seen: the result of a first attempt,
 * FALLOW_OK: there was none. NULL without a failure for size 0. */
void *flw_plugin_alloc(int device, fallow_plugin_order order, const fallow_request *request,
                       fallow_stream stream, fallow_status seen,
                       struct flw_plugin_refusal *out_refusal);
/* Free to the device's pool of that order, otherwise to the default pool that owns the block. A
 * pair in context order has no stream of use: `stream` is one to free on. */
void flw_plugin_free(int device, fallow_plugin_order order, void *ptr, fallow_stream stream);
/* Return the default pool with the block around ptr, live or freed; NULL: none. */
fallow_pool *flw_plugin_owner_of(const void *ptr, fallow_block *out_block);

/* Trim the default pools of a device, or, below 0, of all. */
void flw_plugin_trim(int device);

/* Wait for all work of the pool's context. False: a stream is being captured. */
bool flw_plugin_synchronize(fallow_pool *pool);
/* True if a tracked stream of the pool is being captured, or a capture is announced. Makes driver
 * calls. */
bool flw_plugin_any_captured(fallow_pool *pool);

/* Write one line to stderr, "fallow: ...", at most 16 times. Keeps errno. */
void flw_plugin_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- plugin_settings.c */

/* Read FALLOW_PLUGIN into a config; on failure write a message, set defaults and return false. */
bool flw_plugin_read_settings(const char *text, fallow_pool_config *config, char *driver,
                              size_t driver_bytes);

/* ---- graph_ids.c */

/* True if the stream is being captured; false also if the driver does not answer. Makes driver
 * calls. */
bool flw_plugin_is_capturing(struct flw_pool *pool, fallow_stream stream);
/* Announce the capture of `stream` to the pool, if an id is open for the capture; return the tag
 * of the thread's allocations. Call only while open_ids is not 0. */
uint32_t flw_graph_ids_announce(int device, fallow_stream stream, bool is_free);
/* Announce as above for the pool's device; ignore tags. True if an id other than a tag is open. */
bool flw_graph_ids_announce_to(struct flw_pool *pool, fallow_stream stream);
/* Announce a capture that may have begun without an allocation yet, for the duration of a call
 * without a stream. If this returns true, fallow_context_capture_end must end the announcement.
 * Makes driver calls while an id is open. */
bool flw_graph_ids_guard(void);
/* End captures that are over, and release those with complete work. Makes driver calls. */
void flw_graph_ids_reap(int device);
void flw_graph_ids_forget(void);     /* after a fork */
void flw_graph_ids_lose(int device); /* after the pool was lost */

#endif

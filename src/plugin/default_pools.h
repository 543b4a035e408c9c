/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the default pools of the process, one for each device and order, and what is said to the user.
 *
 * Here, and nowhere else in the library, are process-wide pools, a look at the environment and lines on
 * stderr: a framework that calls an address has no handle, no settings and no place for a message.
 *
 * Synchronization: the pools are atomic; everything that makes or replaces one holds a mutex, which may
 * be held over driver calls and is none of the ranked locks.
 */
#ifndef FLW_PLUGIN_DEFAULT_POOLS_H
#define FLW_PLUGIN_DEFAULT_POOLS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "pool/pool.h"

#include "fallow/plugin.h"

#define FLW_PLUGIN_DEVICES 64
#define FLW_PLUGIN_ORDERS  2

struct flw_plugin_device {
    fallow_pool *_Atomic pools[FLW_PLUGIN_ORDERS]; /* NULL: not made */
    atomic_bool was_replaced;                      /* a pool was lost: old pointers may come back */
    atomic_uint open_ids; /* between begin and end: the torch pair calls flw_graph_ids_announce */
    uint64_t limit_bytes; /* of its pools, by memory_fraction; 0: none. The mutex */
};

/* NULL: no such device number. */
struct flw_plugin_device *flw_plugin_device_of(int device);

/* The pool, made if there is none; NULL and a status if that fails, after a line. */
fallow_pool *flw_plugin_make(int device, fallow_plugin_order order, fallow_status *out_status);

static inline fallow_pool *flw_plugin_pool_of(const struct flw_plugin_device *at,
                                              fallow_plugin_order order)
{
    return atomic_load_explicit(&at->pools[order], memory_order_acquire);
}

/* Why an allocation failed; FALLOW_OK: no failure. */
struct flw_plugin_refusal {
    fallow_status status;
    char text[512]; /* as the line on stderr */
};

/* Allocate, retry once after a trim, say why not. seen: how a first attempt ended, FALLOW_OK: there
 * was none. NULL without a refusal for size 0. */
void *flw_plugin_alloc(int device, fallow_plugin_order order, const fallow_request *request,
                       fallow_stream stream, fallow_status seen,
                       struct flw_plugin_refusal *out_refusal);
/* Return to the device's pool of that order, else to the default pool that owns the block. A pair in context
 * order names no stream of use: `stream` is one to free on. */
void flw_plugin_free(int device, fallow_plugin_order order, void *ptr, fallow_stream stream);
/* The default pool with the block around ptr, which is allocated or was; NULL: none. */
fallow_pool *flw_plugin_owner_of(const void *ptr, fallow_block *out_block);

/* Trim the default pools of a device, or, below 0, of all. */
void flw_plugin_trim(int device);

/* Wait until the pool's context has done everything. False: something is being captured. */
bool flw_plugin_synchronize(fallow_pool *pool);
/* Driver calls. True if a tracked stream of the pool is being captured, or a capture is announced. */
bool flw_plugin_any_captured(fallow_pool *pool);

/* One line on stderr, "fallow: ..."; after 16 of them none. Keeps errno. */
void flw_plugin_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- plugin_settings.c */

/* FALLOW_PLUGIN into a config; false, a line and defaults: it cannot be read. */
bool flw_plugin_read_settings(const char *text, fallow_pool_config *config, char *driver,
                              size_t driver_bytes);

/* ---- graph_ids.c */

/* Driver calls. True if the stream is being captured; false also if the driver gives no answer. */
bool flw_plugin_is_capturing(struct flw_pool *pool, fallow_stream stream);
/* Announce to the pool the capture of `stream`, if an id is open for the capture; return the tag of the
 * thread's allocations. Call only while open_ids is not 0. */
uint32_t flw_graph_ids_announce(int device, fallow_stream stream, bool is_free);
/* Announce as above for the pool's device; ignore tags. True if an id other than a tag is open. */
bool flw_graph_ids_announce_to(struct flw_pool *pool, fallow_stream stream);
/* Announce a capture that may have begun without an allocation yet, for the duration of a call that names no
 * stream. If this returns true, fallow_context_capture_end must end the announcement. Driver calls while an id is
 * open. */
bool flw_graph_ids_guard(void);
/* Driver calls. End captures that are over, and release the captures with complete work. */
void flw_graph_ids_settle(int device);
void flw_graph_ids_forget(void);     /* after a fork */
void flw_graph_ids_lose(int device); /* its pool was lost */

#endif

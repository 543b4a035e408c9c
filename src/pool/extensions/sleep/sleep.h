/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what the files of sleep share, and what layers above ask.
 */
#ifndef FLW_POOL_SLEEP_H
#define FLW_POOL_SLEEP_H

#include "pool/state/extension.h"

/* Enlisted by the first sleep: its poll releases what a failure has left of copies. */
extern const struct flw_extension flw_sleep_extension;

/* ---- contents.c */

/* Room for what a sleep by this request will note: taken before anything has happened. */
struct flw_kept_tag *flw_sleep_make_kept(const fallow_sleep_request *request);
/* The sleep has come about. Takes `kept`. */
void flw_sleep_note_kept(struct flw_sleeper *sleeper, const fallow_sleep_request *request,
                         struct flw_kept_tag *kept);
/* Driver calls, the turn held, all work complete. Copy out what the request wants kept; and back. What
 * was taken before a failure flw_sleep_forget_saved releases. */
fallow_status flw_sleep_save(struct flw_pool *pool, const fallow_sleep_request *request);
fallow_status flw_sleep_restore(struct flw_pool *pool);
/* Driver calls, but `is_lost`. Whatever of the copies there is; what may be written still, or the driver
 * refuses to enter for, stays. */
void flw_sleep_forget_saved(struct flw_pool *pool, bool is_lost);
/* Have blocks with the tag kept their contents in all sleeps after number `serial`? */
bool flw_sleep_has_kept(struct flw_pool *pool, uint32_t tag, uint64_t serial);

#endif

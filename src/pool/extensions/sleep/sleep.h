/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the shared part of the sleep files, and the interface for layers above. */
#ifndef FLW_POOL_SLEEP_H
#define FLW_POOL_SLEEP_H

#include "pool/state/extension.h"

/* Added by the first sleep: the poll releases copies that a failure has left. */
extern const struct flw_extension flw_sleep_extension;

/* ---- contents.c */

/* Allocate room for the record of a sleep by this request, before anything happens. */
struct flw_kept_tag *flw_sleep_make_kept(const fallow_sleep_request *request);
/* Record that the sleep succeeded. Takes `kept`. */
void flw_sleep_note_kept(struct flw_sleeper *sleeper, const fallow_sleep_request *request,
                         struct flw_kept_tag *kept);
/* Save the contents that the request selects; restore them. With all work complete, in the turn.
 * After a failure flw_sleep_forget_saved releases the copies. Makes driver calls. */
fallow_status flw_sleep_save(struct flw_pool *pool, const fallow_sleep_request *request);
fallow_status flw_sleep_restore(struct flw_pool *pool);
/* Release all copies, except memory that may still be written or that the driver refuses to
 * release. Makes driver calls unless `is_lost`. */
void flw_sleep_forget_saved(struct flw_pool *pool, bool is_lost);
/* True if blocks with the tag kept their contents in all sleeps after number `serial`. */
bool flw_sleep_has_kept(struct flw_pool *pool, uint32_t tag, uint64_t serial);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what the rest of the pool knows of recording. A hit tells its recorder by itself: the caches of a
 * recorded pool have a ring, and a key that sends every call the other way (heap/caches/tcache.h, hit.h).
 */
#ifndef FLW_POOL_RECORDING_H
#define FLW_POOL_RECORDING_H

#include "pool/state/extension.h"
#include "record/scribe.h"

/* Enlisted by the first recording. */
extern const struct flw_extension flw_recording_extension;

/* Which call stacks hold the pool's live blocks, where it is being recorded with stacks (flw_recorder_list_holders). */
size_t flw_recording_list_holders(struct flw_pool *pool, struct flw_scribe_holder *out, size_t most,
                                  struct flw_scribe_holder *out_rest);

#endif

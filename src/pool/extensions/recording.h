/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the interface of recording for the rest of the pool. Hits record themselves: the caches of
 * a recorded pool have a ring, and a key that sends every call to the recorded path
 * (heap/caches/tcache.h, hit.h). */
#ifndef FLW_POOL_RECORDING_H
#define FLW_POOL_RECORDING_H

#include "pool/state/extension.h"
#include "record/trace_file.h"

/* Added by the first recording. */
extern const struct flw_extension flw_recording_extension;

/* List the call stacks that hold the pool's live blocks, if recorded with stacks
 * (flw_recorder_list_holders). */
size_t flw_recording_list_holders(struct flw_pool *pool, struct flw_trace_file_holder *out,
                                  size_t most, struct flw_trace_file_holder *out_rest);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the words of a snapshot that its reader knows.
 * Does not: say what they mean (pytorch.c does).
 */
#ifndef FLW_TRACE_PYTORCH_WORDS_H
#define FLW_TRACE_PYTORCH_WORDS_H

#include "trace/pickle.h"

enum word {
    /* actions, in the order of `operations` */
    WORD_ALLOC,
    WORD_FREE_REQUESTED,
    WORD_FREE_COMPLETED,
    WORD_SEGMENT_ALLOC,
    WORD_SEGMENT_FREE,
    WORD_SEGMENT_MAP,
    WORD_SEGMENT_UNMAP,
    WORD_OOM,
    WORD_SNAPSHOT,
    WORD_USER_DEFINED,
    WORD_WORKSPACE_SNAPSHOT,
    /* states and types */
    WORD_ACTIVE_ALLOCATED,
    WORD_ACTIVE_PENDING_FREE,
    WORD_ACTIVE_AWAITING_FREE,
    WORD_INACTIVE,
    WORD_LARGE,
    WORD_SMALL,
    WORD_START,
    WORD_END,
    /* keys */
    WORD_SEGMENTS,
    WORD_DEVICE_TRACES,
    WORD_DEVICE,
    WORD_ADDRESS,
    WORD_TOTAL_SIZE,
    WORD_STREAM,
    WORD_SEGMENT_TYPE,
    WORD_IS_EXPANDABLE,
    WORD_BLOCKS,
    WORD_SIZE,
    WORD_REQUESTED_SIZE,
    WORD_STATE,
    WORD_HISTORY,
    WORD_REAL_SIZE,
    WORD_ACTION,
    WORD_ADDR,
    WORD_TIME_US,
    WORD_SEGMENT_POOL_ID,
    WORD_POOL_ID,
    WORD_DEVICE_FREE,
    WORD_ANNOTATIONS,
    WORD_STAGE,
    WORD_NAME,
    WORD_COUNT
};

static const char *const words[] = {
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "oom",
    "snapshot",
    "user_defined",
    "workspace_snapshot",
    "active_allocated",
    "active_pending_free",
    "active_awaiting_free",
    "inactive",
    "large",
    "small",
    "START",
    "END",
    "segments",
    "device_traces",
    "device",
    "address",
    "total_size",
    "stream",
    "segment_type",
    "is_expandable",
    "blocks",
    "size",
    "requested_size",
    "state",
    "history",
    "real_size",
    "action",
    "addr",
    "time_us",
    "segment_pool_id",
    "pool_id",
    "device_free",
    "external_annotations",
    "stage",
    "name",
};
_Static_assert(sizeof(words) / sizeof(words[0]) == WORD_COUNT, "a word for each number");
_Static_assert(WORD_COUNT <= FLW_PICKLE_WORDS_MAX, "the vocabulary fits");

#endif

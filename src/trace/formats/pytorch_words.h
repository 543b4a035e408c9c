/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the words of a snapshot, for readers and writer.
 * Does not: interpret them (pytorch.c, snapshot.c).
 */
#ifndef FLW_TRACE_FORMATS_PYTORCH_WORDS_H
#define FLW_TRACE_FORMATS_PYTORCH_WORDS_H

#include <stdint.h>

#include "trace/trace/trace.h"

/* Actions of events; an operation is written as its first action. */
#define ACTION_LIST(X)                                         \
    X(ALLOC, "alloc", FLW_TRACE_ALLOC)                         \
    X(FREE_REQUESTED, "free_requested", FLW_TRACE_FREE)        \
    X(FREE_COMPLETED, "free_completed", FLW_TRACE_FREE_DONE)   \
    X(SEGMENT_ALLOC, "segment_alloc", FLW_TRACE_SEGMENT_ALLOC) \
    X(SEGMENT_FREE, "segment_free", FLW_TRACE_SEGMENT_FREE)    \
    X(SEGMENT_MAP, "segment_map", FLW_TRACE_SEGMENT_MAP)       \
    X(SEGMENT_UNMAP, "segment_unmap", FLW_TRACE_SEGMENT_UNMAP) \
    X(OOM, "oom", FLW_TRACE_OOM)                               \
    X(SNAPSHOT, "snapshot", FLW_TRACE_MARK)                    \
    X(USER_DEFINED, "user_defined", FLW_TRACE_MARK)            \
    X(WORKSPACE_SNAPSHOT, "workspace_snapshot", FLW_TRACE_MARK)

/* States, types and keys. */
#define WORD_LIST(X)                                \
    X(ACTIVE_ALLOCATED, "active_allocated")         \
    X(ACTIVE_PENDING_FREE, "active_pending_free")   \
    X(ACTIVE_AWAITING_FREE, "active_awaiting_free") \
    X(INACTIVE, "inactive")                         \
    X(LARGE, "large")                               \
    X(SMALL, "small")                               \
    X(START, "START")                               \
    X(END, "END")                                   \
    X(SEGMENTS, "segments")                         \
    X(DEVICE_TRACES, "device_traces")               \
    X(DEVICE, "device")                             \
    X(ADDRESS, "address")                           \
    X(TOTAL_SIZE, "total_size")                     \
    X(STREAM, "stream")                             \
    X(SEGMENT_TYPE, "segment_type")                 \
    X(IS_EXPANDABLE, "is_expandable")               \
    X(BLOCKS, "blocks")                             \
    X(SIZE, "size")                                 \
    X(REQUESTED_SIZE, "requested_size")             \
    X(STATE, "state")                               \
    X(HISTORY, "history")                           \
    X(REAL_SIZE, "real_size")                       \
    X(ACTION, "action")                             \
    X(ADDR, "addr")                                 \
    X(TIME_US, "time_us")                           \
    X(SEGMENT_POOL_ID, "segment_pool_id")           \
    X(POOL_ID, "pool_id")                           \
    X(DEVICE_FREE, "device_free")                   \
    X(ANNOTATIONS, "external_annotations")          \
    X(STAGE, "stage")                               \
    X(NAME, "name")                                 \
    X(FRAMES, "frames")                             \
    X(FILENAME, "filename")                         \
    X(LINE, "line")                                 \
    X(ALLOCATOR_SETTINGS, "allocator_settings")     \
    X(CUDA_CONF, "PYTORCH_CUDA_ALLOC_CONF")         \
    X(ANY_CONF, "PYTORCH_ALLOC_CONF")               \
    X(NPU_CONF, "PYTORCH_NPU_ALLOC_CONF")           \
    X(EXPANDABLE_SEGMENTS, "expandable_segments")   \
    X(OVERFLOWED, "trace_alloc_overflowed")         \
    X(COMPILE_CONTEXT, "compile_context")           \
    X(USER_METADATA, "user_metadata")               \
    X(ALLOCATED_SIZE, "allocated_size")             \
    X(ACTIVE_SIZE, "active_size")

#define ACTION_NUMBER(name, text, operation)    WORD_##name,
#define ACTION_TEXT(name, text, operation)      text,
#define ACTION_OPERATION(name, text, operation) operation,
#define WORD_NUMBER(name, text)                 WORD_##name,
#define WORD_TEXT(name, text)                   text,

enum word {
    ACTION_LIST(ACTION_NUMBER) WORD_LIST(WORD_NUMBER) WORD_COUNT
};

static const char *const words[] = {ACTION_LIST(ACTION_TEXT) WORD_LIST(WORD_TEXT)};
static const uint8_t operations[] = {ACTION_LIST(ACTION_OPERATION)};
_Static_assert(WORD_COUNT <= 64, "a bit for each word");

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the words of a snapshot, for readers and writer.
 * Does not: interpret them (pytorch.c, snapshot.c).
 */
#ifndef FLW_TRACE_FORMATS_PYTORCH_WORDS_H
#define FLW_TRACE_FORMATS_PYTORCH_WORDS_H

#include <stdint.h>

#include "trace/trace/trace.h"

/* Words that are read: actions in the order of `operations`, states and types, keys. */
#define WORD_READ_LIST(X)                           \
    X(ALLOC, "alloc")                               \
    X(FREE_REQUESTED, "free_requested")             \
    X(FREE_COMPLETED, "free_completed")             \
    X(SEGMENT_ALLOC, "segment_alloc")               \
    X(SEGMENT_FREE, "segment_free")                 \
    X(SEGMENT_MAP, "segment_map")                   \
    X(SEGMENT_UNMAP, "segment_unmap")               \
    X(OOM, "oom")                                   \
    X(SNAPSHOT, "snapshot")                         \
    X(USER_DEFINED, "user_defined")                 \
    X(WORKSPACE_SNAPSHOT, "workspace_snapshot")     \
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
    X(USER_METADATA, "user_metadata")

/* Words that are only written: the reader would keep their values. */
#define WORD_WRITTEN_LIST(X)            \
    X(ALLOCATED_SIZE, "allocated_size") \
    X(ACTIVE_SIZE, "active_size")

#define WORD_NUMBER(name, text) WORD_##name,
#define WORD_TEXT(name, text)   text,

enum word {
    WORD_READ_LIST(WORD_NUMBER) WORD_READ_COUNT,
    WORD_BEFORE_WRITTEN = WORD_READ_COUNT - 1,
    WORD_WRITTEN_LIST(WORD_NUMBER) WORD_COUNT
};

static const char *const words[] = {WORD_READ_LIST(WORD_TEXT) WORD_WRITTEN_LIST(WORD_TEXT)};
_Static_assert(sizeof(words) / sizeof(words[0]) == WORD_COUNT, "a word for each number");
_Static_assert(WORD_READ_COUNT <= 64, "a bit for each word that is read");

/* Operation of each action; the writer takes the first one. */
static const uint8_t operations[] = {
    [WORD_ALLOC] = FLW_TRACE_ALLOC,
    [WORD_FREE_REQUESTED] = FLW_TRACE_FREE,
    [WORD_FREE_COMPLETED] = FLW_TRACE_FREE_DONE,
    [WORD_SEGMENT_ALLOC] = FLW_TRACE_SEGMENT_ALLOC,
    [WORD_SEGMENT_FREE] = FLW_TRACE_SEGMENT_FREE,
    [WORD_SEGMENT_MAP] = FLW_TRACE_SEGMENT_MAP,
    [WORD_SEGMENT_UNMAP] = FLW_TRACE_SEGMENT_UNMAP,
    [WORD_OOM] = FLW_TRACE_OOM,
    [WORD_SNAPSHOT] = FLW_TRACE_MARK,
    [WORD_USER_DEFINED] = FLW_TRACE_MARK,
    [WORD_WORKSPACE_SNAPSHOT] = FLW_TRACE_MARK,
};

#undef WORD_NUMBER
#undef WORD_TEXT

#endif

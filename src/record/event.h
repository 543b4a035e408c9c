/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what an allocation trace consists of: events, blocks, segments, and what is said beside them.
 * Does not: hold a trace; trace/trace/trace.h does, with the rules that its parts keep.
 */
#ifndef FLW_RECORD_EVENT_H
#define FLW_RECORD_EVENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum flw_trace_op {
    FLW_TRACE_ALLOC,
    FLW_TRACE_FREE,      /* the user's free */
    FLW_TRACE_FREE_DONE, /* reusable now; absent in traces that do not tell the two apart */
    FLW_TRACE_SEGMENT_ALLOC,
    FLW_TRACE_SEGMENT_FREE,
    FLW_TRACE_SEGMENT_MAP,
    FLW_TRACE_SEGMENT_UNMAP,
    FLW_TRACE_USE, /* stream uses block */
    FLW_TRACE_OOM,
    FLW_TRACE_MARK, /* a moment: a snapshot was taken, or what its name says */
    FLW_TRACE_PHASE_BEGIN,
    FLW_TRACE_PHASE_END,   /* of the innermost phase of that name */
    FLW_TRACE_SYNC_DEVICE, /* the host waited for all that the device had been given */
    FLW_TRACE_SYNC_STREAM, /* ... for all that the stream had been given */
    FLW_TRACE_SYNC_EVENT,  /* ... for an event of the stream */
    FLW_TRACE_SYNC_WAIT,   /* the stream waits for what another had been given */
    FLW_TRACE_POOL_BEGIN,  /* the stream is captured; blocks come from the context's pool */
    FLW_TRACE_POOL_END,
    FLW_TRACE_EMPTY_CACHE, /* the user asked for idle memory to be released */
    FLW_TRACE_CONFIG,      /* a setting was made: the name says which */
    FLW_TRACE_DROP,        /* here events are missing */
    FLW_TRACE_OP_COUNT
};

/* ALLOC, FREE, FREE_DONE and USE name a block. */
static inline bool flw_trace_op_has_block(uint8_t op)
{
    return op <= FLW_TRACE_FREE_DONE || op == FLW_TRACE_USE;
}

/* Of the others stream, size and address are 0. */
static inline bool flw_trace_op_has_stream(uint8_t op)
{
    return op <= FLW_TRACE_OOM || (op >= FLW_TRACE_SYNC_STREAM && op <= FLW_TRACE_POOL_END);
}

/* 32 bytes. */
struct flw_trace_event {
    uint64_t time_ns;    /* since the first event; 0 throughout where has_times is false */
    uint64_t address;    /* block or segment as recorded; 0 where unknown */
    uint64_t size_bytes; /* requested (blocks), real (segments), failing request (OOM) */
    uint32_t block;      /* dense number; UINT32_MAX where the event concerns no block */
    uint16_t stream;     /* index into streams[] */
    uint8_t op;          /* enum flw_trace_op */
    uint8_t reserved;
};

struct flw_trace_block {
    uint64_t address;
    uint64_t size_bytes; /* requested */
    uint16_t stream;     /* allocated on */
    bool freed;          /* somewhere in the trace */
    bool
        waits; /* freed but not reusable at the end of the trace: other streams use it (PyTorch's snapshots) */
};

/* A segment that existed before the first event. */
struct flw_trace_segment {
    uint64_t address;
    uint64_t size_bytes;
    uint16_t stream;
    bool is_large; /* PyTorch's large pool */
    bool is_expandable;
    uint32_t pool;  /* as a context's */
    uint32_t stack; /* stack of its allocation, as of a record (trace/trace/trace.h); 0: unknown */
};

#define FLW_TRACE_NAME_BYTES 1000
#define FLW_TRACE_NO_NAME    UINT32_MAX
#define FLW_TRACE_UNKNOWN    UINT64_MAX

/* May these bytes be a name? Printable, and not too long. */
static inline bool flw_trace_is_name(const char *name, size_t bytes)
{
    bool is_name = bytes > 0 && bytes <= FLW_TRACE_NAME_BYTES;
    for (size_t i = 0; is_name && i < bytes; i++) {
        is_name = (unsigned char)name[i] >= 0x20 && name[i] != 0x7F;
    }
    return is_name;
}

/* What an event says beside its fields. Few events have one. */
struct flw_trace_detail {
    size_t event;           /* index into events[] */
    uint64_t free_bytes;    /* OOM: what the device had; FLW_TRACE_UNKNOWN */
    uint64_t largest_bytes; /* OOM: the largest hole; FLW_TRACE_UNKNOWN */
    uint64_t lost_count;    /* DROP: missing events, at least 1; else 0 */
    uint32_t name;          /* index into names[]; FLW_TRACE_NO_NAME */
    uint16_t other_stream;  /* SYNC_WAIT: whose work is waited for; else 0 */
};

/* Who asked, from one record to the next context's. Records are the initial blocks, then the events.
 */
struct flw_trace_context {
    size_t record;
    uint32_t thread; /* of the recording, counted from 0 */
    uint32_t tag;    /* the caller's; 0 = none */
    uint32_t pool;   /* a private pool, such as a graph's; 0 = the common one */
};

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the parts of an allocation trace: events, blocks, segments, and their details.
 * Does not: hold a trace; trace/trace/trace.h does, with the invariants. */
#ifndef FLW_RECORD_EVENT_H
#define FLW_RECORD_EVENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum flw_trace_op {
    FLW_TRACE_ALLOC,
    FLW_TRACE_FREE,      /* the user's free */
    FLW_TRACE_FREE_DONE, /* reusable now; absent in traces that do not distinguish the two */
    FLW_TRACE_SEGMENT_ALLOC,
    FLW_TRACE_SEGMENT_FREE,
    FLW_TRACE_SEGMENT_MAP,
    FLW_TRACE_SEGMENT_UNMAP,
    FLW_TRACE_USE, /* the stream uses the block */
    FLW_TRACE_OOM,
    FLW_TRACE_MARK, /* a moment: a snapshot was taken, or as named */
    FLW_TRACE_PHASE_BEGIN,
    FLW_TRACE_PHASE_END,   /* of the innermost phase of that name */
    FLW_TRACE_SYNC_DEVICE, /* the host waited for all work of the device */
    FLW_TRACE_SYNC_STREAM, /* ... of the stream */
    FLW_TRACE_SYNC_EVENT,  /* ... for an event of the stream */
    FLW_TRACE_SYNC_WAIT,   /* the stream waits for another stream's work */
    FLW_TRACE_POOL_BEGIN,  /* the stream is captured; blocks are from the context's pool */
    FLW_TRACE_POOL_END,
    FLW_TRACE_EMPTY_CACHE, /* the user requested a release of idle memory */
    FLW_TRACE_CONFIG,      /* a setting was changed, as named */
    FLW_TRACE_DROP,        /* events are missing here */
    FLW_TRACE_OP_COUNT
};

/* True for ALLOC, FREE, FREE_DONE and USE. */
static inline bool flw_trace_op_has_block(uint8_t op)
{
    return op <= FLW_TRACE_FREE_DONE || op == FLW_TRACE_USE;
}

/* False for events with stream, size and address 0. */
static inline bool flw_trace_op_has_stream(uint8_t op)
{
    return op <= FLW_TRACE_OOM || (op >= FLW_TRACE_SYNC_STREAM && op <= FLW_TRACE_POOL_END);
}

/* 32 bytes. */
struct flw_trace_event {
    uint64_t time_ns;    /* since the first event; 0 throughout if has_times is false */
    uint64_t address;    /* block or segment as recorded; 0 if unknown */
    uint64_t size_bytes; /* requested (blocks), real (segments), failing request (OOM) */
    uint32_t block;      /* dense number; UINT32_MAX if the event concerns no block */
    uint16_t stream;     /* index into streams[] */
    uint8_t op;          /* enum flw_trace_op */
    uint8_t reserved;
};

struct flw_trace_block {
    uint64_t address;
    uint64_t size_bytes; /* requested */
    uint16_t stream;     /* of the allocation */
    bool freed;          /* by an event of the trace */
    bool waits;          /* freed but not reusable at the end of the trace: other streams use it
                   (PyTorch's snapshots) */
};

/* A segment that existed before the first event. */
struct flw_trace_segment {
    uint64_t address;
    uint64_t size_bytes;
    uint16_t stream;
    bool is_large; /* PyTorch's large pool */
    bool is_expandable;
    uint32_t pool;  /* as in a context */
    uint32_t stack; /* of the allocation, as of a record (trace/trace/trace.h); 0: unknown */
};

#define FLW_TRACE_NAME_BYTES 1000
#define FLW_TRACE_NO_NAME    UINT32_MAX
#define FLW_TRACE_UNKNOWN    UINT64_MAX

/* True if the bytes can be a name: printable, and not too long. */
static inline bool flw_trace_is_name(const char *name, size_t bytes)
{
    bool is_name = bytes > 0 && bytes <= FLW_TRACE_NAME_BYTES;
    for (size_t i = 0; is_name && i < bytes; i++) {
        is_name = (unsigned char)name[i] >= 0x20 && name[i] != 0x7F;
    }
    return is_name;
}

/* Additional data of an event. Few events have it. */
struct flw_trace_detail {
    size_t event;           /* index into events[] */
    uint64_t free_bytes;    /* OOM: free memory of the device; FLW_TRACE_UNKNOWN */
    uint64_t largest_bytes; /* OOM: the largest free range; FLW_TRACE_UNKNOWN */
    uint64_t lost_count;    /* DROP: missing events, at least 1; otherwise 0 */
    uint32_t name;          /* index into names[]; FLW_TRACE_NO_NAME */
    uint16_t other_stream;  /* SYNC_WAIT: the stream waited for; otherwise 0 */
};

/* The caller of records, until the next context's record. Records are the initial blocks, then the
 * events. */
struct flw_trace_context {
    size_t record;
    uint32_t thread; /* of the recording, from 0 */
    uint32_t tag;    /* the caller's; 0 = none */
    uint32_t pool;   /* a private pool, such as a graph's; 0 = the common one */
};

#endif

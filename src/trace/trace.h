/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a decoded allocation trace of one device: what readers produce and what replay consumes.
 * Does not: read files (readers do) or decide anything.
 *
 * Every block of the trace has a dense number. Blocks alive before the first event come first
 * (0 .. initial_count-1, in address order where addresses are known); each ALLOC event takes the
 * next.
 *
 * INVARIANTS (flw_trace_is_valid recomputes them)
 *   1. blocks[e.block] exists for every ALLOC, FREE, FREE_DONE and USE event e.
 *   2. A block is allocated once, before its FREE, which precedes its FREE_DONE; each at most once.
 *   3. FREE, FREE_DONE and USE carry their block's address and size; a USE lies before the FREE.
 *   4. Times never fall; times and addresses are 0 where has_times and has_addresses are false.
 *   5. peak_requested_bytes is the maximum over events of the live requested bytes, initial ones
 *      included; a block is live until its FREE_DONE, or its FREE where there is no FREE_DONE.
 *   6. Details ascend by event; each says something, and only what its event's op has. PHASE_BEGIN,
 *      PHASE_END, CONFIG, SYNC_WAIT and DROP have one.
 *   7. Contexts ascend by record, and each differs from the one before it (the first: from zeros).
 *   8. Names are printable, 1 to FLW_TRACE_NAME_BYTES bytes.
 */
#ifndef FLW_TRACE_TRACE_H
#define FLW_TRACE_TRACE_H

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
    FLW_TRACE_EMPTY_CACHE, /* the user asked for idle memory to be given back */
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
    uint16_t stream;     /* lent on */
    bool freed;          /* somewhere in the trace */
};

/* A segment that existed before the first event. */
struct flw_trace_segment {
    uint64_t address;
    uint64_t size_bytes;
    uint16_t stream;
    bool is_large; /* PyTorch's large pool */
    bool is_expandable;
    uint32_t pool; /* as a context's */
};

#define FLW_TRACE_NAME_BYTES 1000
#define FLW_TRACE_NO_NAME    UINT32_MAX
#define FLW_TRACE_UNKNOWN    UINT64_MAX

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

struct flw_trace {
    char *source; /* file name as given */
    char *format; /* "pytorch pickle", "text", "kineto json", "rmm csv", ... */
    int device;   /* ordinal in the recording */
    struct flw_trace_event *events;
    size_t event_count;
    struct flw_trace_block *blocks;
    size_t block_count;
    size_t initial_count; /* blocks alive before the first event */
    struct flw_trace_segment *segments;
    size_t segment_count; /* before the first event */
    uint64_t *streams;    /* recorded handles */
    size_t stream_count;
    char **names; /* in the order in which events first use them */
    size_t name_count;
    struct flw_trace_detail *details;
    size_t detail_count;
    struct flw_trace_context *contexts;
    size_t context_count;
    bool has_times;
    bool has_addresses;
    bool
        has_segments; /* segment events or segments: recorded_peak_reserved_bytes means something */
    uint64_t alloc_count;
    uint64_t peak_requested_bytes;
    uint64_t recorded_peak_reserved_bytes; /* 0 where unknown */
    uint64_t recorded_initial_reserved_bytes;
    uint64_t recorded_segment_calls; /* segment alloc, free, map, unmap events */
    uint64_t unknown_free_count;     /* frees of blocks the trace never showed: skipped, reported */
    uint64_t lost_free_count; /* blocks lent again without a free on record: a FREE was put in */
    char *notes; /* header lines of the text form that no field holds, as written; NULL = none */
    char *truncation; /* where and why the file could not be read further; NULL = all was read */
};

#define FLW_TRACE_MESSAGE_BYTES 256

/* Read a trace file, whatever its format (told by content, never by name; .xz, .gz and .zst are
 * unpacked).
 *
 * device   ordinal to read; -1 = the one with the most events
 * message  one line that names the file, the place in it and what is wrong; empty on success
 * True     all was read, or (our own trace files) what could be: then (*out_trace)->truncation says so.
 * False    nothing is held. The file is data: nothing in it is ever executed.
 * Cost     O(file) time; memory in the order of the decoded events. */
bool flw_trace_read(const char *path, int device, struct flw_trace **out_trace, char *message);

/* The same from memory (tests and fuzzers). `name` is for messages. */
bool flw_trace_read_bytes(const void *bytes, size_t count, const char *name, int device,
                          struct flw_trace **out_trace, char *message);

/* As flw_trace_read, but what follows damage in a trace file of our own is read too, from the next
 * whole chunk on; a DROP event stands where events are lost. Other forms: no difference. */
bool flw_trace_read_damaged(const char *path, int device, struct flw_trace **out_trace,
                            char *message);

void flw_trace_destroy(struct flw_trace *trace);

bool flw_trace_is_valid(const struct flw_trace *trace);

/* A walk over details or contexts beside one over the events: O(1) each step. All zero begins it. */
struct flw_trace_walk {
    size_t next_detail, next_context;
    struct flw_trace_context context; /* of the record asked for last */
};

/* The detail of an event, NULL where it has none. Events are asked for in ascending order. */
const struct flw_trace_detail *flw_trace_walk_detail(const struct flw_trace *trace,
                                                     struct flw_trace_walk *walk, size_t event);

/* The context of a record; the same. */
const struct flw_trace_context *flw_trace_walk_context(const struct flw_trace *trace,
                                                       struct flw_trace_walk *walk, size_t record);

/* The name of an event's detail; NULL where there is none. */
const char *flw_trace_name(const struct flw_trace *trace, const struct flw_trace_detail *detail);

/* Write the text form; false and a message on a failing or full disk, and then no file. "-" =
 * stdout. */
bool flw_trace_write_text(const struct flw_trace *trace, const char *path, char *message);

/* The same as a trace file of our own (ftrace.h). */
bool flw_trace_write_ftrace(const struct flw_trace *trace, const char *path, char *message);

/* Each of these as flw_trace_write_text, in another program's form; what that form has no word for
 * is left out, as the file that writes it says.
 *
 * RMM's CSV log: allocations (blocks of the start first), frees and failures; times in microseconds.
 */
bool flw_trace_write_rmm(const struct flw_trace *trace, const char *path, char *message);

/* Chrome's JSON: counters of requested, allocated and reserved bytes, instants for the rest, and the
 * [memory] events of PyTorch profiles. */
bool flw_trace_write_chrome(const struct flw_trace *trace, const char *path, char *message);

/* PyTorch's memory snapshot, a pickle of protocol 4. Not of a device above 1023. */
bool flw_trace_write_pytorch(const struct flw_trace *trace, const char *path, char *message);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the order of work: streams, events, the scheduler, captures and graphs.
 * Does not: access memory (storage.h, check.h).
 * Synchronization: the world's lock. */
#ifndef FLW_SIMCUDA_ORDER_H
#define FLW_SIMCUDA_ORDER_H

#include "simcuda/world.h"

enum flw_stream_kind {
    FLW_STREAM_LEGACY,      /* and every blocking stream wait for each other */
    FLW_STREAM_PER_THREAD,  /* a blocking stream of one thread */
    FLW_STREAM_BLOCKING,    /* cuStreamCreate with CU_STREAM_DEFAULT */
    FLW_STREAM_NON_BLOCKING /* independent of the legacy stream */
};

enum flw_work_kind {
    FLW_WORK_EMPTY,
    FLW_WORK_TOUCH,
    FLW_WORK_MEMSET,
    FLW_WORK_COPY,
    FLW_WORK_HOST,
    FLW_WORK_LAUNCH,
    FLW_WORK_GRAPH,
    FLW_WORK_RECORD,
    FLW_WORK_WAIT
};

/* A callback of cuStreamAddCallback. Unlike a host function, it runs after a sticky error too; its status is then
 * that error. */
struct flw_callback {
    CUstreamCallback function;
    CUstream stream;
    void *argument;
    CUresult status;
};

/* An operation. Pointers belong to the caller of flw_order_submit; a copy that outlives the call
 * is created by flw_work_copy and ended by flw_work_finish. */
struct flw_work {
    enum flw_work_kind kind;
    const char *name;             /* for reports: "touch", "memset", the kernel's name */
    struct flw_sim_range *ranges; /* accessed ranges; kernels add ranges as they run */
    size_t range_count;
    uint64_t to, from, bytes; /* memset: bytes is the total; copy: device side addresses */
    void *host_to;            /* copy to the host */
    const void *host_from;    /* copy from the host */
    unsigned char *staged;    /* owned: the bytes of pageable host memory */
    uint32_t value;
    unsigned value_bytes;
    CUhostFn function;
    void *argument;
    struct flw_callback *callback; /* owned after submission: the argument, if it is one */
    struct flw_kernel *kernel;
    void **parameters;          /* launch: owned block after copy */
    void **borrowed_parameters; /* launch without a layout: runs before the call returns */
    unsigned dimensions[7];
    struct flw_program *program; /* graph: one reference */
    const struct flw_position *waits;
    uint32_t wait_count;
    const struct flw_order_clock *waits_clock;
};

struct flw_operation {
    struct flw_operation *next;
    struct flw_stream *stream;
    struct flw_context *context; /* FLW_SIM_CLOCK: the stream may be gone */
    struct flw_work work;
    uint64_t sequence;
    uint64_t done_ns;
    bool is_running;
    struct flw_position *waits;
    uint32_t wait_count;
    struct flw_order_clock clock; /* with the checker: everything that precedes it */
};

struct flw_stream {
    CUstream handle; /* NULL for the default streams */
    uint64_t id;     /* never reused */
    struct flw_context *context;
    struct flw_thread *thread; /* per-thread only */
    enum flw_stream_kind kind;
    unsigned flags;
    int priority;
    bool is_alive; /* otherwise kept until the queue is empty */
    uint32_t slot;
    uint64_t done_ns; /* FLW_SIM_CLOCK: completion of the last operation */
    struct flw_operation *head, *tail;
    uint32_t depth, active_index;
    struct flw_order_clock clock;
    uint64_t host_version;
    struct flw_capture *capture; /* NULL: not capturing */
    uint32_t *capture_tips;      /* nodes that the next node depends on */
    uint32_t capture_tip_count;
    struct flw_stream *next, *previous; /* of the context */
    struct flw_stream *thread_next;
};

struct flw_event {
    CUevent handle;
    struct flw_context *context;
    unsigned flags;
    struct flw_position *positions; /* the recorded work; none: complete */
    uint32_t count, capacity;
    uint64_t done_ns;
    uint64_t recorded_at_ns; /* modelled_host_ns; the time of an event without FLW_SIM_CLOCK */
    bool is_recorded;
    struct flw_order_clock clock;
    uint64_t capture_id; /* last recorded inside this capture, otherwise 0 */
    uint32_t *capture_tips;
    uint32_t capture_tip_count;
};

/* event.c: order clocks */
void flw_clock_join(struct flw_order_clock *clock, const struct flw_order_clock *other);
void flw_clock_raise(struct flw_order_clock *clock, uint32_t slot, uint64_t sequence);
void flw_clock_copy(struct flw_order_clock *clock, const struct flw_order_clock *other);
void flw_clock_finish(struct flw_order_clock *clock);
static inline uint64_t flw_clock_get(const struct flw_order_clock *clock, uint32_t slot)
{
    return slot < clock->count ? clock->at[slot] : 0;
}
/* The host has observed all of this as complete: later work follows it. */
void flw_clock_host_saw(const struct flw_order_clock *clock);
void flw_clock_host_saw_position(const struct flw_position *position);

/* stream.c */
struct flw_stream *flw_stream_make(struct flw_context *context, enum flw_stream_kind kind);
/* With a handle, as cuStreamCreate. */
CUresult flw_stream_create(struct flw_context *context, CUstream *out, unsigned flags,
                           int priority);
/* Remove the stream from the context; end now or when the queue is empty. */
void flw_stream_end(struct flw_stream *stream);
void flw_stream_free(struct flw_stream *stream);
/* Return the stream of a handle in this thread now; NULL with the error to return. */
struct flw_stream *flw_stream_find(struct flw_thread *thread, CUstream handle, CUresult *error);
/* flw_call_enter for a call on one stream: call->stream is set if the result is CUDA_SUCCESS. */
CUresult flw_stream_enter(struct flw_call *call, enum flw_entry entry, unsigned needs,
                          CUstream handle);
static inline bool flw_stream_is_blocking(const struct flw_stream *stream)
{
    return stream->kind == FLW_STREAM_BLOCKING || stream->kind == FLW_STREAM_PER_THREAD;
}

/* event.c */
void flw_event_end_context(struct flw_context *context);
void flw_event_finish_all(void);

/* work.c */
void flw_work_copy(struct flw_work *work, const struct flw_work *from);
void flw_work_finish(struct flw_work *work);
/* Run the operation. `clock` has everything before. CUDA_SUCCESS or a device error. */
CUresult flw_work_do(struct flw_stream *stream, struct flw_work *work, uint64_t sequence,
                     const struct flw_order_clock *clock);

/* schedule.c */
/* Submit work to a stream; `out` (may be NULL) is the position. While capturing it
 * becomes a node. */
CUresult flw_order_submit(struct flw_stream *stream, struct flw_work *work,
                          struct flw_position *out);
bool flw_order_is_done(const struct flw_position *position);
/* Wait, as a synchronising call does. The lock may be dropped on the way. */
/* The same, without an observation by the host. */
void flw_order_run_until(struct flw_thread *thread, const struct flw_position *position);
void flw_order_wait(struct flw_thread *thread, const struct flw_position *position);
/* Submit an operation. If `waits` is set and the stream is not being captured, wait for it too. */
CUresult flw_order_give(struct flw_call *call, struct flw_stream *stream, struct flw_work *work,
                        bool waits);
void flw_order_wait_context(struct flw_thread *thread, struct flw_context *context);
void flw_order_wait_device(struct flw_thread *thread, struct flw_device *device);
/* Complete up to n operations in any permitted order. */
uint64_t flw_order_step(struct flw_thread *thread, uint64_t n, bool with_host_functions);
/* FLW_SIM_RANDOM: occasionally complete an operation. */
void flw_order_drift(struct flw_thread *thread, bool with_host_functions);
/* After a result of "not ready" for an event or a stream: let time pass for a host that polls.
 * FLW_SIM_RANDOM: an operation may complete. FLW_SIM_CLOCK: from the 33rd query in a row the clock
 * moves, twice as far each time. In a row: without a call, a touch or an advance in between. */
void flw_order_asked(struct flw_thread *thread, const void *handle);
void flw_order_advance(struct flw_thread *thread, uint64_t to_ns);
/* Run a function with the lock released; driver calls inside fail. */
void flw_order_run_host_function(struct flw_thread *thread, CUhostFn function, void *argument);
void flw_order_finish(void);
struct flw_position flw_order_last(const struct flw_stream *stream);

/* capture.c */
/* FLW_CALL_UNSAFE: refuse a prohibited call, which then invalidates the captures that it conflicts
 * with. */
CUresult flw_capture_refuse_unsafe(struct flw_thread *thread);
CUresult flw_capture_add(struct flw_stream *stream, struct flw_work *work);
/* Refuse work on the legacy stream while a blocking stream of the context is captured. */
CUresult flw_capture_refuse_legacy(struct flw_stream *stream);
CUresult flw_capture_record(struct flw_stream *stream, struct flw_event *event);
CUresult flw_capture_wait(struct flw_stream *stream, struct flw_event *event);
void flw_capture_kill(struct flw_capture *capture);
/* Invalidate the capture that the event was last recorded in, if it is open. */
void flw_capture_kill_of_event(const struct flw_event *event);
void flw_capture_kill_context(struct flw_context *context);
void flw_capture_stream_ends(struct flw_stream *stream);
void flw_capture_finish_all(void);
/* Return the id of the open capture of the last record, otherwise 0. */
uint64_t flw_capture_of_event(const struct flw_event *event);

/* graph.c: a program is shared by a graph, the executables and their launches. */
struct flw_program *flw_program_make(void);
void flw_program_retain(struct flw_program *program);
void flw_program_release(struct flw_program *program);
uint32_t flw_program_add(struct flw_program *program, const struct flw_work *work,
                         const uint32_t *tips, uint32_t tip_count);
CUresult flw_program_do(struct flw_program *program, struct flw_stream *stream, uint64_t sequence,
                        const struct flw_order_clock *clock);
/* True if node `index` is one of the tips or precedes one. */
bool flw_program_is_before(const struct flw_program *program, uint32_t index, const uint32_t *tips,
                           uint32_t tip_count);
/* Free a captured allocation's memory with the last graph and executable of the program. */
void flw_program_own_memory(struct flw_program *program, uint64_t address);
bool flw_program_owns_memory(const struct flw_program *program, uint64_t address);
struct flw_program *flw_capture_program(const struct flw_capture *capture);
bool flw_program_touches(const struct flw_program *program, uint64_t begin, uint64_t end);
void flw_graph_finish_all(void);
CUgraph flw_graph_adopt(struct flw_program *program);
void flw_graph_end(CUgraph graph);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the simulated world: the one lock, the devices, contexts, threads and counters, and the
 * frame (enter, leave) of every driver call.
 * Does not: order work (order.h) or hold memory (storage.h).
 *
 * Synchronization: everything below belongs to flw_world and is guarded by flw_world.lock. The
 * lock is released only while a host function runs and while a call waits for one; after such a
 * point, lookups are repeated. */
#ifndef FLW_SIMCUDA_WORLD_H
#define FLW_SIMCUDA_WORLD_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/tree.h"
#include "driver/driver_types.h"
#include "driver/entry_points.h"
#include "fallow/simcuda.h"
#include "simcuda/profile.h"
#include "simcuda/space.h"
#include "simcuda/table.h"

#define FLW_SIM_EXPORT __attribute__((visibility("default")))

/* Every entry point, declared from the list: a definition with other types does not compile, a
 * missing one does not link (entry.c takes every address). */
#define X(need, symbol, since, before, parameters) \
    FLW_SIM_EXPORT CUresult CUDAAPI symbol parameters;
FLW_DRIVER_ENTRY_POINTS(X)
#undef X

enum flw_entry {
#define X(need, symbol, since, before, parameters) FLW_ENTRY_##symbol,
    FLW_DRIVER_ENTRY_POINTS(X)
#undef X
    FLW_ENTRY_COUNT
};

#define FLW_DEVICE_MAX      16
#define FLW_GRANULARITY     (2ull << 20) /* of physical memory */
#define FLW_MULTIPROCESSORS 132
#define FLW_LIMIT_COUNT     7 /* CUlimit */
#define FLW_PAGE            4096ull
#define FLW_FAULT_MAX       64
#define FLW_FAULT_ANY       FLW_ENTRY_COUNT

struct flw_stream;
struct flw_capture;
struct flw_memory_pool;
struct flw_region;

struct flw_device {
    int ordinal;
    uint64_t given_bytes, peak_given_bytes;
    uint64_t total_given_bytes; /* total since the start */
    uint64_t allocation_count;
    struct flw_context *primary;
    unsigned primary_retain_count;
    unsigned primary_flags;
    uint64_t max_done_ns; /* FLW_SIM_CLOCK: completion of the last of the work */
    struct flw_memory_pool *default_pool, *current_pool;
};

struct flw_context {
    CUcontext handle;
    uint64_t id; /* never reused */
    struct flw_device *device;
    bool is_alive, is_primary;
    struct flw_context *main; /* of a green one: the primary context; otherwise NULL */
    unsigned flags;
    size_t limit[FLW_LIMIT_COUNT];
    CUfunc_cache cache_config; /* a preference without effect */
    CUresult sticky;           /* result of every later call of the context */
    struct flw_stream *legacy;
    struct flw_stream *streams;             /* all streams, including the legacy one */
    uint64_t max_done_ns, blocking_done_ns; /* FLW_SIM_CLOCK */
    unsigned capture_count;                 /* the streams that are being captured */
    uint64_t *peers; /* ids of contexts with allocations that this context may access */
    unsigned peer_count, peer_capacity;
    struct flw_context *next; /* of the world, including dead ones: a thread may still hold one */
};

struct flw_thread {
    struct flw_thread *next;
    uint64_t generation; /* of the world that set the other fields */
    struct flw_context **stack;
    unsigned depth, capacity;
    CUstreamCaptureMode capture_mode;
    bool is_in_callback;        /* in a host function: the lock is free */
    bool is_in_twin;            /* in a kernel: this thread holds the lock */
    struct flw_stream *streams; /* the per-thread default streams, one per context */
};

struct flw_fault {
    unsigned entry; /* FLW_FAULT_ANY: any */
    uint64_t left;  /* calls until the failure */
    CUresult error;
    bool is_sticky;
    bool repeats;    /* and every later call, until cleared, without a broken context */
    bool is_lasting; /* a profile's: never cleared */
};

/* A point in one stream's order: everything of `slot` up to `sequence`. */
struct flw_position {
    uint32_t slot;
    uint64_t sequence;
    uint64_t done_ns; /* FLW_SIM_CLOCK */
};

/* A stream's place in the order of all work. It outlives the stream until all the stream's work is
 * complete and observed.  INVARIANT completed <= submitted */
struct flw_slot {
    uint64_t submitted, completed;
    uint64_t stream_id, context_id;
    bool is_taken;
};

/* For each slot, the last operation that is known to precede. */
struct flw_order_clock {
    uint64_t *at;
    uint32_t count;
};

struct flw_world {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct flw_sim_config config;
    struct flw_profile profile;    /* the effects on config and fault are already applied */
    bool is_ready, is_initialised; /* has defaults; cuInit was called */
    bool is_orphan; /* of a process that forked after cuInit: no call works until a reset */
    uint64_t generation;
    uint64_t clock_ns, random, next_id;
    uint64_t asked_handle, asked_at_call, asked_count; /* consecutive results of "not ready"
                                                           for one handle */
    uint64_t host_wait_count, host_wait_ns,
        waited_at_call; /* FLW_SIM_CLOCK; the last call that waited */
    struct flw_device device[FLW_DEVICE_MAX];
    struct flw_context *contexts;
    struct flw_thread *threads;
    struct flw_table context_table, stream_table, event_table, handle_table, pool_table,
        graph_table, executable_table, module_table, function_table;
    uint64_t context_count;

    struct flw_space space;
    struct flw_tree regions, mappings; /* by address */
    uint64_t region_version;           /* counts changes that remove memory or access */
    struct flw_region *freed_regions;  /* in stream order, and not yet found complete */
    uint64_t pinned_bytes, reserved_address_bytes, mapping_count;
    struct flw_physical *physicals;
    uint64_t fabric_count; /* requested handles for fabric; counted if some are refused */

    struct flw_slot *slot;
    uint32_t slot_count, slot_capacity;
    uint32_t vacant_slot_count; /* without a stream */
    struct flw_stream **active; /* with operations waiting */
    uint32_t active_count, active_capacity;
    struct flw_order_clock host_clock; /* work that the host has observed as complete */
    uint64_t host_version;
    uint64_t stream_wait_ns;
    struct flw_operation *due; /* FLW_SIM_CLOCK: host functions by time */
    struct flw_capture *captures;
    struct flw_memory_pool *pools;

    uint64_t calls[FLW_ENTRY_COUNT], call_count, modelled_host_ns;
    struct flw_fault fault[FLW_FAULT_MAX];
    unsigned fault_count;

    char **violation;
    uint64_t violation_count, violation_kept_count, violation_capacity;
    struct flw_checker *checker;
    struct flw_tree names;
};

extern struct flw_world flw_world;

/* Requirements of a call. */
enum {
    FLW_CALL_PLAIN = 0,
    FLW_CALL_BEFORE_INIT = 1, /* works before cuInit */
    FLW_CALL_CONTEXT = 2,     /* needs a current context without a sticky error */
    FLW_CALL_UNSAFE = 4,      /* "potentially unsafe" during a capture */
    FLW_CALL_SILENT = 8,      /* not from the list: neither counted nor failed */
    FLW_CALL_VMM = 16,
    FLW_CALL_POOLS = 32,
    FLW_CALL_IDS = 64,
    FLW_CALL_IN_CALLBACK = 128, /* pure lookup: also works inside a host function */
    /* any of these: returns the current context's sticky error */
    FLW_CALL_WORK = FLW_CALL_CONTEXT | FLW_CALL_UNSAFE | FLW_CALL_VMM | FLW_CALL_POOLS
};

struct flw_call {
    struct flw_thread *thread;
    struct flw_context *context; /* with FLW_CALL_CONTEXT */
    struct flw_stream *stream;   /* with flw_stream_enter */
    struct flw_device *device;   /* with flw_device_enter */
};

/* Enter a call; always takes the lock. Any result except CUDA_SUCCESS must be returned; leave
 * releases the lock in any case. */
CUresult flw_call_enter(struct flw_call *call, enum flw_entry entry, unsigned needs);
void flw_call_leave(struct flw_call *call);

/* Return at once if a step fails. */
#define FLW_TRY(step)                  \
    do {                               \
        CUresult refusal = (step);     \
        if (refusal != CUDA_SUCCESS) { \
            return refusal;            \
        }                              \
    } while (0)

/* Return an error at once for a wrong argument. */
#define FLW_REFUSE_IF(is_wrong, error) FLW_TRY((is_wrong) ? (error) : CUDA_SUCCESS)

/* The frame of an entry point: `call` is valid from here on, under the lock until the block ends
 * by any return, unless the call may not run. */
#define FLW_FRAME(enter)                                           \
    struct flw_call call __attribute__((cleanup(flw_call_leave))); \
    FLW_TRY(enter)
#define FLW_CALL(symbol, needs) FLW_FRAME(flw_call_enter(&call, FLW_ENTRY_##symbol, needs))
#define FLW_CALL_ON_DEVICE(symbol, needs, device) \
    FLW_FRAME(flw_device_enter(&call, FLW_ENTRY_##symbol, needs, device))
#define FLW_CALL_ON_STREAM(symbol, needs, stream) \
    FLW_FRAME(flw_stream_enter(&call, FLW_ENTRY_##symbol, needs, stream))

void flw_world_make_ready(void);
void flw_world_reset(const struct flw_sim_config *config);
struct flw_thread *flw_thread_get(void);
void flw_thread_forget_all(void);
uint64_t flw_world_random(void);
static inline bool flw_world_runs_on_clock(void)
{
    return flw_world.config.schedule == FLW_SIM_CLOCK;
}
static inline bool flw_world_is_mild(uint32_t bit)
{
    return (flw_world.config.mild & bit) != 0;
}

/* context.c */
/* Return the calling thread's current context; NULL with the error to return. */
struct flw_context *flw_context_current(struct flw_thread *thread, CUresult *error);
struct flw_context *flw_context_find(CUcontext handle);
/* Return the owner of the context's memory: a green context has none. */
static inline struct flw_context *flw_context_owner(struct flw_context *context)
{
    return context->main != NULL ? context->main : context;
}
/* Return the next part of the context's work: including green contexts. NULL begins and ends. */
struct flw_context *flw_context_next_part(struct flw_context *whole, struct flw_context *after);
/* True if a stream of any part is being captured. */
bool flw_context_is_capturing(struct flw_context *context);
/* True if work of the context may access cuMemAlloc memory of the other context. */
bool flw_context_reaches(const struct flw_context *context, const struct flw_context *other);
CUgreenCtx flw_context_green(const struct flw_context *context); /* NULL: not a green context */
void flw_context_finish_all(void);
/* Record a device error, which persists in the context unless the rule is off. */
void flw_context_break(struct flw_context *context, CUresult error);

/* device.c */
struct flw_device *flw_device_find(CUdevice device);
/* True if work of `device` can use memory of the other one. */
bool flw_device_reaches(CUdevice device, CUdevice other);
/* flw_call_enter for a call on one device: call->device is set if the result is CUDA_SUCCESS. */
CUresult flw_device_enter(struct flw_call *call, enum flw_entry entry, unsigned needs,
                          CUdevice device);

/* fault.c */
/* Return the error that the call must return, or CUDA_SUCCESS. */
CUresult flw_fault_strike(struct flw_thread *thread, enum flw_entry entry);
/* entry.c */
/* FLW_ENTRY_COUNT: no such entry. */
unsigned flw_entry_find(const char *name);
/* Find an error by name, with or without "CUDA_ERROR_"; false: no such error. */
bool flw_error_find(const char *name, size_t length, CUresult *error);

/* latency.c: add the modelled cost of a call. */
void flw_latency_add(enum flw_entry entry);
void flw_latency_add_bytes(enum flw_entry entry, uint64_t bytes);

#endif

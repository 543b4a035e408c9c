/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the simulated world: its one lock, its devices, contexts, threads and counters, and the two
 * brackets (enter, leave) that every driver call runs between.
 * Does not: order work (order.h) or hold memory (storage.h).
 *
 * Synchronization: everything below hangs off flw_world and is guarded by flw_world.lock. The lock
 * is dropped only where a host function runs and where a call waits for one; what was looked up
 * before such a point is looked up again after it.
 */
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

#define FLW_DEVICE_MAX  16
#define FLW_GRANULARITY (2ull << 20) /* of physical memory */
#define FLW_PAGE        4096ull
#define FLW_FAULT_MAX   64
#define FLW_FAULT_ANY   FLW_ENTRY_COUNT

struct flw_stream;
struct flw_capture;
struct flw_memory_pool;
struct flw_region;

struct flw_device {
    int ordinal;
    uint64_t given_bytes, peak_given_bytes;
    uint64_t total_given_bytes; /* ever */
    uint64_t allocation_count;
    struct flw_context *primary;
    unsigned primary_retain_count;
    unsigned primary_flags;
    uint64_t max_done_ns; /* FLW_SIM_CLOCK: when the last of its work is done */
    struct flw_memory_pool *default_pool, *current_pool;
};

struct flw_context {
    CUcontext handle;
    uint64_t id; /* never used twice */
    struct flw_device *device;
    bool is_alive, is_primary;
    struct flw_context *main; /* of a green one: the primary one that it is a part of; else NULL */
    unsigned flags;
    CUresult sticky; /* every later call of the context answers this */
    struct flw_stream *legacy;
    struct flw_stream *streams;             /* all of them, legacy included */
    uint64_t max_done_ns, blocking_done_ns; /* FLW_SIM_CLOCK */
    unsigned capture_count;                 /* streams of it that are capturing */
    uint64_t *peers; /* ids of contexts with allocations that this context may access */
    unsigned peer_count, peer_capacity;
    struct flw_context *next; /* of the world, dead ones too: a thread may still hold one */
};

struct flw_thread {
    struct flw_thread *next;
    uint64_t generation; /* of the world that filled the rest */
    struct flw_context **stack;
    unsigned depth, capacity;
    CUstreamCaptureMode capture_mode;
    bool is_in_callback;        /* a host function: the lock is free */
    bool is_in_twin;            /* a kernel: this thread holds the lock */
    struct flw_stream *streams; /* its per-thread default streams, one a context */
};

struct flw_fault {
    unsigned entry; /* FLW_FAULT_ANY: any */
    uint64_t left;  /* calls until it strikes */
    CUresult error;
    bool is_sticky;
    bool repeats;    /* and every later call, until it is cleared: nothing is broken by it */
    bool is_lasting; /* a profile's: no control clears it */
};

/* A point in one stream's order: everything of `slot` up to `sequence`. */
struct flw_position {
    uint32_t slot;
    uint64_t sequence;
    uint64_t done_ns; /* FLW_SIM_CLOCK */
};

/* A stream's place in the order of all work. It outlives the stream until what the stream was given
 * is complete and known to be.  INVARIANT completed <= submitted */
struct flw_slot {
    uint64_t submitted, completed;
    uint64_t stream_id, context_id;
    bool is_taken;
};

/* For each slot the last operation that is known to come before. */
struct flw_order_clock {
    uint64_t *at;
    uint32_t count;
};

struct flw_world {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct flw_sim_config config;
    struct flw_profile profile;    /* what it makes of config and fault is in them already */
    bool is_ready, is_initialised; /* has defaults; cuInit was called */
    bool is_orphan; /* of a process that forked after cuInit: no call works until a reset */
    uint64_t generation;
    uint64_t clock_ns, random, next_id;
    uint64_t asked_handle, asked_at_call, asked_count; /* "not ready" in a row for one handle */
    uint64_t host_wait_count, host_wait_ns,
        waited_at_call; /* FLW_SIM_CLOCK; the last that waited */
    struct flw_device device[FLW_DEVICE_MAX];
    struct flw_context *contexts;
    struct flw_thread *threads;
    struct flw_table context_table, stream_table, event_table, handle_table, pool_table,
        graph_table, executable_table, module_table, function_table;
    uint64_t context_count;

    struct flw_space space;
    struct flw_tree regions, mappings; /* by address */
    uint64_t region_version;           /* counts changes that take memory or access away */
    struct flw_region *freed_regions;  /* in stream order, and not found done yet */
    uint64_t pinned_bytes, reserved_address_bytes, mapping_count;
    struct flw_physical *physicals;
    uint64_t
        fabric_count; /* handles for fabric that were asked for; counted where some are refused */

    struct flw_slot *slot;
    uint32_t slot_count, slot_capacity;
    uint32_t vacant_slot_count; /* those that no stream has */
    struct flw_stream **active; /* with operations waiting */
    uint32_t active_count, active_capacity;
    struct flw_order_clock host_clock; /* what the host has seen complete */
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

/* What a call needs before it may run. */
enum {
    FLW_CALL_PLAIN = 0,
    FLW_CALL_BEFORE_INIT = 1, /* works before cuInit */
    FLW_CALL_CONTEXT = 2,     /* needs a current context without a sticky error */
    FLW_CALL_UNSAFE = 4,      /* "potentially unsafe" while something is captured */
    FLW_CALL_SILENT = 8,      /* not from the list: neither counted nor failed */
    FLW_CALL_VMM = 16,
    FLW_CALL_POOLS = 32,
    FLW_CALL_IDS = 64,
    FLW_CALL_IN_CALLBACK = 128, /* pure lookup: works inside a host function too */
    /* any of these: answers the current context's sticky error */
    FLW_CALL_WORK = FLW_CALL_CONTEXT | FLW_CALL_UNSAFE | FLW_CALL_VMM | FLW_CALL_POOLS
};

struct flw_call {
    struct flw_thread *thread;
    struct flw_context *context; /* with FLW_CALL_CONTEXT */
    struct flw_stream *stream;   /* with flw_stream_enter */
    struct flw_device *device;   /* with flw_device_enter */
};

/* Takes the lock, always. Anything but CUDA_SUCCESS is the answer; leave drops the lock in any case. */
CUresult flw_call_enter(struct flw_call *call, enum flw_entry entry, unsigned needs);
void flw_call_leave(struct flw_call *call);

/* Answer at once what a step refuses. */
#define FLW_TRY(step)                  \
    do {                               \
        CUresult refusal = (step);     \
        if (refusal != CUDA_SUCCESS) { \
            return refusal;            \
        }                              \
    } while (0)

/* Answer at once what the call was given wrong. */
#define FLW_REFUSE_IF(is_wrong, error) FLW_TRY((is_wrong) ? (error) : CUDA_SUCCESS)

/* The frame of an entry point: `call` from here on, under the lock until its block is left by whichever
 * return, unless the call may not run. */
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
/* The calling thread's current context; NULL with the error to answer. */
struct flw_context *flw_context_current(struct flw_thread *thread, CUresult *error);
struct flw_context *flw_context_find(CUcontext handle);
/* Whose the memory is that it allocates: a green context has none of its own. */
static inline struct flw_context *flw_context_owner(struct flw_context *context)
{
    return context->main != NULL ? context->main : context;
}
/* What counts as the context's work: its own, and that of its green contexts. NULL begins; NULL ends. */
struct flw_context *flw_context_next_part(struct flw_context *whole, struct flw_context *after);
/* A stream of any part is capturing. */
bool flw_context_is_capturing(struct flw_context *context);
/* True if work of the context may access cuMemAlloc memory of the other context. */
bool flw_context_reaches(const struct flw_context *context, const struct flw_context *other);
CUgreenCtx flw_context_green(const struct flw_context *context); /* NULL: it is none */
void flw_context_finish_all(void);
/* A device error: it sticks to the context unless the rule is off. */
void flw_context_break(struct flw_context *context, CUresult error);

/* device.c */
struct flw_device *flw_device_find(CUdevice device);
/* Can work of `device` use memory of the other one? */
bool flw_device_reaches(CUdevice device, CUdevice other);
/* flw_call_enter for a call on one device: it is call->device where the answer is CUDA_SUCCESS. */
CUresult flw_device_enter(struct flw_call *call, enum flw_entry entry, unsigned needs,
                          CUdevice device);

/* fault.c */
/* The error that the call must answer, or CUDA_SUCCESS. */
CUresult flw_fault_strike(struct flw_thread *thread, enum flw_entry entry);
/* entry.c */
/* FLW_ENTRY_COUNT: no such entry. */
unsigned flw_entry_find(const char *name);
/* By its name, with "CUDA_ERROR_" before it or without; false: no such error. */
bool flw_error_find(const char *name, size_t length, CUresult *error);

/* latency.c: add what a call would have cost. */
void flw_latency_add(enum flw_entry entry);
void flw_latency_add_bytes(enum flw_entry entry, uint64_t bytes);

#endif

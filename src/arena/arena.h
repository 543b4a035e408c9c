/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: an arena: the scratch block, the persistent regions, the one lease, and the streams with work that may still use
 * that memory.
 * Does not: place regions (layout.h), launch kernels.
 *
 * INVARIANTS
 *   1. scratch_bytes > 0 <=> scratch is a block of the pool. Either `growable` has that block, or `growable` is empty.
 *   2. At most one lease is open; `state` is LEASED or DOOMED then, and a look-up of lease_handle finds the arena.
 *      AWAITED is set <=> `waiters` is not empty, and never with IDLE. The arena holds a reference to lease.layout until
 *      a begin with another layout. scratch and last_persistent do not change while a lease is open.
 *   3. A binding has the address of each persistent region of the layout, by index; NULL for scratch regions. When a
 *      region moves, all bindings are freed.
 *   4. All work outside of captures that uses the arena's memory is ordered before any later work on one of the streams
 *      of `last` and `debts`. Blocks are allocated on the stream of `last`.
 *   5. If FLW_ARENA_LOOKS_AT_ORDER is not set and order_changes is the pool's, `last` covers all that work and
 *      debt_count is 0.
 *   6. last_layout_id is 0; or scratch fits that layout, and last_persistent has the addresses of the layout's
 *      persistent regions, which hold their values.
 * Synchronization: a thread claims `state` by compare-and-swap before any other access. Only the claimant reads and
 * writes the other fields, except the statistics (relaxed), and `message` and `waiters` (`lock`). While a lease is open,
 * any thread that has the lease's handle may act as the claimant.
 */
#ifndef FLW_ARENA_ARENA_H
#define FLW_ARENA_ARENA_H

#include <pthread.h>
#include <stdatomic.h>

#include "arena/layout.h"
#include "base/wakeup.h"
#include "heap/physical/physical.h"
#include "pool/pool.h"

enum flw_arena_state {
    FLW_ARENA_IDLE,
    FLW_ARENA_LEASED,
    FLW_ARENA_AT_WORK, /* in a call without a lease: lock, trim, ... */
    FLW_ARENA_DOOMED,  /* leased, and destroyed when the lease ends */
    FLW_ARENA_AWAITED  /* a flag added to LEASED or AT_WORK */
};

/* A waiting begin, on the stack of the thread. */
struct flw_arena_waiter {
    struct flw_arena_waiter *next; /* began to wait later */
    struct flw_wakeup wakeup;      /* count 1: the arena is LEASED for this begin */
};

/* Bits of fallow_arena.looks. */
enum {
    FLW_ARENA_LOOKS_AT_ORDER = 1, /* `last` does not cover all work, or may name another stream */
    FLW_ARENA_LOOKS_FOR_CAPTURES = 2 /* captures may be unannounced: query the driver */
};

/* A stream with queued work that may use the arena's memory. */
struct flw_arena_mark {
    struct flw_domain *domain; /* NULL: none */
    uint64_t stream_number;    /* of the domain; differs once the domain serves another stream */
    uint64_t seq; /* of a fence that covers the mark; 0: none recorded, covers all work so far */
    fallow_stream stream;
};

/* A capture that leased and was not seen released. */
struct flw_arena_pin {
    const fallow_capture *capture;
    struct flw_arena_mark origin; /* the stream where the capture began */
    size_t bytes;                 /* of scratch that the graphs use */
};

/* A region that keeps address and contents. */
struct flw_persistent {
    struct flw_persistent *next;
    fallow_region region; /* description; size_bytes: of the block, kept after the block is freed */
    char name[FLW_ARENA_NAME_MOST + 1];
    void *address; /* NULL: trimmed */
    bool holds_values;
};

/* The addresses of a layout's persistent regions. */
struct flw_binding {
    struct flw_binding *next; /* less recently used */
    uint64_t layout_id;
    bool holds_values; /* every region holds the values */
    void *addresses[];
};

/* The one lease, or the last one. */
struct flw_lease {
    const fallow_layout *layout;   /* NULL: no lease yet */
    fallow_stream stream;          /* given to begin */
    const fallow_capture *capture; /* the lease began in; NULL: none */
    bool is_guarded;               /* uses guarded_offset: red zones */
};

/* Callers hold the handle `self`, never this address. */
struct fallow_arena {
    /* Read by a begin in steady state. */
    atomic_int state;
    unsigned looks; /* FLW_ARENA_LOOKS_ bits: further checks that a begin must make */
    fallow_pool *handle;
    struct flw_pool *pool;
    unsigned char *scratch;
    uint64_t last_layout_id; /* fits scratch; the persistent regions are last_persistent; 0: none */
    void *const *last_persistent;
    struct flw_arena_mark last;
    uint64_t order_changes; /* of the pool, when `last` was set */
    uint64_t sleep_serial;  /* of the pool's last sleep that the arena noticed */
    _Atomic uint64_t lease_count;
    void *lease_handle; /* of the open or the last lease */
    struct flw_lease lease;

    fallow_arena *self;
    struct flw_growable growable; /* scratch that grows in place */
    size_t scratch_bytes;
    size_t least_bytes;  /* of the first scratch block */
    size_t budget_bytes; /* the most that all blocks may have together; SIZE_MAX: no budget */
    struct flw_arena_pin *pins;
    struct flw_arena_mark *debts; /* streams of captures released since, beside `last` */
    size_t pin_room, debt_room, debt_count;
    _Atomic size_t pin_count; /* relaxed; read by statistics */
    struct {
        const fallow_capture *capture; /* NULL: none */
        fallow_stream stream;
    } captured;    /* the last end inside a capture */
    CUevent event; /* made at the first begin on another stream of one capture */
    struct flw_persistent *persistent;
    struct flw_binding *bindings;
    uint32_t tag, checks;
    atomic_bool has_budget; /* relaxed; read by statistics */
    bool asks_captures;
    fallow_wake_function wake;
    void *wake_context;
    struct flw_arena_check *check; /* NULL: no checks */

    _Atomic uint64_t grow_count, wait_count, init_count, refuse_count, damage_count,
        unwritten_count, generation, held_scratch_bytes, held_persistent_bytes;
    fallow_log_function log;
    void *log_context;
    char name[FLW_ARENA_NAME_MOST + 1];
    pthread_mutex_t lock;             /* message, waiters */
    struct flw_arena_waiter *waiters; /* in the order of their calls */
    char message[512];
};

/* Arenas of a process at one time. */
#define FLW_ARENAS_MOST FLW_HANDLE_PLACES_MOST

/* ---- arena.c */

extern struct flw_handle_place flw_arena_places[FLW_ARENAS_MOST];
/* Return the arena of a handle; NULL: destroyed, or not a handle of an arena. */
static inline fallow_arena *flw_arena_of(const fallow_arena *handle)
{
    return flw_places_find(flw_arena_places, FLW_ARENAS_MOST, handle);
}
/* Move an idle arena to the state `to`. Returns false, after a refusal with BUSY, if the arena is not idle. */
bool flw_arena_claim(fallow_arena *arena, enum flw_arena_state to);
/* Move the arena to LEASED after all begins that wait already. Waits up to wait_ms; UINT32_MAX: no limit. Returns false,
 * after a refusal with BUSY, at the limit. */
bool flw_arena_claim_in_turn(fallow_arena *arena, uint32_t wait_ms);
/* Release the claim, or pass it to the first waiter. Frees a doomed arena. */
void flw_arena_release_claim(fallow_arena *arena);
/* Replace *arena, a caller's handle, with the arena, claimed for work. If this fails nothing is claimed. */
fallow_status flw_arena_enter(fallow_arena **arena);

/* Log a sentence and keep it as the last error. flw_arena_refuse also counts a refusal, and returns `status`. */
fallow_status flw_arena_refuse(fallow_arena *arena, fallow_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void flw_arena_say(fallow_arena *arena, fallow_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Allocate a block with the arena's tag. */
fallow_status flw_arena_take(fallow_arena *arena, size_t bytes, size_t align_bytes,
                             fallow_stream stream, void **out_block);
/* Get scratch of so many bytes. If *growable has a block, grow it in place, or change nothing: NOT_SUPPORTED if the
 * addresses do not suffice. Otherwise allocate a block, growable if the pool supports that. */
fallow_status flw_arena_take_scratch(fallow_arena *arena, struct flw_growable *growable,
                                     size_t bytes, size_t align_bytes, fallow_stream stream,
                                     void **out_block);
/* Unmap growable scratch beyond so many bytes (1 or more). No work may use the rest. */
fallow_status flw_arena_cut_scratch(fallow_arena *arena, size_t bytes, fallow_stream stream);
/* Free a block after all work that may use it. If flw_arena_await_all would fail, the block stays allocated until the
 * pool is destroyed. */
void flw_arena_free_block(fallow_arena *arena, void *block);
void flw_arena_free_scratch(fallow_arena *arena);

/* ---- arena_order.c */

/* If this differs from arena->order_changes, `last` may name another stream or no longer cover all work. */
static inline uint64_t flw_arena_order_changes(const fallow_arena *arena)
{
    return atomic_load_explicit(&arena->pool->heap.count.order_changes, memory_order_acquire);
}

/* True if work on the stream is ordered after all work that uses the arena. Does not detect unannounced captures. */
static inline bool flw_arena_is_in_order(const fallow_arena *arena, fallow_stream stream)
{
    const struct flw_pool *pool = arena->pool;
    return (arena->looks & FLW_ARENA_LOOKS_AT_ORDER) == 0 && arena->last.stream == stream &&
           atomic_load_explicit(&pool->open_captures, memory_order_acquire) == 0 &&
           arena->order_changes == flw_arena_order_changes(arena) && !flw_heap_is_lost(&pool->heap);
}
/* True if captures may be unannounced and must be queried. If a plug-in can, announce the capture of the stream. */
bool flw_arena_looks_for_captures(fallow_arena *arena, fallow_stream stream);
/* True if flw_arena_is_in_order and, with `looks`, the driver reports no capture. */
bool flw_arena_is_known_in_order(fallow_arena *arena, fallow_stream stream, bool looks);
/* Note that `last` covers all work and is this mark. changes: flw_arena_order_changes, read before the ordering. */
void flw_arena_note_order(fallow_arena *arena, const struct flw_arena_mark *mark, uint64_t changes,
                          bool looks);

/* Return the mark of a stream. The domain is NULL, with a status, if the driver refuses the stream. */
struct flw_arena_mark flw_arena_mark_of(fallow_arena *arena, fallow_stream stream,
                                        fallow_status *status);
/* Order later work of the stream after `last` and the debts, and make the stream `last`. CAPTURING, with *why: not
 * possible before a capture has ended. */
fallow_status flw_arena_order(fallow_arena *arena, const struct flw_arena_mark *stream,
                              const char **why);
/* Give scratch back to the pool, where it waits for `last` and the debts; records no order. The caller replaces the
 * scratch. Returns false if nothing changed. */
bool flw_arena_leave_scratch(fallow_arena *arena, fallow_stream stream);
/* Order a lease of a capture after the last one of that capture, if that was on another stream. */
fallow_status flw_arena_order_captured(fallow_arena *arena, fallow_stream stream,
                                       const fallow_capture *capture);
/* Record a fence now, for a stream that cannot be recorded on later. */
void flw_arena_fence_now(fallow_arena *arena, struct flw_arena_mark *mark);
/* True if this thread may pass the mark's stream to the driver. */
bool flw_arena_can_name(fallow_arena *arena, const struct flw_arena_mark *mark);
/* Wait on the host until the present work of the mark's stream is complete. CAPTURING: a capture prevents that;
 * DRIVER: the driver refuses. OK on a lost device. */
fallow_status flw_arena_await(fallow_arena *arena, const struct flw_arena_mark *mark);
/* The same for `last` and the debts; spares_named: except streams that this thread may name. */
fallow_status flw_arena_await_all(fallow_arena *arena, bool spares_named);

/* Turn pins of released captures into debts. Returns true if pins are left. */
bool flw_arena_is_pinned(fallow_arena *arena);
/* Return the number of pins: captures with graphs that hold the arena's addresses. */
size_t flw_arena_graph_count(const fallow_arena *arena);
/* Pin the arena for a capture with graphs that use so many bytes of scratch. */
fallow_status flw_arena_pin(fallow_arena *arena, const fallow_capture *capture, size_t bytes);
/* Turn all pins into debts, before the arena is freed. */
void flw_arena_forget_pins(fallow_arena *arena);

/* ---- persist.c */

/* Check whether the layout's persistent regions can be provided. A refusal changes nothing. */
fallow_status flw_arena_check_persistent(fallow_arena *arena, const fallow_layout *layout,
                                         const fallow_capture *capture);
/* Return the addresses of the layout's persistent regions. Allocates and binds those that are missing. */
fallow_status flw_arena_bind(fallow_arena *arena, const fallow_layout *layout, fallow_stream stream,
                             void *const **out_addresses);
/* Return true, and the addresses, if no region of the layout must be allocated or initialised. */
bool flw_arena_find_bound(fallow_arena *arena, const fallow_layout *layout,
                          void *const **out_addresses);
/* Mark all regions as without values. */
void flw_arena_lose_values(fallow_arena *arena);
/* Initialise the regions of `layout` (NULL: all) that have no values. Driver calls. */
fallow_status flw_arena_wake(fallow_arena *arena, const fallow_layout *layout,
                             fallow_stream stream);
/* Return the bytes of all persistent regions once those of the layout (NULL: none) are allocated. */
size_t flw_arena_persistent_bytes(const fallow_arena *arena, const fallow_layout *layout);
bool flw_arena_must_wake(const fallow_arena *arena);
bool flw_arena_has_persistent(const fallow_arena *arena);
/* Mark all regions as without values if the pool has slept since the last call and not kept the arena's tag.
 * ASLEEP: the pool is asleep. */
fallow_status flw_arena_notice_sleep(fallow_arena *arena);
/* Free the blocks of all persistent regions; keep their descriptions. */
void flw_arena_trim_persistent(fallow_arena *arena);
void flw_arena_free_persistent(fallow_arena *arena);

/* ---- lease.c */

/* Return the arena of a lease's handle; NULL if the lease is not open. */
fallow_arena *flw_lease_arena(const fallow_lease *lease);
/* Take a place for the handles of the arena's leases; false: none is left. Free it when no lease is open. */
bool flw_lease_take_place(fallow_arena *arena);
void flw_lease_free_place(fallow_arena *arena);

/* ---- lease_check.c */

fallow_status flw_arena_check_create(fallow_arena *arena);
void flw_arena_check_destroy(fallow_arena *arena);
size_t flw_arena_needed_bytes(const fallow_arena *arena, const fallow_layout *layout);
/* At begin, name the regions for the simulated device, fill scratch with poison, mark all as unwritten and fill the
 * red zones; in a capture only name. At end, compare, fill poison again and forbid access. */
void flw_arena_check_begin(fallow_arena *arena);
void flw_arena_check_end(fallow_arena *arena, const struct flw_arena_mark *end);
/* Report uses of scratch since the last lease ended, then allow access again. Called before a lease outside of captures
 * and before a launch on `stream`. */
void flw_arena_check_between(fallow_arena *arena, fallow_stream stream);
/* Allow access to scratch again. */
void flw_arena_check_allow(fallow_arena *arena);
/* Allow access and remove the names, before scratch returns to the pool. */
void flw_arena_check_release(fallow_arena *arena);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: an arena: its scratch block, its persistent regions, the state of its one lease, and what it
 * remembers of the last one.
 * Does not: place regions (layout.h), know kernels.
 *
 * INVARIANTS
 *   1. scratch_bytes > 0 exactly where scratch is a block of the pool; nobody else knows it.
 *   2. At most one lease is open; `state` is FLW_ARENA_LEASED then.
 *   3. A binding's addresses are those of the persistent regions of its layout, by index; NULL for
 *      scratch ones.
 * Synchronization: `state` is taken by compare-and-swap before anything else is looked at or changed; its
 * holder alone reads and writes every other field but the statistics (relaxed) and `message` (`lock`).
 */
#ifndef FLW_ARENA_ARENA_H
#define FLW_ARENA_ARENA_H

#include <pthread.h>
#include <stdatomic.h>

#include "arena/layout.h"
#include "pool/pool.h"

enum flw_arena_state {
    FLW_ARENA_IDLE,
    FLW_ARENA_LEASED,
    FLW_ARENA_AT_WORK /* in a call that is no lease: lock, trim, ... */
};

/* A region that keeps address and contents. */
struct flw_persistent {
    struct flw_persistent *next;
    char name[64];
    void *address;
    size_t bytes;
    bool holds_values;
};

/* What a layout's persistent regions are, found once. */
struct flw_binding {
    struct flw_binding *next;
    uint64_t layout_id;
    void *addresses[];
};

/* Leases take turns, so that a handle that has ended is told from the one that is open. */
#define FLW_LEASE_TURNS 16

struct fallow_lease {
    struct fallow_arena *arena;
    const fallow_layout *layout;
    unsigned char *base; /* of scratch; NULL: ended */
    void *const *persistent;
    fallow_stream end_stream;
    atomic_int references;  /* the owner's and one an export; 0: ended */
    _Atomic bool has_ended; /* by its owner; exports may hold it open */
    bool is_guarded;        /* offsets with zones */
};

struct fallow_arena {
    /* What a begin in steady state reads. */
    atomic_int state;
    struct flw_pool *pool;
    unsigned char *scratch;
    size_t scratch_bytes;
    fallow_stream last_stream; /* of the last lease's end */
    uint64_t last_layout_id;
    void *const *last_persistent;
    bool is_plain; /* nothing but the order and the size is to be looked at */
    bool has_last; /* last_stream means something */
    unsigned turn;
    _Atomic uint64_t lease_count;

    fallow_pool *handle;
    uint64_t last_capture;    /* serial of the capture that the last lease was in; 0 none */
    uint64_t *pins;           /* serials of captures that leased */
    _Atomic size_t pin_count; /* relaxed; statistics read it */
    size_t pin_room;
    CUevent event; /* made at the first begin on another stream */
    struct flw_persistent *persistent;
    struct flw_binding *bindings;
    size_t least_bytes; /* of the first scratch block */
    uint32_t tag, checks;
    atomic_bool is_locked; /* relaxed; statistics read it */
    fallow_wake_function wake;
    void *wake_context;
    struct flw_arena_check *check; /* NULL: no checks */
    struct fallow_lease leases[FLW_LEASE_TURNS];

    _Atomic uint64_t grow_count, wait_count, init_count, refuse_count, damage_count,
        unwritten_count, generation, held_scratch_bytes, held_persistent_bytes;
    fallow_log_function log;
    void *log_context;
    char name[64];
    pthread_mutex_t lock; /* message */
    char message[256];
};

/* Idle to `to`; false: BUSY, said. */
bool flw_arena_claim(fallow_arena *arena, enum flw_arena_state to);
void flw_arena_settle(fallow_arena *arena);

/* Keep and log a sentence; returns `status`. */
fallow_status flw_arena_refuse(fallow_arena *arena, fallow_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* One block from the pool with the arena's tag. */
fallow_status flw_arena_take(fallow_arena *arena, size_t bytes, fallow_stream stream,
                             void **out_block);

/* The scratch block back to the pool, in the order of the last lease's end. */
void flw_arena_free_scratch(fallow_arena *arena);

/* Is any capture that leased still unreleased? Forgets those that are not. */
bool flw_arena_is_pinned(fallow_arena *arena);

/* ---- persist.c */

/* The addresses of a layout's persistent regions, taken and bound where they are not yet. */
fallow_status flw_arena_bind(fallow_arena *arena, const fallow_layout *layout, fallow_stream stream,
                             uint64_t capture);
/* Make those of `layout` hold their values that do not. Driver calls. */
fallow_status flw_arena_wake(fallow_arena *arena, const fallow_layout *layout, fallow_stream stream,
                             uint64_t capture);
void flw_arena_free_persistent(fallow_arena *arena);

/* ---- lease.c */

/* Drop a reference; the last one ends the lease. */
void flw_lease_drop(fallow_lease *lease);

/* ---- lease_check.c */

fallow_status flw_arena_check_create(fallow_arena *arena);
void flw_arena_check_destroy(fallow_arena *arena);
size_t flw_arena_needed_bytes(const fallow_arena *arena, const fallow_layout *layout);
/* At begin: name, forget, poison, draw zones. At end: compare. `capture`: nothing is done. */
void flw_arena_check_begin(fallow_arena *arena, fallow_lease *lease, fallow_stream stream);
void flw_arena_check_end(fallow_arena *arena, fallow_lease *lease, fallow_stream stream);

#endif

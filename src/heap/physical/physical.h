/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: physical memory: acquiring and mapping it (grow.c), unmapping idle memory and releasing
 * handles and segments (shrink.c), sleep (sleep.c). A plan is made under the heap lock, which sets
 * the address range aside (state BUSY); the driver is called without the lock; the result is
 * published under it again. reserved_bytes is raised before the driver call, so the limit always
 * holds. The functions make driver calls unless a comment states otherwise. */
#ifndef FLW_HEAP_PHYSICAL_PHYSICAL_H
#define FLW_HEAP_PHYSICAL_PHYSICAL_H

#include "heap/state/state.h"

/* ---- growth */

/* A block that grows in place and the addresses reserved for that. Synchronization: the heap lock.
 * Only the owner, in one call at a time, changes the mapped size. The heap takes back the upper
 * half of a tail when addresses run out. INVARIANT  block is LIVE; tail is RESERVED, a page or
 * more, and begins where the block ends. */
struct flw_growable {
    struct flw_span *block; /* NULL: nothing is mapped yet */
    struct flw_span *tail;  /* NULL: no addresses are left */
};

struct flw_grow_request {
    struct flw_domain *domain; /* the run becomes LIVE for it */
    uint32_t unit_count;
    uint32_t align_units;
    uint64_t budget_bytes;         /* most reserved_bytes after new handles */
    uint64_t handle_bytes;         /* preferred size of a new handle; 0: the granularity */
    uint64_t ahead_bytes;          /* map at least this much if budget and hole allow */
    uint64_t beyond_bytes;         /* map this much more than the missing bytes */
    uint32_t handle_types;         /* exportable: one handle for this run alone */
    struct flw_growable *growable; /* grow this block, by whole pages; NULL: anywhere */
    bool is_single_handle;         /* one whole handle or segment for this run alone */
    bool is_dedicated;             /* with is_single_handle, or in context order: a dedicated run */
    bool is_exact;                 /* no more than the need */
    bool skips_backoff;            /* call the driver even after a refusal of this size */
};
/* Adopt the memory that the probe could not release: it is unmapped, allocated or released later.
 * Heap lock held; no other thread has the heap yet. */
void flw_heap_adopt_left(struct flw_heap *heap);
/* Create a mapped run: address space with the fewest missing pages, idle handles, new handles. If
 * the driver has no memory for more than the need, request only the need. OUT_OF_MEMORY: budget,
 * limit or the driver; DRIVER, NOT_SUPPORTED: the driver refused; WOULD_WAIT: it refused a similar
 * request and was not called now (refusal.h). After an error nothing has changed, except that
 * there may be more idle handles. */
fallow_status flw_heap_grow(struct flw_heap *heap, const struct flw_grow_request *request,
                            struct flw_span **out_run);
/* Reserve addresses for a block: most_bytes, halved while there is no room, but not below
 * least_bytes. The addresses are half of another block's tail, or part of a hole that keeps room
 * for other memory unless only least_bytes fit. OUT_OF_MEMORY: no addresses; NOT_SUPPORTED:
 * segments. */
fallow_status flw_growable_reserve(struct flw_heap *heap, uint64_t most_bytes, uint64_t least_bytes,
                                   struct flw_growable *out);
/* Put back the reserved addresses. The block, if any, becomes an ordinary block. Takes the heap
 * lock. */
void flw_growable_end(struct flw_heap *heap, struct flw_growable *growable);
/* Unmap handles from the block's end, which no work uses, down to keep_bytes (1 or more). Stops at
 * the first that the driver refuses to unmap. Returns the bytes unmapped; their handles are idle. */
uint64_t flw_growable_cut(struct flw_heap *heap, struct flw_growable *growable,
                          uint64_t keep_bytes);
/* True if the driver refused a new handle or segment of so many bytes, and created none since; 0:
 * the mapping of an existing one. Memory released to it would not come back. Takes the heap lock. */
bool flw_heap_refuses(struct flw_heap *heap, uint64_t bytes);
/* The same, and it should not be called now; this counts as a growth that was skipped. Takes the
 * heap lock. */
bool flw_heap_spares(struct flw_heap *heap, uint64_t bytes);
/* Let the next growth call the driver, because conditions have changed. Takes the heap lock. */
void flw_heap_forget_refusal(struct flw_heap *heap);

/* ---- releasing */

/* Unmap complete, idle memory (oldest first) until want_bytes are idle handles, or released if
 * they were dedicated runs' or exported; returns the bytes. Memory that the driver refuses to
 * unmap stays mapped and free. in_turn: each run gives one handle in turn, as with a single
 * stream; otherwise adjacent handles are cut at once, with fewer cuts and calls, but up to 4 %
 * more is held with drawn sizes. */
uint64_t flw_heap_unmap_idle(struct flw_heap *heap, uint64_t want_bytes, bool in_turn);
/* The same for the memory that a growth by the request lacks at the place where least is missing,
 * without the free memory there, which the growth is to join. 0: nothing, or it lacks nothing. */
uint64_t flw_heap_unmap_for(struct flw_heap *heap, const struct flw_grow_request *request);
/* Release idle handles or segments until reserved <= keep_bytes. Returns the bytes released;
 * memory that the driver refuses to take stays in the pool. For segments waits for the device
 * until until_ns (0: not at all), as flw_heap_await_idle does: segments stay while the device has
 * work. */
uint64_t flw_heap_release_idle(struct flw_heap *heap, uint64_t keep_bytes, uint64_t until_ns);
/* True if there is a segment that flw_heap_release_idle would release. Takes the heap lock. */
bool flw_heap_has_idle_segment(struct flw_heap *heap);
/* Release a LIVE dedicated run now; the caller guarantees that no work uses it. If the driver
 * refuses, the run moves to heap->unmap_only, which must exist. False: the device is lost. */
bool flw_heap_evict(struct flw_heap *heap, struct flw_span *run);
/* Release exported handles of blocks that are freed and complete; those that the driver refuses
 * stay for the next call. */
void flw_heap_release_exported(struct flw_heap *heap);
/* After a sleep, turn idle ranges without mappings into address space. Takes the heap lock. */
void flw_heap_forget_idle(struct flw_heap *heap);

/* ---- sleep. No other thread acquires, maps or releases memory meanwhile; blocks may be freed. */

/* Unmap and release everything except exported handles; the addresses stay reserved. DRIVER: as
 * before, with all contents. ASLEEP: undoing failed too; asleep with all of the memory and
 * contents. */
fallow_status flw_heap_sleep(struct flw_heap *heap);
/* Unmap all handles, exported ones optionally; addresses and handles stay. A refused handle stays
 * mapped and ends the call, or (`goes_on`) does not. Returns the last refusal. In a driver
 * section. */
CUresult flw_heap_unmap_all(struct flw_heap *heap, bool with_exported, bool goes_on);
/* Create and map all of the memory again. OUT_OF_MEMORY (*out_missing_bytes more are needed),
 * DRIVER: asleep as before. After OK the caller must call flw_heap_end_wake. */
fallow_status flw_heap_wake(struct flw_heap *heap, uint64_t *out_missing_bytes);
/* Finish a wake, or, if contents could not be restored, sleep again. */
fallow_status flw_heap_end_wake(struct flw_heap *heap, bool is_awake);
/* Run `set` over every mapped handle, in order. If one fails, run `undo` over those before it, as
 * far as the driver permits. */
typedef CUresult (*flw_heap_stretch_function)(struct flw_heap *heap, uint64_t address,
                                              uint64_t bytes, const void *context);
CUresult flw_heap_each_stretch(struct flw_heap *heap, flw_heap_stretch_function set,
                               flw_heap_stretch_function undo, const void *context);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: physical memory: getting and mapping it (grow.c), unmapping what lies idle and giving handles and
 * segments back (shrink.c), a sleep (sleep.c). Plans are made under the heap lock, which sets the address range
 * aside (state BUSY); the driver is called without it; the outcome is published under it again. reserved_bytes
 * is raised before the driver is asked, so the limit always holds. The functions make driver calls, but where a
 * comment says otherwise.
 */
#ifndef FLW_HEAP_PHYSICAL_PHYSICAL_H
#define FLW_HEAP_PHYSICAL_PHYSICAL_H

#include "heap/state/state.h"

/* ---- growth */

/* A block that grows in place and the addresses set aside for that. Synchronization: the heap lock. Only the owner, in
 * one call at a time, changes the mapped size. The heap takes back the upper half of a tail when addresses run out.
 * INVARIANT  block is LIVE; tail is RESERVED, a page or more, and begins where the block ends. */
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
    bool insists;                  /* call the driver even after a refusal of this size */
};
/* lock; no other thread has the heap yet. What the probe could not take back is the heap's: to be
 * unmapped, allocated or released when the driver lets it. */
void flw_heap_adopt_left(struct flw_heap *heap);
/* Make a mapped run: address space with the fewest missing pages, idle handles, new handles. Where the
 * driver has no memory for more than the need, it is asked for that alone.
 * OUT_OF_MEMORY: budget, limit or the driver; DRIVER, NOT_SUPPORTED: the driver refused; WOULD_WAIT: it
 * refused the like of it and was not asked now (refusal.h). Nothing changed then but that there may be more
 * idle handles. */
fallow_status flw_heap_grow(struct flw_heap *heap, const struct flw_grow_request *request,
                            struct flw_span **out_run);
/* calls. Set aside addresses for a block: most_bytes, halved while there is no room, but not below least_bytes. The
 * addresses are half of another block's tail, or part of a hole that keeps room for other memory unless only
 * least_bytes fit. OUT_OF_MEMORY: no addresses; NOT_SUPPORTED: segments. */
fallow_status flw_growable_reserve(struct flw_heap *heap, uint64_t most_bytes, uint64_t least_bytes,
                                   struct flw_growable *out);
/* takes the lock. Put back the addresses that were set aside. The block, if any, becomes an ordinary block. */
void flw_growable_end(struct flw_heap *heap, struct flw_growable *growable);
/* calls. Unmap handles from the block's end, which no work uses, down to keep_bytes (1 or more). Stops at the first that
 * the driver refuses to unmap. Returns the bytes unmapped; their handles are idle. */
uint64_t flw_growable_cut(struct flw_heap *heap, struct flw_growable *growable,
                          uint64_t keep_bytes);
/* takes the lock. Did the driver refuse a new handle or segment of so many bytes, and give none since; 0: the
 * mapping of one that is at hand. What goes back to it then does not come again. */
bool flw_heap_refuses(struct flw_heap *heap, uint64_t bytes);
/* takes the lock. And is it not to be asked for it now? This counts as one that went without. */
bool flw_heap_spares(struct flw_heap *heap, uint64_t bytes);
/* takes the lock. Things have changed: the next growth asks. */
void flw_heap_forget_refusal(struct flw_heap *heap);

/* ---- releasing */

/* Unmap complete, idle memory (oldest first) until want_bytes are idle handles, or back at the driver, where
 * they were dedicated runs' or exported; returns what was. What the driver refuses to unmap stays
 * mapped, and free. in_turn: each run gives one handle in turn, as it does with a single stream; else what
 * lies side by side goes at once: fewer cuts and calls, but up to 4 % more is held where sizes are drawn. */
uint64_t flw_heap_unmap_idle(struct flw_heap *heap, uint64_t want_bytes, bool in_turn);
/* The same of as much as a growth by the request lacks where the least is missing: not of the free memory beside that,
 * which the growth is to join. 0: nothing, or it lacks nothing. */
uint64_t flw_heap_unmap_for(struct flw_heap *heap, const struct flw_grow_request *request);
/* Release idle handles or segments until reserved <= keep_bytes. Returns the bytes released; memory that
 * the driver refuses to take stays in the pool. For segments waits for the device until until_ns (0: not at all), as
 * flw_heap_await_idle does: segments stay while the device has work. */
uint64_t flw_heap_release_idle(struct flw_heap *heap, uint64_t keep_bytes, uint64_t until_ns);
/* takes the lock. Is there a segment that flw_heap_release_idle would release? */
bool flw_heap_has_idle_segment(struct flw_heap *heap);
/* A LIVE dedicated run goes to the driver, now; no work may use it any more. Where that is refused
 * it is withheld, whose domain there is. False: the device is lost. */
bool flw_heap_evict(struct flw_heap *heap, struct flw_span *run);
/* calls. Handles that were exported and whose blocks are freed and complete go back; what the driver
 * refuses stays for the next time. */
void flw_heap_release_exported(struct flw_heap *heap);
/* takes the lock. After a sleep: idle stretches that nothing is mapped behind become address space only. */
void flw_heap_forget_idle(struct flw_heap *heap);

/* ---- sleep. No other thread gets, maps or releases memory meanwhile; blocks may be freed. */

/* Unmap and release everything but what was exported; the addresses stay set aside. DRIVER: as
 * before, contents too. ASLEEP: nor was that to be had; asleep with all of its memory, contents too. */
fallow_status flw_heap_sleep(struct flw_heap *heap);
/* In a driver section. Unmap all handles, those that were exported or not; addresses and handles stay. What
 * is refused stays mapped and ends it, or (`goes_on`) does not. The last refusal. */
CUresult flw_heap_unmap_all(struct flw_heap *heap, bool with_exported, bool goes_on);
/* Create and map all of the memory again. OUT_OF_MEMORY (*out_missing_bytes more are needed), DRIVER: asleep as before.
 * On OK the caller must call flw_heap_end_wake. */
fallow_status flw_heap_wake(struct flw_heap *heap, uint64_t *out_missing_bytes);
/* It is awake; or, contents could not be put back, asleep again. */
fallow_status flw_heap_end_wake(struct flw_heap *heap, bool is_awake);
/* calls. Run `set` over every mapped handle, in order; where one fails, `undo` over those before it, as
 * far as it is not refused. */
typedef CUresult (*flw_heap_stretch_function)(struct flw_heap *heap, uint64_t address,
                                              uint64_t bytes, const void *context);
CUresult flw_heap_each_stretch(struct flw_heap *heap, flw_heap_stretch_function set,
                               flw_heap_stretch_function undo, const void *context);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the list of planted faults. Each breaks one protocol at one place. They exist in the
 * mutation build only (FLW_MUTATION, a second build of the same sources); elsewhere
 * FLW_MUTANT(name) is the constant 0 and the compiler removes the fault. The mutation test
 * requires that each is caught.
 *
 * To add one: add a line here and FLW_MUTANT(name) in the protocol, then run the test. */
#ifndef FLW_BASE_MUTANT_H
#define FLW_BASE_MUTANT_H

/* clang-format off */
#define FLW_MUTANT_LIST(X) \
    X(SLOTS_MARKED_EARLY, "a batch is marked with a sequence number read before its last free") \
    X(RUN_MARKED_EARLY, "a freed run gets a sequence number read before the free") \
    X(CACHED_RUN_MARKED_EARLY, "a run in a cache is marked with a sequence number read before its free") \
    X(SEQUENCE_STANDS_STILL, "a fence takes a sequence number without advancing it: later frees look covered") \
    X(FENCE_NOT_RECORDED, "a fence is published before it is recorded") \
    X(STEAL_WITHOUT_WAIT, "a steal does not make the taker wait") \
    X(STEAL_WAITS_FOR_OLDER, "a steal waits for a fence older than the point") \
    X(STEAL_VISIBLE_EARLY, "a stolen batch is the taker's before the wait was given, and stays so if it fails") \
    X(DEFERRED_FORGETS_USE, "a block that others still use is taken without a wait for them") \
    X(DEFERRED_FORGETS_OWNER, "a block that others still use is taken without a wait for the stream that freed it") \
    X(NEIGHBOUR_WITHOUT_WAIT, "a neighbour of another stream is taken along without a wait for that") \
    X(ASKED_COMPLETES_ANOTHER, "a completed fence also completes the stream of the fence recorded before") \
    X(CEDED_LOOKS_COVERED, "memory that a cache hands out counts as covered by the completed fence") \
    X(OWING_FORGOTTEN, "a stream with memory that no fence covers is not recorded") \
    X(COMPLETES_TOO_MUCH, "a completed fence completes one sequence number too many") \
    X(NOT_READY_IS_DONE, "a fence that is not ready counts as complete") \
    X(RUN_UNOWNED_EARLY, "a run becomes unowned one sequence number early") \
    X(BATCH_UNOWNED_EARLY, "a batch becomes unowned one sequence number early") \
    X(JOIN_DROPS_POINT, "two runs that join keep the older point") \
    X(JOIN_ACROSS_OWNERS, "free runs join even if their owners differ") \
    X(SLAB_FORGETS_JOIN, "a slab does not keep the points of batches that left it") \
    X(SLAB_FORGETS_OVERFLOW, "a slab with more streams than points forgets the last") \
    X(UNMAPS_BUSY_HANDLE, "a handle is unmapped although a stream owns its memory") \
    X(MAPS_WITHOUT_ACCESS, "a mapped range is used before access was set") \
    X(LIMIT_PLUS_ONE_HANDLE, "growth may exceed the limit by one handle") \
    X(RELEASE_NOT_COUNTED, "a released handle still counts as reserved") \
    X(RETIRE_KEEPS_CACHES, "retire leaves memory of the stream in thread caches") \
    X(RETIRE_WITHOUT_FENCE, "retire treats all work of the stream as complete") \
    X(RETIRED_IS_RECORDED_ON, "a fence is recorded on the handle of a retired stream") \
    X(HELD_BLOCK_FORGETS_STREAM, "a held block of a retired stream waits for announced uses only") \
    X(USE_IGNORED, "an announced use is not noted") \
    X(USE_MARKED_EARLY, "an announced use is marked one sequence number early") \
    X(CAPTURE_NOT_DIVERTED, "caches continue to serve a stream that is captured") \
    X(CAPTURE_RELEASED_UNOWNED, "a released capture's memory is unowned before its last launch is done") \
    X(CAPTURE_AWAITS_NO_RECORD, "a capture begins while another thread records a fence on its stream") \
    X(CAPTURE_END_FORGETS_FENCE, "the end of a capture does not note that its streams owe a fence") \
    X(CAPTURE_END_OPENS_CACHES, "the end of a capture opens caches that are to stay closed") \
    X(RETIRE_FORGETS_LATE_FREES, "a retire does not cover what was freed after its fence was recorded") \
    X(VANISHED_KEEPS_CACHES, "the caches of a stream that vanished stay open") \
    X(DRAIN_WITHOUT_POISON, "a cache is emptied while its owner uses it") \
    X(PAGE_MAP_NOT_CLEARED, "a slab's units still name it after it was dissolved") \
    X(CLASS_OFF_BY_ONE, "a size at the edge of a class gets the class below") \
    X(INTERIOR_FREE_ACCEPTED, "a free does not compare the slot's word") \
    X(DOUBLE_FREE_ACCEPTED, "a free accepts a block that is free") \
    X(SIZE_NOT_VERIFIED, "a sized free accepts any size") \
    X(ALIGNMENT_IGNORED, "a run is not moved to its alignment") \
    X(FREED_IS_READY, "in context order a freed block is allocated before its epoch is complete") \
    X(EPOCH_OF_ONE_CONTEXT, "an epoch covers the work of its own context only") \
    X(EXPORTED_IS_REUSED, "memory that importers may have is allocated again") \
    X(SLEEP_LEAVES_CACHES_OPEN, "caches continue to serve while a pool sleeps") \
    X(SLEEP_IGNORES_OTHERS, "a sleep does not wait for other contexts' use of live blocks") \
    X(SLEEP_SAVES_NOTHING, "a sleep saves no contents") \
    X(ARENA_REGIONS_OVERLAP, "regions of a layout that are alive together share bytes") \
    X(ARENA_NOT_ORDERED, "a lease on another stream is not ordered after the last one") \
    X(ARENA_STALE_BINDING, "a layout keeps the address of a persistent region that has moved") \
    X(ARENA_ZONE_NOT_COMPARED, "an arena's red zones are not compared") \
    X(ARENA_GROWS_IN_CAPTURE, "an arena grows inside a capture") \
    X(ARENA_MOVES_UNDER_GRAPHS, "an arena moves memory whose addresses graphs hold") \
    X(ARENA_FORGETS_LAUNCH, "a lease is not ordered after the launch that was guarded last") \
    X(ARENA_CUTS_BUSY, "a trim beside graphs unmaps memory that leases still use")
/* clang-format on */

enum flw_mutant_name {
    FLW_MUTANT_NONE,
#define X(name, text) FLW_MUTANT_##name,
    FLW_MUTANT_LIST(X)
#undef X
    FLW_MUTANT_COUNT
};

#if defined(FLW_MUTATION)
extern unsigned flw_mutant; /* one of the list; set before the first pool */
#define FLW_MUTANT(name) (flw_mutant == FLW_MUTANT_##name)
#else
#define FLW_MUTANT(name) 0
#endif

#endif

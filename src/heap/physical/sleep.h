/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the physical side of a sleep. The functions make driver calls. Nobody else gets, maps or gives back
 * memory meanwhile; blocks may be freed.
 */
#ifndef FLW_HEAP_PHYSICAL_SLEEP_H
#define FLW_HEAP_PHYSICAL_SLEEP_H

#include "heap/state/state.h"

/* Unmap and give back everything but what was exported; the addresses stay set aside. DRIVER: as
 * before, contents too. ASLEEP: nor was that to be had; asleep with all of its memory, contents too. */
fallow_status flw_heap_sleep(struct flw_heap *heap);
/* In a driver section. Unmap all handles, those that were exported or not; addresses and handles stay. What
 * is refused stays mapped and ends it, or (`goes_on`) does not. The last refusal. */
CUresult flw_heap_unmap_all(struct flw_heap *heap, bool with_exported, bool goes_on);
/* Create and map it all again. OUT_OF_MEMORY, DRIVER: asleep as before. OK: flw_heap_end_wake is to
 * follow. */
fallow_status flw_heap_wake(struct flw_heap *heap);
/* It is awake; or, contents could not be put back, asleep again. */
fallow_status flw_heap_end_wake(struct flw_heap *heap, bool is_awake);
/* calls. Run `set` over every mapped handle, in order; where one fails, `undo` over those before it, as
 * far as it is not refused. */
typedef CUresult (*flw_heap_stretch_function)(struct flw_heap *heap, uint64_t address,
                                              uint64_t bytes, const void *context);
CUresult flw_heap_each_stretch(struct flw_heap *heap, flw_heap_stretch_function set,
                               flw_heap_stretch_function undo, const void *context);

#endif

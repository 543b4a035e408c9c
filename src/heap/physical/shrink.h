/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: giving physical memory back. The functions make driver calls.
 */
#ifndef FLW_HEAP_PHYSICAL_SHRINK_H
#define FLW_HEAP_PHYSICAL_SHRINK_H

#include "heap/state/state.h"

/* Unmap complete, idle memory (oldest first) until want_bytes are idle handles, or back at the driver, where
 * they were whole runs' or exported; returns what was. What the driver refuses to unmap stays mapped, and
 * free. */
uint64_t flw_heap_unmap_idle(struct flw_heap *heap, uint64_t want_bytes);
/* Give idle handles or segments back until reserved <= keep_bytes. Returns what was given back; what the
 * driver refuses stays the pool's. */
uint64_t flw_heap_release_idle(struct flw_heap *heap, uint64_t keep_bytes);
/* A LIVE whole run goes to the driver, now; nobody may use it any more. Where that is refused it is
 * withheld, whose domain there is. False: the device is lost. */
bool flw_heap_evict(struct flw_heap *heap, struct flw_span *run);
/* calls. Handles that were exported and whose blocks are freed and complete go back; what the driver
 * refuses stays for the next time. */
void flw_heap_release_exported(struct flw_heap *heap);
/* After a sleep: idle stretches that nothing is mapped behind become address space only. */
void flw_heap_forget_idle(struct flw_heap *heap);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: creating, checking and destroying a heap: the source, the addresses, the tables and their
 * sizes. This file uses all of the heap; nothing in the heap calls it.
 *
 * Tables are reserved for all memory of the device; only used pages take memory. Addresses cost
 * nothing, unless the process may map only a limited amount (ulimit -v). Names of units and cells
 * cover the addresses. The tables that limit the numbers of blocks, free batches and side records
 * are halved under such a limit until all of them together take a quarter of what the limit
 * leaves, or are as small as possible. The rest is the program's. */
#ifndef FLW_HEAP_LIFE_H
#define FLW_HEAP_LIFE_H

#include "heap/state/state.h"

struct flw_heap_config {
    const struct flw_driver *driver;
    CUcontext context;
    /* NULL: remapping if the device and the driver permit, otherwise segments */
    const struct flw_source_ops *source;
    int device;
    uint64_t device_bytes;
    uint64_t limit_bytes;
    const int *peers;
    uint32_t peer_count;
    uint32_t handle_types; /* required; 0: whatever works, less if the driver refuses */
    bool keeps_owners;     /* see heap.multi_stream */
    bool is_context_order; /* see heap.context_order; the source has segments */
};

/* Create a heap. On failure only the facts for the message remain: the source and the size of the
 * window. Makes driver calls. */
fallow_status flw_heap_init(struct flw_heap *heap, const struct flw_heap_config *config);
/* Release everything to the driver, with retries; the caller has waited for the fences. Returns
 * false if the driver kept something: *out_kept_bytes of memory, or only addresses or events.
 * Makes driver calls. */
bool flw_heap_release_all(struct flw_heap *heap, uint64_t *out_kept_bytes);
/* Free the tables. `is_lost`: without releasing first. */
void flw_heap_finish(struct flw_heap *heap, bool is_lost);

/* Check all invariants. Returns NULL, or a description of the first violation. Heap lock held, and
 * no growth is under way; other threads continue. */
const char *flw_heap_broken_invariant(const struct flw_heap *heap);

/* ---- tables */

#define FLW_TABLE_SHRINK_MAX 12 /* from here on every table has the smallest size */

/* Return the bytes of a pool's side records: announced uses, tags. */
uint64_t flw_tables_side_record_bytes(unsigned shrink);

/* Return the address space of the tables of a heap with the source and window chosen. */
uint64_t flw_tables_reserve_bytes(const struct flw_heap *heap, unsigned shrink);
/* Return how often the tables were full or the host refused memory for them. Any thread. */
uint64_t flw_tables_refusals(const struct flw_heap *heap);
/* True if the last such failure was a full table. */
bool flw_tables_are_full(const struct flw_heap *heap);

#endif

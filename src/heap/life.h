/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: making, checking and unmaking a heap: its source, its addresses, its tables and how large they
 * are. It stands on all of the heap; nothing of it calls here.
 *
 * Tables are reserved for all that the device could hold; only what is used takes memory. Addresses cost
 * nothing, but where the process may map only so many (ulimit -v). Names of units and cells are as many as
 * the addresses that they cover. The tables whose size says how many blocks, free batches and side
 * records there may be are halved, there, until all of them together take a quarter of what the
 * limit leaves, or are as small as they can be. The rest is the program's.
 */
#ifndef FLW_HEAP_LIFE_H
#define FLW_HEAP_LIFE_H

#include "heap/state/state.h"

struct flw_heap_config {
    const struct flw_driver *driver;
    CUcontext context;
    /* NULL: remapping where the device can and the driver lets it, else segments */
    const struct flw_source_ops *source;
    int device;
    uint64_t device_bytes;
    uint64_t limit_bytes;
    const int *peers;
    uint32_t peer_count;
    uint32_t
        handle_types;  /* insisted on; 0: what there is, and less of it where the driver refuses */
    bool keeps_owners; /* see heap.mixed */
    bool is_context_order; /* see heap.context_order; the source has segments */
};

/* calls. On failure only the facts for the message remain: the source and the size of its window. */
fallow_status flw_heap_init(struct flw_heap *heap, const struct flw_heap_config *config);
/* calls. Everything back to the driver, which is asked again for what it refuses; the caller has waited for
 * the fences. False: it kept something, so many bytes of memory, or addresses or events alone. */
bool flw_heap_release_all(struct flw_heap *heap, uint64_t *out_kept_bytes);
/* The tables. `is_lost`: without releasing first. */
void flw_heap_finish(struct flw_heap *heap, bool is_lost);

/* Stops no thread: the caller holds the lock and knows that no growth is under way. NULL: valid,
 * else the sentence that is broken. */
const char *flw_heap_broken_invariant(const struct flw_heap *heap);

/* ---- tables */

#define FLW_TABLE_SHRINK_MAX 12 /* from here on every table is as small as it can be */

/* A pool's side records: announced uses, tags. */
uint64_t flw_tables_side_record_bytes(unsigned shrink);

/* Return the address space of the tables of a heap with its source and window chosen. */
uint64_t flw_tables_reserve_bytes(const struct flw_heap *heap, unsigned shrink);
/* Has the host ever refused more of them, or are they used up? Rises with each refusal; any thread. */
uint64_t flw_tables_refusals(const struct flw_heap *heap);
/* Why it refused last: a table is used up. */
bool flw_tables_are_full(const struct flw_heap *heap);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: how large the tables of a heap are, and the address space that they take. Does not: make them.
 *
 * Tables are reserved for all that the device could hold; only what is used takes memory. Addresses cost
 * nothing, but where the process may map only so many (ulimit -v). Names of units and cells are as many as
 * the addresses that they cover. The tables whose size says how many blocks, free batches and notes there may
 * be are halved, there, until all of them together take a quarter of what the limit leaves, or are as small
 * as they can be. The rest is the program's.
 */
#ifndef FLW_HEAP_TABLES_H
#define FLW_HEAP_TABLES_H

#include <stdbool.h>
#include <stdint.h>

#define FLW_TABLE_SHRINK_MAX 12 /* from here on every table is as small as it can be */

struct flw_heap;

/* Batches, fences, pendings, handles, domains. */
uint64_t flw_tables_object_bytes(unsigned shrink);
/* A pool's notes: announced uses, tags. */
uint64_t flw_tables_note_bytes(unsigned shrink);

/* The address space of the tables of a heap, which has its source and its range by now. */
uint64_t flw_tables_reserve_bytes(const struct flw_heap *heap, unsigned shrink);
/* How often they are to be halved, where `allowance` bytes may be mapped. */
unsigned flw_tables_choose(const struct flw_heap *heap, uint64_t allowance);

/* Has the host ever refused more of them, or are they used up? Rises with each refusal; any thread. */
uint64_t flw_tables_refusals(const struct flw_heap *heap);
/* Why it refused last: a table is used up. */
bool flw_tables_are_full(const struct flw_heap *heap);

#endif

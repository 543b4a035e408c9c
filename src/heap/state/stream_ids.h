/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the allocating stream of each block: streams get numbers short enough for the upper bits
 * of a slot's `allocation`, and their ids stay here after their end. Does not: order anything.
 *
 * INVARIANT  ids[n] is the id of the latest stream with number n; 0 is no stream's number, id 0.
 *
 * Synchronization: adding under the heap lock; any thread may read. */
#ifndef FLW_HEAP_STATE_STREAM_IDS_H
#define FLW_HEAP_STATE_STREAM_IDS_H

#include "base/bits.h"
#include "base/meta.h"
#include "memory/span.h"

struct flw_stream_ids {
    struct flw_meta meta;
    _Atomic uint64_t *ids;
    uint64_t named_count;
};

/* False: no host memory. A table that was never created may be finished. */
#define FLW_STREAM_IDS_BYTES (FLW_STREAM_NUMBER_COUNT * sizeof(_Atomic uint64_t))

static inline bool flw_stream_ids_init(struct flw_stream_ids *stream_ids)
{
    if (!flw_meta_reserve(&stream_ids->meta, FLW_STREAM_IDS_BYTES) ||
        !flw_meta_open(&stream_ids->meta)) {
        return false;
    }
    stream_ids->ids = (_Atomic uint64_t *)(void *)stream_ids->meta.base;
    return true;
}

static inline void flw_stream_ids_finish(struct flw_stream_ids *stream_ids)
{
    flw_meta_release(&stream_ids->meta);
    stream_ids->ids = NULL;
}

/* Return the next number, for a stream with this id, in the place in `allocation`. After 65,535
 * streams the oldest numbers are reused: a block older than all of them then leads to a younger
 * stream. */
static inline uint64_t flw_stream_ids_add(struct flw_stream_ids *stream_ids, uint64_t stream_id)
{
    uint64_t number = 1 + stream_ids->named_count++ % (FLW_STREAM_NUMBER_COUNT - 1);
    atomic_store_explicit(&stream_ids->ids[number], stream_id, memory_order_relaxed);
    return number << FLW_STREAM_NUMBER_SHIFT;
}

/* Return cuStreamGetId of the stream in an `allocation`; 0 unknown. */
static inline uint64_t flw_stream_ids_find(const struct flw_stream_ids *stream_ids,
                                           uint64_t allocation)
{
    return atomic_load_explicit(&stream_ids->ids[allocation >> FLW_STREAM_NUMBER_SHIFT],
                                memory_order_relaxed);
}

/* Memory in use, not address space. */
static inline uint64_t flw_stream_ids_host_bytes(const struct flw_stream_ids *stream_ids)
{
    uint64_t numbers = 1 + flw_min(stream_ids->named_count, FLW_STREAM_NUMBER_COUNT - 1);
    return numbers * sizeof *stream_ids->ids;
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: who allocated a block: streams get numbers short enough for the upper bits of a slot's
 * `allocation`, and keep their ids here when they are gone. Does not: order anything.
 *
 * INVARIANT  ids[n] is the id of the stream that got number n last; 0 is no stream's number, id 0.
 *
 * Synchronization: naming under the heap lock; asked by anyone.
 */
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

/* False: host memory. A table that was never made may be finished. */
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

/* The next number, for a stream with this id, in its place in `allocation`. After 65,535 streams
 * the oldest numbers are given again: a block that has lived through all of them then names a
 * younger stream. */
static inline uint64_t flw_stream_ids_add(struct flw_stream_ids *stream_ids, uint64_t stream_id)
{
    uint64_t number = 1 + stream_ids->named_count++ % (FLW_STREAM_NUMBER_COUNT - 1);
    atomic_store_explicit(&stream_ids->ids[number], stream_id, memory_order_relaxed);
    return number << FLW_STREAM_NUMBER_SHIFT;
}

/* cuStreamGetId of the stream that an `allocation` names; 0 unknown. */
static inline uint64_t flw_stream_ids_find(const struct flw_stream_ids *stream_ids,
                                           uint64_t allocation)
{
    return atomic_load_explicit(&stream_ids->ids[allocation >> FLW_STREAM_NUMBER_SHIFT],
                                memory_order_relaxed);
}

/* In use, not address space. */
static inline uint64_t flw_stream_ids_host_bytes(const struct flw_stream_ids *stream_ids)
{
    uint64_t numbers = 1 + flw_min(stream_ids->named_count, FLW_STREAM_NUMBER_COUNT - 1);
    return numbers * sizeof *stream_ids->ids;
}

#endif

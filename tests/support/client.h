/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a small correct GPU program: blocks, the streams that write and read them, and events that
 * order the accesses. Anything that the rule checker finds in it is a fault of the pool. Does not:
 * choose the next operation (the tests do), or judge statuses.
 *
 * A block is written on the *home* stream and read on others after these waited for home. It is
 * freed on a stream that has waited for every user, or for which the user was announced.
 *
 * INVARIANTS of a block
 *   1. Every write so far precedes the current end of `home`.
 *   2. Every access so far precedes the current end of home or of a stream in `readers`.
 *   3. home is not in readers.
 *
 * Synchronization: a client belongs to one thread; clients may share streams. */
#ifndef FLW_TESTS_SUPPORT_CLIENT_H
#define FLW_TESTS_SUPPORT_CLIENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "support/overlap.h"
#include "support/pool_under_test.h"
#include "support/sim.h"

#define FLW_CLIENT_STREAMS 16

struct flw_client_block {
    unsigned char *ptr;
    size_t size_bytes, align_bytes;
    size_t claimed_bytes; /* in the overlap set */
    uint32_t home;        /* index of a stream */
    uint32_t readers;     /* bit a stream */
    uint32_t tag;
    bool is_captured;
    bool is_exportable; /* requested with EXPORT_FD */
};

struct flw_client {
    const struct flw_sim *sim;
    struct flw_put put;
    struct flw_overlap *overlap;
    uint64_t random;
    size_t touch_bytes; /* most that one access covers; larger blocks: begin, middle and end */
    CUstream streams[FLW_CLIENT_STREAMS];
    CUevent events[FLW_CLIENT_STREAMS]; /* one for each stream */
    uint32_t stream_count;
    struct flw_client_block *blocks;
    size_t count, capacity;
    uint64_t op_count;
    uint64_t trace_address; /* print operations on blocks with this byte to stderr; 0: none */
    bool is_quiet;          /* the pool is asleep or about to sleep: no access to the memory */
    bool is_cut_off;        /* the context ends or has ended: the client's own calls may fail */
    bool has_faults;        /* driver calls fail at random: the client repeats its own, the pool may
                         return the errors */
    const atomic_bool *is_gone; /* NULL, or: true once a driver call reported a lost device; before
                              that no status may */
    bool is_refused;            /* the driver refuses calls of the pool from some call on: statuses
                              may report that, but never a lost device */
    bool announces_first;       /* announce captures first: a synchronisation in another thread's
                              call ends a capture that was not announced */
    bool orders_by_context;     /* a free waits for all work of the context, on any stream */
};

uint64_t flw_client_random(struct flw_client *client);
static inline uint64_t flw_client_below(struct flw_client *client, uint64_t bound)
{
    return flw_client_random(client) % bound;
}
static inline bool flw_client_chance(struct flw_client *client, unsigned percent)
{
    return flw_client_random(client) % 100 < percent;
}

/* True for a status that the pool may return after a refused driver call. */
static inline bool flw_client_forgives(const struct flw_client *client, fallow_status status)
{
    bool is_refusal = status == FALLOW_DRIVER || status == FALLOW_NOT_SUPPORTED;
    return status == FALLOW_DEVICE_LOST ? client->is_gone != NULL && atomic_load(client->is_gone)
                                        : is_refusal && (client->has_faults || client->is_refused);
}

/* The primary context of device 0 is current in the calling thread. Aborts on a driver error: the
 * bed of a test must work. */
void flw_client_enter_device(const struct flw_sim *sim);
/* Non-blocking streams and one event each. `shared` (may be NULL): streams 0 .. shared_count - 1.
 */
void flw_client_init(struct flw_client *client, size_t capacity, uint32_t stream_count,
                     const CUstream *shared, uint32_t shared_count);
/* Destroy the events and the client's own streams; all blocks must be freed. */
void flw_client_finish(struct flw_client *client, uint32_t shared_count);

/* `to` waits on the device for all that `from` has been given. */
void flw_client_order(struct flw_client *client, uint32_t from, uint32_t to);
/* All readers before the present end of home. */
void flw_client_gather(struct flw_client *client, struct flw_client_block *block);
void flw_client_write(struct flw_client *client, struct flw_client_block *block);
void flw_client_read(struct flw_client *client, struct flw_client_block *block, uint32_t stream);

/* Add a fresh block: claim the bytes and write them. Returns false if it overlaps a live block. */
bool flw_client_adopt(struct flw_client *client, const struct flw_client_block *block);
/* Move a block into `block` and remove it from the table; the bytes stay claimed. */
void flw_client_drop(struct flw_client *client, size_t index, struct flw_client_block *block);

/* Order or announce every use of block `index`, free it on `stream`, and remove it from the table
 * on success. sized: with fallow_free_sized. */
fallow_status flw_client_free(struct flw_client *client, size_t index, uint32_t stream, bool sized);

/* Transfer the blocks and reads of stream `index` to stream `heir`, after making `heir` wait. */
void flw_client_leave_stream(struct flw_client *client, uint32_t index, uint32_t heir);
/* Replace stream `index` with a new one. tells: retire it in the pool. */
fallow_status flw_client_renew_stream(struct flw_client *client, uint32_t index, bool tells);

#endif

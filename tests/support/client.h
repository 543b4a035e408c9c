/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a correct GPU program in small: blocks, who wrote and read them on which stream, and the
 * events that keep its own accesses in order. What the rule checker finds in it is the pool's
 * fault. Does not: choose what to do next (the tests do), nor judge statuses.
 *
 * A block is written on its *home* stream and read on others after these waited for home. It is
 * freed on a stream that has been made to wait for every user, or for which the user was announced.
 *
 * INVARIANTS of a block
 *   1. Every write so far came before the present end of `home`.
 *   2. Every access so far came before the present end of home or of a stream in `readers`.
 *   3. home is not in readers.
 *
 * Synchronization: a client belongs to one thread; streams may be shared between clients.
 */
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
    bool is_exportable; /* asked for with EXPORT_FD */
};

struct flw_client {
    const struct flw_sim *sim;
    struct flw_put put;
    struct flw_overlap *overlap;
    uint64_t random;
    size_t touch_bytes; /* most that one access covers; larger blocks: begin, middle and end */
    CUstream streams[FLW_CLIENT_STREAMS];
    CUevent events[FLW_CLIENT_STREAMS]; /* its own, one a stream */
    uint32_t stream_count;
    struct flw_client_block *blocks;
    size_t count, capacity;
    uint64_t op_count;
    uint64_t trace_address; /* what happens to blocks with this byte goes to stderr; 0 nothing */
    bool is_quiet;          /* the pool sleeps, or goes to: nothing touches its memory */
    bool is_cut_off;        /* the context ends, or has: its own calls may be refused */
    bool has_faults; /* driver calls are refused at random: its own are made again, the pool's
                                 answers may say so */
    const atomic_bool
        *is_gone;         /* NULL, or: a driver call was made to answer that the device is gone,
                                 without which no answer of the pool's may say that it is lost */
    bool is_refused;      /* the driver refuses calls of the pool from some on: its answers may say
                               so, but never that the device is lost */
    bool announces_first; /* its captures: a synchronisation that another thread's call takes ends
                               one that the pool was not told of */
    bool orders_by_context; /* a free comes after what the context was given, on any stream */
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

/* An answer that a pool may give because a driver call of its own was refused. */
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
/* Destroys the events and the streams that are its own; the blocks must be gone. */
void flw_client_finish(struct flw_client *client, uint32_t shared_count);

/* `to` waits on the device for all that `from` has been given. */
void flw_client_order(struct flw_client *client, uint32_t from, uint32_t to);
/* All readers before the present end of home. */
void flw_client_gather(struct flw_client *client, struct flw_client_block *block);
void flw_client_write(struct flw_client *client, struct flw_client_block *block);
void flw_client_read(struct flw_client *client, struct flw_client_block *block, uint32_t stream);

/* Take a fresh block into the table: claims its bytes and writes it. False: it overlaps a live one.
 */
bool flw_client_adopt(struct flw_client *client, const struct flw_client_block *block);
/* Into `block`, and out of the table; its bytes stay claimed. */
void flw_client_drop(struct flw_client *client, size_t index, struct flw_client_block *block);

/* Order or announce every use of block `index`, then free it on `stream`. Out of the table when OK.
 * sized: with fallow_free_sized. */
fallow_status flw_client_free(struct flw_client *client, size_t index, uint32_t stream, bool sized);

/* Transfer the blocks and reads of stream `index` to stream `heir`, which waits for it. */
void flw_client_leave_stream(struct flw_client *client, uint32_t index, uint32_t heir);
/* Destroy stream `index` and make another in its place. tells: the pool hears of it. */
fallow_status flw_client_renew_stream(struct flw_client *client, uint32_t index, bool tells);

#endif

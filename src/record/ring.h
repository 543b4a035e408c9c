/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the ring into which one thread writes the records of 32 bytes.
 * Does not: format, allocate or call the system while a record is written, unless half of the ring
 * waits to be emptied: then it wakes the flusher, and may wait for room when it is full.
 *
 * A record has four words: ticks; address; size and, from bit 48 on, stream; op, from bit 16 on
 * the private pool, from bit 32 on the tag. flw_ring_entry has the meaning of the words for each
 * op. A record of FLW_RING_STACK has the call stack (callstack.h) of the following records with
 * bit FLW_RING_STACK_BIT. It is no event: readers (merge.h) skip it.
 *
 * Its owner writes records between flw_asym_enter and _leave and publishes them with the store
 * that leaves. A reader takes a moment, runs flw_asym_barrier and waits until the owner is out:
 * then all records with ticks up to that moment are published.
 *
 * INVARIANTS
 *   1. tail <= head; head - tail <= mask + 1, unless the ring overwrites.
 *   2. Records tail to head - 1 are at their number & mask; their ticks do not decrease.
 *   3. If it does not overwrite, room is half of the ring and tail_seen <= tail + room: records up
 *      to tail_seen + room have their place.
 *
 * Synchronization: tail by the reader, and room of a ring that overwrites (relaxed: after a
 * barrier and a wait the owner has read it); everything else that changes by the owner. A ring of
 * a thread that has ended passes to the next thread with the token. */
#ifndef FLW_RECORD_RING_H
#define FLW_RECORD_RING_H

#include "base/asym.h"
#include "base/bits.h"
#include "base/wakeup.h"
#include "record/event.h"
#include "record/tsc.h"

#define FLW_RING_WORDS       4 /* of a record */
#define FLW_RING_RECORD_LOG2 5
#define FLW_RING_SIZE_BITS   48
#define FLW_RING_SIZE_MAX    ((UINT64_C(1) << FLW_RING_SIZE_BITS) - 1)
#define FLW_RING_HOLE_LOG2 \
    16 /* OOM: the tag is the largest free range, in units of so many bytes; ~0: unknown */
#define FLW_RING_STREAMS  65535
#define FLW_RING_POOL_BIT 16 /* of the private pool in the last word */

#define FLW_RING_STACK     0xFF            /* an op; the address is the stack's number */
#define FLW_RING_STACK_BIT UINT64_C(0x100) /* in the last word */

/* Stage of a recording. Records without room are counted, and waited for, only while it is
 * RUNNING. */
enum flw_ring_stage {
    FLW_RING_STARTING, /* not every thread records yet, and the rings are not emptied */
    FLW_RING_RUNNING,
    FLW_RING_OVER
};

struct flw_ring {
    struct flw_asym asym;
    _Atomic uint64_t head; /* records written */
    uint64_t tail_seen;    /* the owner reads the tail again `room` records after this one */
    uint64_t room;         /* UINT64_MAX: the oldest are overwritten; 0: held by the reader */
    uint64_t mask;
    uint64_t *words;
    _Atomic uint64_t lost; /* records without room, not reported yet */
    bool uses_tsc;
    bool is_fenced; /* without membarrier: the owner orders its own stores; atomic */
    bool waits;     /* for room, while *stage is RUNNING */
    bool overwrites;
    uint32_t thread;
    uintptr_t token;           /* of the thread */
    const atomic_int *stage;   /* enum flw_ring_stage */
    struct flw_wakeup *wakeup; /* of the thread that empties it */
    struct flw_ring *next;
    uint32_t stack;                                /* the owner's last stack record; 0: none */
    uint64_t stack_at;                             /* and the number */
    uint32_t taken_stack;                          /* the reader's last stack record */
    _Alignas(FLW_LINE_PAIR) _Atomic uint64_t tail; /* records taken out */
};

struct flw_ring_settings {
    uint64_t ring_bytes; /* a power of two */
    bool uses_tsc, waits, overwrites;
    const atomic_int *stage;
    struct flw_wakeup *wakeup;
};

/* NULL: no host memory. */
struct flw_ring *flw_ring_create(const struct flw_ring_settings *settings);
void flw_ring_destroy(struct flw_ring *ring);

/* Hold a ring that overwrites: from the next barrier and wait on the owner writes no more, except
 * a record that it has begun, and waits until the ring is released. The reader must not need
 * anything that the owner may hold meanwhile. */
void flw_ring_hold(struct flw_ring *ring);
void flw_ring_let_go(struct flw_ring *ring);

/* Check the tail: wake the flusher if the ring is half full, wait if there is no room and the ring
 * waits, or is held. False: no room, and the record counts as lost if the recording is under way.
 * Otherwise earlier losses have been written as a DROP. For the owner. */
bool flw_ring_make_room(struct flw_ring *ring);

/* A record without the ticks. */
struct flw_ring_entry {
    uint64_t address, sizes, rest;
};

/* ALLOC, FREE, USE: of a block. OOM: address is the device's free memory, tag the largest free
 * range. MARK, PHASE_*: address is the name's number. POOL_*: pool is the capture. DROP: size is
 * the count. */
static inline struct flw_ring_entry flw_ring_entry(enum flw_trace_op op, uint64_t address,
                                                   uint64_t size_bytes, uint32_t stream,
                                                   uint32_t tag)
{
    return (struct flw_ring_entry){.address = address,
                                   .sizes = size_bytes | (uint64_t)stream << FLW_RING_SIZE_BITS,
                                   .rest = (uint64_t)op | (uint64_t)tag << 32};
}

/* Relaxed: a reader may read a record that is being overwritten, and drops it then. */
static inline void flw_ring_store(struct flw_ring *ring, uint64_t number, uint64_t ticks,
                                  const struct flw_ring_entry *entry)
{
    uint64_t *words = &ring->words[(number & ring->mask) * FLW_RING_WORDS];
    __atomic_store_n(&words[0], ticks, __ATOMIC_RELAXED);
    __atomic_store_n(&words[1], entry->address, __ATOMIC_RELAXED);
    __atomic_store_n(&words[2], entry->sizes, __ATOMIC_RELAXED);
    __atomic_store_n(&words[3], entry->rest, __ATOMIC_RELAXED);
}

/* Return how many lost records this record reports; otherwise 0. */
static inline uint64_t flw_ring_drop_count(const struct flw_ring *ring, uint64_t number)
{
    const uint64_t *words = &ring->words[(number & ring->mask) * FLW_RING_WORDS];
    bool is_drop = (__atomic_load_n(&words[3], __ATOMIC_RELAXED) & 0xFF) == FLW_TRACE_DROP;
    return is_drop ? __atomic_load_n(&words[2], __ATOMIC_RELAXED) & FLW_RING_SIZE_MAX : 0;
}

/* After the kernel refused membarrier; flw_asym_slow_barrier follows. For the reader. */
static inline void flw_ring_begin_fencing(struct flw_ring *ring)
{
    __atomic_store_n(&ring->is_fenced, true, __ATOMIC_RELAXED);
}

/* Without membarrier. (Under ThreadSanitizer both sides of an asymmetric lock order themselves.) */
static inline void flw_ring_fence(void)
{
#if !defined(FLW_ASYM_FENCED)
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* Write a record. `is_ordered` for events that another thread's record may have to follow: all
 * except allocations from the owner's own cache. For the owner. */
static inline void flw_ring_put(struct flw_ring *ring, const struct flw_ring_entry *entry,
                                bool is_ordered)
{
    uint64_t number = atomic_load_explicit(&ring->head, memory_order_relaxed);
    uint64_t room = __atomic_load_n(&ring->room, __ATOMIC_RELAXED);
    if (FLW_UNLIKELY(number - ring->tail_seen >= room)) {
        if (!flw_ring_make_room(ring)) {
            return;
        }
        number = atomic_load_explicit(&ring->head, memory_order_relaxed);
    }
    flw_asym_enter(&ring->asym);
    if (FLW_UNLIKELY(__atomic_load_n(&ring->is_fenced, __ATOMIC_RELAXED))) {
        flw_ring_fence();
    }
    flw_ring_store(ring, number, flw_tsc_read(ring->uses_tsc, is_ordered), entry);
    atomic_store_explicit(&ring->head, number + 1, memory_order_release);
    flw_asym_leave(&ring->asym);
}

/* Set the stack of the owner's following records. False: no stack, or no room; no event is lost
 * then. If records are overwritten it is written again in time. */
static inline bool flw_ring_tell_stack(struct flw_ring *ring, uint32_t stack)
{
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    bool fades = ring->overwrites && head - ring->stack_at > ring->mask / 4;
    if (stack != 0 && (ring->stack != stack || fades)) {
        struct flw_ring_entry entry = {stack, 0, FLW_RING_STACK};
        uint64_t lost = atomic_load_explicit(&ring->lost, memory_order_relaxed);
        flw_ring_put(ring, &entry, true);
        ring->stack = stack;
        ring->stack_at = head;
        if (atomic_load_explicit(&ring->head, memory_order_relaxed) == head) {
            atomic_store_explicit(&ring->lost, lost, memory_order_relaxed);
            ring->stack = 0;
        }
    }
    return stack != 0 && ring->stack == stack;
}

#endif

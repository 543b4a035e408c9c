/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the memory of rings, and the handling of a full ring. */
#include "record/ring.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/backoff.h"

#define WAIT_NS 50000

struct flw_ring *flw_ring_create(const struct flw_ring_settings *settings)
{
    struct flw_ring *ring = aligned_alloc(FLW_LINE_PAIR, flw_align_up(sizeof *ring, FLW_LINE_PAIR));
    if (ring == NULL) {
        return NULL;
    }
    void *words = mmap(NULL, settings->ring_bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (words == MAP_FAILED) {
        free(ring);
        return NULL;
    }
    memset((void *)ring, 0, sizeof *ring);
    ring->words = words;
    ring->mask = (settings->ring_bytes >> FLW_RING_RECORD_LOG2) - 1;
    ring->room = settings->overwrites ? UINT64_MAX : (ring->mask + 1) / 2;
    ring->uses_tsc = settings->uses_tsc;
    ring->waits = settings->waits;
    ring->overwrites = settings->overwrites;
    ring->stage = settings->stage;
    ring->wakeup = settings->wakeup;
    return ring;
}

void flw_ring_destroy(struct flw_ring *ring)
{
    if (ring != NULL) {
        munmap(ring->words, (ring->mask + 1) << FLW_RING_RECORD_LOG2);
        free(ring);
    }
}

/* Check for room. False: none for so many records. In that case, and if half of the ring is full,
 * the wakeup rang, once each time that this happens. */
static bool look_for_room(struct flw_ring *ring, uint64_t wanted, bool *has_called)
{
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_acquire);
    uint64_t used = head - tail, capacity = ring->mask + 1;
    if (used >= ring->room && !*has_called) {
        flw_wakeup_signal(ring->wakeup);
        *has_called = true;
    }
    if (capacity - used < wanted) {
        return false;
    }
    ring->tail_seen = used < ring->room ? tail : tail + ring->room;
    return true;
}

void flw_ring_hold(struct flw_ring *ring)
{
    __atomic_store_n(&ring->room, 0, __ATOMIC_RELAXED);
}

void flw_ring_let_go(struct flw_ring *ring)
{
    __atomic_store_n(&ring->room, UINT64_MAX, __ATOMIC_RELEASE); /* after the copy */
}

static void wait_while_held(const struct flw_ring *ring)
{
    while (__atomic_load_n(&ring->room, __ATOMIC_ACQUIRE) == 0) {
        flw_sleep_ns(WAIT_NS);
    }
}

bool flw_ring_make_room(struct flw_ring *ring)
{
    if (ring->overwrites) {
        wait_while_held(ring);
        return true;
    }
    uint64_t lost = atomic_load_explicit(&ring->lost, memory_order_relaxed);
    bool has_called = lost > 0;
    while (!look_for_room(ring, lost > 0 ? 2 : 1, &has_called)) {
        bool counts = atomic_load_explicit(ring->stage, memory_order_relaxed) == FLW_RING_RUNNING;
        if (!ring->waits || !counts) {
            atomic_store_explicit(&ring->lost, lost + counts, memory_order_relaxed);
            return false;
        }
        flw_sleep_ns(WAIT_NS);
    }
    if (lost > 0) {
        struct flw_ring_entry drop =
            flw_ring_entry(FLW_TRACE_DROP, 0, flw_min(lost, FLW_RING_SIZE_MAX), 0, 0);
        atomic_store_explicit(&ring->lost, 0, memory_order_relaxed);
        flw_ring_put(ring, &drop, true);
    }
    return true;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the one deadline of all waits for the device in a climb, and the waits under it that release memory.
 */
#include "pool/ladder/climb.h"
#include "pool/streams/release.h"

uint64_t flw_climb_device_free(struct flw_heap *heap)
{
    struct flw_driver_section section;
    size_t free_bytes = 0, total_bytes = 0;
    if (!flw_heap_enter_driver(heap, &section)) {
        return UINT64_MAX;
    }
    flw_heap_count_question(heap);
    CUresult result = heap->driver->cuMemGetInfo_v2(&free_bytes, &total_bytes);
    flw_heap_leave_driver(heap, &section);
    return result == CUDA_SUCCESS ? free_bytes : UINT64_MAX;
}

bool flw_climb_may_wait(const struct flw_climb *climb)
{
    return (climb->need->flags & FALLOW_REQUEST_NO_WAIT) == 0 &&
           climb->pool->config.wait_ms != UINT32_MAX && !flw_climb_lacks_host(climb);
}

/* Others may fill the device during a wait, too. */
#define ROOM_NS 100000000

/* Driver call, unless there has been one for less than ROOM_NS. Has the device the memory, of which the pool may have
 * taken some since? */
static bool device_has_room(const struct flw_climb *climb, uint64_t now_ns)
{
    struct flw_climbs *climbs = &climb->pool->climbs;
    uint64_t reserved = atomic_load(&climb->heap->reserved_bytes);
    if (now_ns >= atomic_load(&climbs->room_until_ns)) {
        uint64_t free_bytes = flw_climb_device_free(climb->heap);
        free_bytes = free_bytes == UINT64_MAX ? 0 : free_bytes; /* unknown */
        atomic_store(&climbs->room_bytes, reserved + free_bytes);
        atomic_store(&climbs->room_until_ns, now_ns + ROOM_NS);
    }
    return reserved + climb->need_bytes <= atomic_load(&climbs->room_bytes);
}

/* Driver call. True if a growth is likely to serve the need whether or not the wait succeeds. */
static bool has_room(const struct flw_climb *climb, uint64_t now_ns)
{
    struct flw_heap *heap = climb->heap;
    if ((climb->need->flags & FALLOW_REQUEST_NO_GROW) != 0 || climb->is_refused ||
        atomic_load(&heap->reserved_bytes) + climb->need_bytes > heap->limit_bytes ||
        flw_heap_refuses(heap, climb->need_bytes)) {
        return false;
    }
    return device_has_room(climb, now_ns);
}

bool flw_climb_wait(struct flw_climb *climb, bool comes_before_growth,
                    bool (*wait)(struct flw_climb *climb, uint64_t until_ns))
{
    if (!flw_climb_may_wait(climb)) {
        return false;
    }
    if (climb->until_ns != 0) { /* within another wait */
        return wait(climb, climb->until_ns);
    }
    uint64_t begin_ns = flw_clock_fine_ns(), until_ns = flw_pool_wait_until(climb->pool);
    if (until_ns == UINT64_MAX || (comes_before_growth && has_room(climb, begin_ns))) {
        return wait(climb, UINT64_MAX);
    }
    climb->until_ns = until_ns - flw_min(until_ns - begin_ns, climb->waited_ns);
    bool is_done = wait(climb, climb->until_ns);
    climb->until_ns = 0;
    climb->waited_ns += flw_clock_fine_ns() - begin_ns;
    return is_done;
}

static bool release(struct flw_climb *climb, uint64_t until_ns)
{
    return flw_heap_release_idle(climb->heap, climb->keep_bytes, until_ns) > 0;
}

bool flw_climb_release(struct flw_climb *climb, uint64_t keep_bytes)
{
    climb->keep_bytes = keep_bytes;
    bool is_done =
        flw_climb_may_wait(climb) ? flw_climb_wait(climb, true, release) : release(climb, 0);
    climb->awaits_device |= !is_done && flw_heap_has_idle_segment(climb->heap);
    return is_done;
}

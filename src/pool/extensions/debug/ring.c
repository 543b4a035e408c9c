/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the pinned ring with copies of the ends of blocks, and their comparison.
 * Does not: wait for a copy.
 *
 * The ring is registered memory of the process: memory from the driver ends with the context,
 * which another thread may end during a comparison. */
#include "pool/extensions/debug/guard.h"
#include "pool/state/settings.h"

#include <stdlib.h>
#include <sys/mman.h>

#define RING_ENTRIES 256u
#define RING_BYTES   ((size_t)RING_ENTRIES * 2 * FLW_ZONE_BYTES)

static uint32_t expected_word(const struct flw_check *check)
{
    return check->is_freed_poison ? FLW_FREED_PATTERN : FLW_ZONE_BYTE * 0x01010101u;
}

/* Return the index of the first byte of [bytes, +count) that differs from the pattern, which
 * begins at `phase`; count: none. */
static size_t first_damage(const unsigned char *bytes, size_t count, uint32_t word, size_t phase)
{
    size_t i = 0;
    while (i < count && bytes[i] == (unsigned char)(word >> (8 * ((i + phase) % 4)))) {
        i++;
    }
    return i;
}

/* Return how many bytes of each end are copied: of a small freed block, all of it in the first. */
static void halves(const struct flw_check *check, uint64_t *out_first, uint64_t *out_last)
{
    uint64_t size = check->guard.size_bytes & ~3ull; /* a tail is written byte by byte */
    *out_first = check->is_freed_poison ? flw_min(size, FLW_ZONE_BYTES) : FLW_ZONE_BYTES;
    *out_last =
        check->is_freed_poison ? flw_min(size - *out_first, FLW_ZONE_BYTES) : FLW_ZONE_BYTES;
}

static void report(struct flw_pool *pool, const struct flw_check *check, int64_t offset)
{
    const struct flw_guard *guard = &check->guard;
    flw_lock_acquire(&pool->debug->lock);
    pool->debug->damaged_count++;
    flw_lock_release(&pool->debug->lock);
    flw_pool_log(
        pool, FALLOW_LOG_ERROR,
        "%s: block %#llx of %llu bytes (tag %u, allocated on stream id %llu) was written at "
        "offset %lld: find the code that writes %s",
        check->is_freed_poison ? "write after free" : "red zone damaged",
        (unsigned long long)guard->user, (unsigned long long)guard->size_bytes, guard->tag,
        (unsigned long long)guard->stream_id, (long long)offset,
        check->is_freed_poison ? "through a stale pointer"
        : offset < 0           ? "before its buffer"
                               : "past the end of a buffer");
}

/* Compare both zones of a block, which have separate causes; of a freed block find the first
 * damage. */
static void compare(struct flw_pool *pool, const struct flw_check *check,
                    const unsigned char *bytes)
{
    uint64_t first, last;
    uint32_t word = expected_word(check);
    int64_t size = (int64_t)check->guard.size_bytes;
    halves(check, &first, &last);
    int64_t first_at = check->is_freed_poison ? 0 : -(int64_t)first;
    int64_t last_at = check->is_freed_poison ? (size & ~3ll) - (int64_t)last : size;
    size_t damage = first_damage(bytes, first, word, 0);
    if (damage < first) {
        report(pool, check, first_at + (int64_t)damage);
        if (check->is_freed_poison) {
            return;
        }
    }
    damage = first_damage(bytes + FLW_ZONE_BYTES, last, word, 0);
    if (damage < last) {
        report(pool, check, last_at + (int64_t)damage);
    }
}

static unsigned char *bytes_of(struct flw_debug *debug, uint64_t index)
{
    return debug->ring_bytes + (index % RING_ENTRIES) * 2 * FLW_ZONE_BYTES;
}

void flw_debug_give_check(struct flw_pool *pool, const struct flw_guard *guard,
                          bool is_freed_poison, fallow_stream stream)
{
    struct flw_debug *debug = pool->debug;
    const struct flw_driver *driver = &pool->driver;
    flw_lock_acquire(&debug->lock);
    bool is_full = debug->ring_tail - debug->ring_head == RING_ENTRIES;
    uint64_t index = debug->ring_tail;
    debug->left_out_count += is_full;
    struct flw_check *check = &debug->ring[index % RING_ENTRIES];
    if (!is_full) {
        debug->ring_tail++;
        check->is_given = false;
    }
    flw_lock_release(&debug->lock);
    if (is_full) {
        return;
    }
    uint64_t first, last;
    check->guard = *guard;
    check->is_freed_poison = is_freed_poison;
    halves(check, &first, &last);
    uint64_t size = guard->size_bytes;
    uint64_t first_at = guard->user - (is_freed_poison ? 0 : first);
    uint64_t last_at = guard->user + (is_freed_poison ? (size & ~3ull) - last : size);
    unsigned char *bytes = bytes_of(debug, index);
    CUresult result = CUDA_SUCCESS;
    if (first > 0) {
        flw_heap_count_call(&pool->heap);
        result = driver->cuMemcpyDtoHAsync_v2(bytes, first_at, first, stream);
    }
    if (result == CUDA_SUCCESS && last > 0) {
        flw_heap_count_call(&pool->heap);
        result = driver->cuMemcpyDtoHAsync_v2(bytes + FLW_ZONE_BYTES, last_at, last, stream);
    }
    if (result == CUDA_SUCCESS) {
        flw_heap_count_call(&pool->heap);
        result = driver->cuEventRecord(check->event, stream);
    }
    if (result != CUDA_SUCCESS) { /* refused, possibly by a capture: an empty check */
        check->is_freed_poison = true;
        check->guard.size_bytes = 0;
    }
    flw_lock_acquire(&debug->lock);
    debug->left_out_count += result != CUDA_SUCCESS;
    check->is_given = true;
    flw_lock_release(&debug->lock);
}

void flw_debug_poll(struct flw_pool *pool)
{
    struct flw_debug *debug = pool->debug;
    struct flw_driver_section section;
    flw_lock_acquire(&debug->lock);
    bool is_mine = debug->ring_head != debug->ring_tail && !debug->is_polling;
    debug->is_polling |= is_mine;
    flw_lock_release(&debug->lock);
    if (!is_mine) {
        return;
    }
    bool is_entered = flw_heap_enter_driver(&pool->heap, &section);
    for (bool goes_on = is_entered; goes_on;) {
        flw_lock_acquire(&debug->lock);
        uint64_t index = debug->ring_head;
        struct flw_check *check = &debug->ring[index % RING_ENTRIES];
        goes_on = index != debug->ring_tail && check->is_given;
        flw_lock_release(&debug->lock);
        if (goes_on && check->guard.size_bytes != 0) {
            flw_heap_count_call(&pool->heap);
            atomic_fetch_add_explicit(&pool->heap.count.queries, 1, memory_order_relaxed);
            CUresult result = pool->driver.cuEventQuery(check->event);
            goes_on = result != CUDA_ERROR_NOT_READY;
            if (result == CUDA_SUCCESS) {
                compare(pool, check, bytes_of(debug, index));
            } else if (goes_on) {
                flw_debug_leave_out(debug);
            }
        }
        if (goes_on) {
            flw_lock_acquire(&debug->lock);
            debug->ring_head++;
            flw_lock_release(&debug->lock);
        }
    }
    if (is_entered) {
        flw_heap_leave_driver(&pool->heap, &section);
    }
    flw_lock_acquire(&debug->lock);
    debug->is_polling = false;
    flw_lock_release(&debug->lock);
}

/* ---- create, end */

static fallow_status pin_failed(struct flw_pool *pool, CUresult result)
{
    flw_pool_log(pool, FALLOW_LOG_ERROR,
                 "poison, red zones and quarantine: cuMemHostRegister failed with error %d on %zu "
                 "bytes for the checks",
                 (int)result, RING_BYTES);
    return result == CUDA_ERROR_OUT_OF_MEMORY   ? FALLOW_OUT_OF_HOST_MEMORY
           : result == CUDA_ERROR_NOT_SUPPORTED ? FALLOW_NOT_SUPPORTED
                                                : FALLOW_DRIVER;
}

static fallow_status pin_bytes(struct flw_pool *pool, struct flw_debug *debug)
{
    const struct flw_driver *driver = &pool->driver;
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    void *bytes =
        mmap(NULL, RING_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bytes == MAP_FAILED) {
        return FALLOW_OUT_OF_HOST_MEMORY;
    }
    /* If a forked child shared the pages, the next write would separate them from the device's. */
    (void)madvise(bytes, RING_BYTES, MADV_DONTFORK);
    if (driver->cuMemHostRegister_v2 != NULL && driver->cuMemHostUnregister != NULL) {
        result = driver->cuMemHostRegister_v2(bytes, RING_BYTES, CU_MEMHOSTREGISTER_PORTABLE);
    }
    if (result != CUDA_SUCCESS) {
        munmap(bytes, RING_BYTES);
        return pin_failed(pool, result);
    }
    debug->ring_bytes = bytes;
    return FALLOW_OK;
}

fallow_status flw_debug_make_ring(struct flw_pool *pool, struct flw_debug *debug)
{
    debug->ring = calloc(RING_ENTRIES, sizeof *debug->ring);
    if (debug->ring == NULL) {
        return FALLOW_OUT_OF_HOST_MEMORY;
    }
    fallow_status status = pin_bytes(pool, debug);
    if (status != FALLOW_OK) {
        return status;
    }
    for (unsigned i = 0; i < RING_ENTRIES; i++) {
        if (pool->driver.cuEventCreate(&debug->ring[i].event, CU_EVENT_DISABLE_TIMING) !=
            CUDA_SUCCESS) {
            debug->ring[i].event = NULL;
            return FALLOW_DRIVER;
        }
    }
    return FALLOW_OK;
}

void flw_debug_drop_ring(struct flw_pool *pool, struct flw_debug *debug, bool is_lost)
{
    for (unsigned i = 0; debug->ring != NULL && !is_lost && i < RING_ENTRIES; i++) {
        if (debug->ring[i].event != NULL) {
            (void)pool->driver.cuEventDestroy_v2(debug->ring[i].event);
        }
    }
    /* Memory that is still registered may be written by the device: it stays mapped. */
    if (debug->ring_bytes != NULL && !is_lost &&
        pool->driver.cuMemHostUnregister(debug->ring_bytes) == CUDA_SUCCESS) {
        munmap(debug->ring_bytes, RING_BYTES);
    }
    free(debug->ring);
}

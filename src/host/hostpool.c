/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the life of host pools: create, destroy, fork, handles; statistics, messages, validation.
 * Does not: allocate (hostalloc.c). */
#include "host/hostpool.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/handles.h"
#include "base/sized.h"

#define DEFAULT_SLACK_PERCENT 10
#define DEFAULT_WAIT_MS       100

/* ---- handles */

static struct flw_handle_place places[64];
static struct flw_handles table = FLW_HANDLES(FLW_HANDLE_HOST, places);

struct flw_hostpool *flw_hostpool_of(const fallow_host *handle)
{
    return flw_handles_find(&table, handle);
}

/* In the child of a fork the driver is dead, and a lock that another thread held stays locked. */
static void forget_pools(void)
{
    flw_handles_forget(&table);
}

static void watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, forget_pools);
}

/* Enter the pool into the table, as the last step. False: the table is full. */
static bool enter_table(struct flw_hostpool *pool)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    pool->handle = flw_handles_take(&table);
    if (pool->handle != NULL) {
        flw_handles_publish(&table, pool->handle, pool);
    }
    return pool->handle != NULL;
}

/* ---- messages */

fallow_status flw_hostpool_refuse(struct flw_hostpool *pool, fallow_status status,
                                  const char *format, ...)
{
    char line[FLW_DRIVER_MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    flw_lock_acquire(&pool->lock);
    memcpy(pool->error, line, sizeof line);
    flw_lock_release(&pool->lock);
    return status;
}

fallow_status flw_hostpool_refuse_lost(struct flw_hostpool *pool)
{
    const char *call = atomic_load(&pool->pin.lost_call);
    return flw_hostpool_refuse(
        pool, FALLOW_DEVICE_LOST,
        "%s returned %s: the device or its context is gone; destroy the host pool and create another",
        call != NULL ? call : "a driver call",
        flw_pin_error_name(&pool->pin, atomic_load(&pool->pin.lost_error)));
}

void flw_hostpool_log(struct flw_hostpool *pool, fallow_log_level level, const char *format, ...)
{
    char line[512];
    if (pool->config.log != NULL) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(line, sizeof line, format, arguments);
        va_end(arguments);
        struct flw_driver_section *paused = flw_section_pause();
        pool->config.log(pool->config.log_context, level, line);
        flw_section_resume(paused);
    }
}

void fallow_host_last_error(fallow_host *host, char *out_text, size_t text_bytes)
{
    struct flw_hostpool *pool = flw_hostpool_of(host);
    if (out_text == NULL || text_bytes == 0) {
        return;
    }
    out_text[0] = '\0';
    if (pool != NULL) {
        flw_lock_acquire(&pool->lock);
        size_t length = strnlen(pool->error, text_bytes - 1);
        memcpy(out_text, pool->error, length);
        out_text[length] = '\0';
        flw_lock_release(&pool->lock);
    }
}

/* ---- create, destroy */

FLW_DEFINE_INIT_SIZED(fallow_host_config)

/* Copy the part of the caller's struct that both know; the rest must be zero. */
static fallow_status read_config(const fallow_host_config *from, fallow_host_config *to)
{
    *to = (fallow_host_config){.struct_size = sizeof *to};
    if (from == NULL) {
        return FALLOW_OK;
    }
    if (from->struct_size < sizeof from->struct_size) {
        return FALLOW_VERSION;
    }
    const unsigned char *bytes = (const unsigned char *)from;
    for (size_t i = sizeof *to; i < from->struct_size; i++) {
        if (bytes[i] != 0) {
            return FALLOW_VERSION;
        }
    }
    memcpy(to, from, flw_min(from->struct_size, sizeof *to));
    return to->placement <= FALLOW_HOST_ON_NODE ? FALLOW_OK : FALLOW_INVALID_ARGUMENT;
}

static uint64_t half_of_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    return pages > 0 && page_bytes > 0 ? (uint64_t)pages * (uint64_t)page_bytes / 2 : FLW_GIB;
}

static void apply_defaults(struct flw_hostpool *pool)
{
    fallow_host_config *config = &pool->config;
    pool->limit_bytes = config->limit_bytes != 0 ? config->limit_bytes : half_of_memory();
    config->slack_percent =
        config->slack_percent != 0 ? config->slack_percent : DEFAULT_SLACK_PERCENT;
    config->wait_ms = config->wait_ms != 0 ? config->wait_ms : DEFAULT_WAIT_MS;
}

/* Log the reason: there is no pool to query. */
static fallow_status fail_create(const fallow_host_config *config, fallow_status status,
                                 const char *message)
{
    if (config->log != NULL) {
        char line[FLW_DRIVER_MESSAGE_BYTES];
        snprintf(line, sizeof line, "fallow_host_create: %s", fallow_status_message(status));
        config->log(config->log_context, FALLOW_LOG_ERROR, message[0] != '\0' ? message : line);
    }
    return status;
}

static struct flw_hostpool *new_pool(void)
{
    void *memory = mmap(NULL, sizeof(struct flw_hostpool), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory != MAP_FAILED ? memory : NULL;
}

static void finish(struct flw_hostpool *pool)
{
    flw_small_blocks_finish(&pool->small_blocks);
    flw_fences_finish(&pool->fences);
    flw_blocks_finish(&pool->blocks);
    flw_pages_finish(&pool->pages);
    munmap(pool, sizeof *pool);
}

static fallow_status begin(struct flw_hostpool *pool, fallow_pool *device_pool, char *message)
{
    fallow_status status = flw_pin_init(&pool->pin, device_pool, &pool->config, message);
    if (status != FALLOW_OK) {
        return status;
    }
    if (!flw_pages_init(&pool->pages) || !flw_blocks_init(&pool->blocks) ||
        !flw_fences_init(&pool->fences)) {
        return FALLOW_OUT_OF_HOST_MEMORY;
    }
    status = flw_small_blocks_init(&pool->small_blocks, &pool->pages, &pool->lock);
    if (status == FALLOW_NOT_SUPPORTED) {
        snprintf(
            message, FLW_DRIVER_MESSAGE_BYTES,
            "fallow_host_create: libjemalloc refuses an arena with custom hooks: install jemalloc 5.3 or newer, and link it into the executable");
    }
    return status;
}

fallow_status fallow_host_create(fallow_pool *device_pool, const fallow_host_config *config,
                                 fallow_host **out_host)
{
    fallow_host_config own;
    char message[FLW_DRIVER_MESSAGE_BYTES] = "";
    if (out_host == NULL) {
        return FALLOW_INVALID_ARGUMENT;
    }
    *out_host = NULL;
    fallow_status status = read_config(config, &own);
    if (status != FALLOW_OK) {
        return status;
    }
    struct flw_hostpool *pool = new_pool();
    if (pool == NULL) {
        return fail_create(&own, FALLOW_OUT_OF_HOST_MEMORY, message);
    }
    flw_lock_init(&pool->lock, FLW_RANK_PAGE);
    pool->config = own;
    apply_defaults(pool);
    status = begin(pool, device_pool, message);
    if (status == FALLOW_OK) {
        status = enter_table(pool) ? FALLOW_OK : FALLOW_OUT_OF_HOST_MEMORY;
    }
    if (status != FALLOW_OK) {
        finish(pool);
        return fail_create(&own, status, message);
    }
    *out_host = pool->handle;
    return FALLOW_OK;
}

#define GIVE_TRIES 3

/* Release a chunk, with retries; in a driver section. Makes driver calls. */
static void give_chunk_back(struct flw_hostpool *pool, const struct flw_chunk *chunk)
{
    CUresult result = CUDA_ERROR_UNKNOWN;
    for (unsigned n = 0; n < GIVE_TRIES && result != CUDA_SUCCESS; n++) {
        result = flw_pin_release(&pool->pin, chunk);
    }
    if (result != CUDA_SUCCESS) {
        flw_hostpool_log(pool, FALLOW_LOG_ERROR,
                         "fallow_host_destroy: the driver kept %llu pinned bytes: %s",
                         (unsigned long long)flw_chunk_bytes(chunk),
                         flw_pin_error_name(&pool->pin, (int)result));
    }
}

static void give_chunks_back(struct flw_hostpool *pool)
{
    struct flw_pin_section section;
    bool is_inside = false;
    for (unsigned n = 0; n < GIVE_TRIES && !is_inside; n++) {
        is_inside = flw_pin_enter(&pool->pin, &section, NULL);
    }
    if (!is_inside) { /* pinned memory ended with the context */
        if (!flw_pin_is_lost(&pool->pin) && pool->pages.chunk_count > 0) {
            flw_hostpool_log(pool, FALLOW_LOG_ERROR,
                             "fallow_host_destroy: the driver kept %llu pinned bytes: %s",
                             (unsigned long long)pool->reserved_bytes,
                             flw_pin_error_name(&pool->pin, (int)section.refusal));
        }
        return;
    }
    for (uint32_t i = 0; i < pool->pages.chunk_count && !flw_pin_is_lost(&pool->pin); i++) {
        give_chunk_back(pool, pool->pages.chunks[i]);
    }
    flw_pin_leave(&pool->pin, &section);
}

void fallow_host_destroy(fallow_host *host)
{
    struct flw_hostpool *pool = flw_handles_drop(&table, host);
    struct flw_pin_section section;
    if (pool == NULL) {
        return; /* of two threads that destroy one pool one gets it */
    }
    flw_pin_hold(&pool->pin, &section);
    fallow_status waited = FALLOW_TIMEOUT; /* retried if the driver refuses */
    for (unsigned n = 0; n < GIVE_TRIES && waited == FALLOW_TIMEOUT; n++) {
        waited = flw_fences_wait(pool, UINT64_MAX, NULL, NULL);
    }
    if (pool->live_count > 0) {
        flw_hostpool_log(
            pool, FALLOW_LOG_WARNING,
            "fallow_host_destroy: %llu blocks of %llu bytes were still allocated; their memory is released",
            (unsigned long long)pool->live_count, (unsigned long long)pool->requested_bytes);
    }
    flw_fences_release(pool);
    give_chunks_back(pool);
    flw_pin_leave(&pool->pin, &section);
    finish(pool);
    flw_handles_free(&table, host);
}

/* ---- queries */

FLW_DEFINE_INIT_SIZED(fallow_host_stats)

static void fill_stats(struct flw_hostpool *pool, fallow_host_stats *out)
{
    flw_lock_acquire(&pool->lock);
    *out = (fallow_host_stats){.requested_bytes = pool->requested_bytes,
                               .deferred_bytes = pool->deferred_bytes,
                               .reserved_bytes = pool->reserved_bytes,
                               .peak_requested_bytes = pool->peak_requested_bytes,
                               .peak_used_bytes = pool->peak_used_bytes,
                               .peak_reserved_bytes = pool->peak_reserved_bytes,
                               .bound_bytes = pool->bound_bytes,
                               .limit_bytes = pool->limit_bytes,
                               .live_count = pool->live_count,
                               .alloc_count = pool->alloc_count,
                               .free_count = pool->free_count,
                               .grow_count = pool->grow_count,
                               .release_count = pool->release_count,
                               .event_count = pool->fences.event_count,
                               .lost_streams = pool->fences.lost_count,
                               .stream_count = pool->fences.stream_count,
                               .numa_node = atomic_load(&pool->pin.node)};
    out->table_bytes = sizeof *pool + pool->fences.meta.used_bytes +
                       flw_blocks_table_bytes(&pool->blocks) + flw_pages_table_bytes(&pool->pages);
    flw_lock_release(&pool->lock);
    out->query_count = atomic_load(&pool->fences.query_count);
    out->wait_count = atomic_load(&pool->fences.wait_count);
    out->driver_call_count = atomic_load(&pool->pin.call_count);
    out->misuse_count = atomic_load(&pool->misuse_count);
    out->oom_count = atomic_load(&pool->oom_count);
}

fallow_status fallow_host_get_stats(fallow_host *host, fallow_host_stats *out_stats)
{
    struct flw_hostpool *pool = flw_hostpool_of(host);
    fallow_host_stats stats;
    if (out_stats == NULL || out_stats->struct_size < sizeof out_stats->struct_size) {
        return FALLOW_INVALID_ARGUMENT;
    }
    if (pool == NULL) {
        return FALLOW_INVALID_POOL;
    }
    size_t struct_size = out_stats->struct_size;
    fill_stats(pool, &stats);
    memset(out_stats, 0, struct_size);
    memcpy(out_stats, &stats, flw_min(struct_size, sizeof stats));
    out_stats->struct_size = struct_size;
    return FALLOW_OK;
}

struct sums {
    uint64_t allocated_bytes, deferred_bytes, allocated_count;
    bool is_wrong;
};

static void add_block(void *context, const struct flw_hostblock *block)
{
    struct sums *sums = context;
    sums->allocated_bytes += block->is_live ? block->bytes : 0;
    sums->allocated_count += block->is_live;
    sums->deferred_bytes += block->is_live ? 0 : block->bytes;
    sums->is_wrong |= !block->is_live && block->awaits == 0;
}

/* Lock held. */
static const char *broken_sums(struct flw_hostpool *pool)
{
    struct sums sums = {0};
    uint64_t reserved_bytes = 0, bound_bytes = 0;
    flw_blocks_visit(&pool->blocks, add_block, &sums);
    for (uint32_t i = 0; i < pool->pages.chunk_count; i++) {
        const struct flw_chunk *chunk = pool->pages.chunks[i];
        reserved_bytes += flw_chunk_bytes(chunk);
        bound_bytes += chunk->is_bound ? flw_chunk_bytes(chunk) : 0;
    }
    if (sums.allocated_bytes != pool->requested_bytes || sums.allocated_count != pool->live_count) {
        return "live blocks are miscounted";
    }
    if (sums.deferred_bytes != pool->deferred_bytes || sums.is_wrong) {
        return "deferred blocks are miscounted, or wait for nothing";
    }
    if (pool->moving_count == 0 &&
        (reserved_bytes != pool->reserved_bytes || bound_bytes != pool->bound_bytes)) {
        return "reserved_bytes is not the sum over chunks";
    }
    return pool->reserved_bytes > pool->limit_bytes ? "more is pinned than the limit allows" : NULL;
}

fallow_status fallow_host_validate(fallow_host *host)
{
    struct flw_hostpool *pool = flw_hostpool_of(host);
    if (pool == NULL) {
        return FALLOW_INVALID_POOL;
    }
    flw_lock_acquire(&pool->lock);
    const char *broken = flw_pages_broken_invariant(&pool->pages);
    broken = broken != NULL ? broken : flw_blocks_broken_invariant(&pool->blocks);
    broken = broken != NULL ? broken : flw_fences_broken_invariant(pool);
    broken = broken != NULL ? broken : broken_sums(pool);
    flw_lock_release(&pool->lock);
    return broken == NULL ? FALLOW_OK : flw_hostpool_refuse(pool, FALLOW_DRIVER, "%s", broken);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the real library behind the face of the property tests, on the simulated device.
 */
#include "support/pool_under_test.h"

#include "fallow/extend.h"
#include "fallow/trace.h"

static fallow_status create(const struct flw_driver *driver, const fallow_pool_config *config,
                            void **out_pool)
{
    (void)driver; /* the pool opens its own, the same shared object */
    fallow_pool *pool = NULL;
    fallow_pool_config own = *config;
    own.driver = "sim";
    own.wait_ms =
        own.wait_ms == 0 ? 1 : own.wait_ms; /* nothing completes while a held world waits */
    fallow_status status = fallow_pool_create(&own, &pool);
    *out_pool = pool;
    return status;
}

static void destroy(void *pool)
{
    fallow_pool_destroy(pool);
}

static fallow_status alloc(void *pool, size_t size, fallow_stream stream, void **out_ptr)
{
    return fallow_alloc(pool, size, stream, out_ptr);
}

static fallow_status alloc_aligned(void *pool, size_t size, size_t align, fallow_stream stream,
                                   void **out_ptr)
{
    return fallow_alloc_aligned(pool, size, align, stream, out_ptr);
}

static fallow_status free_block(void *pool, void *ptr, fallow_stream stream)
{
    return fallow_free(pool, ptr, stream);
}

static fallow_status free_sized(void *pool, void *ptr, size_t size, fallow_stream stream)
{
    return fallow_free_sized(pool, ptr, size, stream);
}

static fallow_status free_complete(void *pool, void *ptr)
{
    return fallow_free_complete(pool, ptr);
}

static fallow_status record_use(void *pool, void *ptr, fallow_stream stream)
{
    return fallow_record_use(pool, ptr, stream);
}

static fallow_status retire(void *pool, fallow_stream stream)
{
    return fallow_stream_retire(pool, stream);
}

static fallow_status trim(void *pool, size_t keep_bytes)
{
    /* Wait a millisecond, as an allocation does; held work does not complete. */
    fallow_status status = fallow_pool_trim(pool, keep_bytes, 1000000, NULL);
    return status == FALLOW_TIMEOUT ? FALLOW_OK : status;
}

static fallow_status get_stats(void *pool, fallow_stats *out_stats)
{
    fallow_stats_init(out_stats);
    return fallow_pool_get_stats(pool, out_stats);
}

static fallow_status alloc_request(void *pool, const fallow_request *request, fallow_stream stream,
                                   void **out_ptr)
{
    return fallow_alloc_request(pool, request, stream, out_ptr);
}

static fallow_status alloc_batch(void *pool, const size_t *sizes, size_t count,
                                 fallow_stream stream, void **out_ptrs)
{
    return fallow_alloc_batch(pool, sizes, count, stream, out_ptrs);
}

static fallow_status block_info(void *pool, const void *ptr, fallow_block *out_block)
{
    fallow_block_init(out_block);
    return fallow_block_info(pool, ptr, out_block);
}

static fallow_status trim_within(void *pool, size_t keep_bytes, uint64_t deadline_ns,
                                 size_t *out_released_bytes)
{
    return fallow_pool_trim(pool, keep_bytes, deadline_ns, out_released_bytes);
}

static fallow_status poll_pool(void *pool)
{
    return fallow_pool_poll(pool);
}

static fallow_status validate(void *pool)
{
    return fallow_pool_validate(pool);
}

static fallow_status capture_begin(void *pool, fallow_stream stream, fallow_capture **out_capture)
{
    return fallow_capture_begin(pool, stream, out_capture);
}

static fallow_status sleep_pool(void *pool, const fallow_sleep_request *request)
{
    return fallow_pool_sleep(pool, request);
}

static fallow_status wake(void *pool)
{
    return fallow_pool_wake(pool);
}

static fallow_status watch_sleep(void *pool, fallow_before_sleep_function before_sleep,
                                 fallow_after_wake_function after_wake, void *context)
{
    return fallow_pool_watch_sleep(pool, before_sleep, after_wake, context);
}

static fallow_status export_block(void *pool, const void *ptr, uint32_t type,
                                  fallow_share *out_share)
{
    fallow_share_init(out_share);
    return fallow_export(pool, ptr, type, out_share);
}

static fallow_status import(void *pool, const fallow_share *share, void **out_ptr)
{
    return fallow_import(pool, share, out_ptr);
}

static fallow_status unimport(void *pool, void *ptr)
{
    return fallow_unimport(pool, ptr);
}

static fallow_status set_peer(void *pool, int device, bool is_allowed)
{
    return is_allowed ? fallow_pool_allow_peer(pool, device) : fallow_pool_deny_peer(pool, device);
}

static fallow_status get_oom_report(void *pool, fallow_oom_report *out_report)
{
    fallow_oom_report_init(out_report);
    return fallow_pool_get_oom_report(pool, out_report);
}

static void abandon(void *pool)
{
    fallow_pool_abandon(pool);
}

static fallow_status record(void *pool, const char *path)
{
    fallow_recorder *recorder;
    fallow_record_config config = {.struct_size = sizeof config,
                                   .path = path,
                                   .flags = FALLOW_RECORD_BLOCK_WHEN_FULL,
                                   .stack_depth = 8};
    return fallow_record_start(pool, &config, &recorder);
}

const struct flw_put_ops flw_put_fallow = {
    .name = "fallow",
    .create = create,
    .destroy = destroy,
    .alloc = alloc,
    .alloc_aligned = alloc_aligned,
    .free = free_block,
    .free_sized = free_sized,
    .free_complete = free_complete,
    .record_use = record_use,
    .retire = retire,
    .trim = trim,
    .get_stats = get_stats,
    .alloc_request = alloc_request,
    .alloc_batch = alloc_batch,
    .block_info = block_info,
    .trim_within = trim_within,
    .poll = poll_pool,
    .validate = validate,
    .capture_begin = capture_begin,
    .capture_join = fallow_capture_join,
    .capture_end = fallow_capture_end,
    .capture_release = fallow_capture_release,
    .sleep = sleep_pool,
    .wake = wake,
    .watch_sleep = watch_sleep,
    .export_block = export_block,
    .import = import,
    .unimport = unimport,
    .set_peer = set_peer,
    .get_oom_report = get_oom_report,
    .abandon = abandon,
    .context_capture_begin = fallow_context_capture_begin,
    .context_capture_end = fallow_context_capture_end,
    .record = record,
    .exact_ledger = true,
    .stale_handles = true,
};

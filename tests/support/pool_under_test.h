/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: one interface for every pool in the property tests: the library and the oracle (oracle.c).
 * Does not: adapt semantics. A missing function is NULL, and the test skips the step. */
#ifndef FLW_TESTS_SUPPORT_POOL_UNDER_TEST_H
#define FLW_TESTS_SUPPORT_POOL_UNDER_TEST_H

#include <stdbool.h>

#include "driver/driver.h"

#include "fallow/fallow.h"
#include "fallow/share.h"
#include "fallow/sleep.h"

struct flw_put_ops {
    const char *name;
    fallow_status (*create)(const struct flw_driver *driver, const fallow_pool_config *config,
                            void **out_pool);
    void (*destroy)(void *pool);
    fallow_status (*alloc)(void *pool, size_t size, fallow_stream stream, void **out_ptr);
    fallow_status (*alloc_aligned)(void *pool, size_t size, size_t align, fallow_stream stream,
                                   void **out_ptr);
    fallow_status (*free)(void *pool, void *ptr, fallow_stream stream);
    fallow_status (*free_sized)(void *pool, void *ptr, size_t size, fallow_stream stream);
    fallow_status (*record_use)(void *pool, void *ptr, fallow_stream stream);
    fallow_status (*retire)(void *pool, fallow_stream stream);
    fallow_status (*trim)(void *pool, size_t keep_bytes);
    fallow_status (*get_stats)(void *pool, fallow_stats *out_stats);
    /* Optional. */
    fallow_status (*free_complete)(void *pool, void *ptr);
    fallow_status (*alloc_request)(void *pool, const fallow_request *request, fallow_stream stream,
                                   void **out_ptr);
    fallow_status (*alloc_batch)(void *pool, const size_t *sizes, size_t count,
                                 fallow_stream stream, void **out_ptrs);
    fallow_status (*block_info)(void *pool, const void *ptr, fallow_block *out_block);
    fallow_status (*trim_within)(void *pool, size_t keep_bytes, uint64_t deadline_ns,
                                 size_t *out_released_bytes);
    fallow_status (*poll)(void *pool);
    fallow_status (*validate)(void *pool);
    fallow_status (*capture_begin)(void *pool, fallow_stream stream, fallow_capture **out_capture);
    fallow_status (*capture_join)(fallow_capture *capture, fallow_stream stream);
    fallow_status (*capture_end)(fallow_capture *capture);
    fallow_status (*capture_release)(fallow_capture *capture);
    fallow_status (*sleep)(void *pool, const fallow_sleep_request *request);
    fallow_status (*wake)(void *pool);
    fallow_status (*watch_sleep)(void *pool, fallow_before_sleep_function before_sleep,
                                 fallow_after_wake_function after_wake, void *context);
    fallow_status (*export_block)(void *pool, const void *ptr, uint32_t type,
                                  fallow_share *out_share);
    fallow_status (*import)(void *pool, const fallow_share *share, void **out_ptr);
    fallow_status (*unimport)(void *pool, void *ptr);
    fallow_status (*set_peer)(void *pool, int device, bool is_allowed);
    fallow_status (*get_oom_report)(void *pool, fallow_oom_report *out_report);
    void (*abandon)(void *pool);
    /* Around captures, where pools are in context order. */
    void (*context_capture_begin)(void);
    void (*context_capture_end)(void);
    /* From now to the end of the pool, nothing lost, into a trace file. */
    fallow_status (*record)(void *pool, const char *path);
    bool exact_ledger;  /* reserved_bytes equals the driver's ledger; else it is at most that */
    bool stale_handles; /* a destroyed pool's handle may be passed */
};

struct flw_put {
    const struct flw_put_ops *ops;
    void *pool;
};

extern const struct flw_put_ops flw_put_fallow, flw_put_oracle;

#endif

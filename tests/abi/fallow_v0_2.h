/* SPDX-License-Identifier: Apache-2.0 */
/* The part of the first header of 0.2 that test_client_v0_2.c uses, with the order and types of every field. Do not
 * edit: the newest library serves programs that were compiled against it. */
#ifndef FALLOW_V0_2_H
#define FALLOW_V0_2_H

#include <stddef.h>
#include <stdint.h>

#define FALLOW_STATUS_LIST(X)       \
    X(OK, 0, "")                    \
    X(INVALID_ARGUMENT, 1, "")      \
    X(INVALID_POINTER, 2, "")       \
    X(INVALID_POOL, 3, "")          \
    X(INVALID_STREAM, 4, "")        \
    X(INVALID_CAPTURE, 5, "")       \
    X(CAPTURING, 6, "")             \
    X(BUSY, 7, "")                  \
    X(INVALID_RECORDER, 8, "")      \
    X(OUT_OF_MEMORY, 20, "")        \
    X(OUT_OF_HOST_MEMORY, 21, "")   \
    X(TIMEOUT, 22, "")              \
    X(WOULD_WAIT, 23, "")           \
    X(OUT_OF_PINNED_MEMORY, 24, "") \
    X(ASLEEP, 25, "")               \
    X(RECORDS_LOST, 26, "")         \
    X(NOT_FOUND, 40, "")            \
    X(VERSION, 41, "")              \
    X(NOT_SUPPORTED, 42, "")        \
    X(DRIVER, 43, "")               \
    X(IO, 44, "")                   \
    X(DEVICE_LOST, 60, "")
typedef enum fallow_status {
#define X(name, value, text) FALLOW_##name = value,
    FALLOW_STATUS_LIST(X)
#undef X
} fallow_status;

typedef struct CUstream_st *fallow_stream;
typedef struct fallow_pool fallow_pool;
typedef enum {
    FALLOW_BALANCED,
    FALLOW_MEMORY_FIRST
} fallow_economy;
typedef enum {
    FALLOW_BLOCK_LIVE
} fallow_block_state;

typedef struct fallow_pool_config {
    size_t struct_size;
    int device;
    const char *driver;
    void *context;
    size_t limit_bytes;
    fallow_economy economy;
    size_t cache_bytes;
    uint32_t decay_ms;
    int reuse_policy;
    uint32_t checks;
    uint8_t streams_may_die, helper_thread, reserved_0[2];
    uint32_t wait_ms;
    const int *peer_devices;
    size_t peer_device_count;
    uint32_t handle_types;
    int order;
    void (*log)(void *context, int level, const char *message);
    void *log_context;
    int (*on_oom)(void *context, size_t size_bytes, fallow_stream stream);
    void *oom_context;
    int page_source;
    uint32_t reserved_1;
    size_t one_handle_bytes;
} fallow_pool_config;

typedef struct fallow_request {
    size_t struct_size, size_bytes, align_bytes;
    uint32_t flags, tag;
} fallow_request;

typedef struct fallow_block {
    size_t struct_size;
    void *base;
    size_t requested_bytes, usable_bytes;
    uint64_t stream_id;
    uint32_t tag;
    fallow_block_state state;
    uint64_t handle;
    size_t handle_offset, handle_bytes;
} fallow_block;

typedef struct fallow_stats {
    size_t struct_size;
    uint64_t requested_bytes, live_bytes, reserved_bytes;
    uint64_t peak_requested_bytes, peak_live_bytes, peak_reserved_bytes;
    uint64_t alloc_count, free_count, zero_size_count, hit_count, event_count, steal_count;
    uint64_t wait_count, driver_call_count, remap_count, remap_wait_count, grow_count, trim_count;
    uint64_t lost_streams, misuse_count, oom_count;
    uint64_t cached_bytes, deferred_bytes, captured_bytes, host_bytes, live_count;
    uint32_t stream_count;
    uint8_t uses_vmm, uses_membarrier, is_asleep, lost_membarrier;
    uint64_t damage_count, unchecked_count, asleep_bytes, saved_bytes;
    uint64_t exported_bytes, imported_bytes, bound_bytes;
    uint32_t handle_types;
    uint8_t page_source, allows_rdma, reserved_1[2];
} fallow_stats;

typedef struct fallow_oom_owner {
    uint64_t stream_id;
    uint32_t tag, count;
    uint64_t bytes;
} fallow_oom_owner;

typedef struct fallow_oom_report {
    size_t struct_size;
    uint64_t size_bytes, limit_bytes, reserved_bytes, requested_bytes, free_bytes;
    uint64_t largest_free_bytes, deferred_bytes, captured_bytes, device_free_bytes;
    double fragmentation;
    uint64_t stage_count[12], stage_ns[12];
    uint32_t owner_count, reserved_0;
    fallow_oom_owner owners[8];
} fallow_oom_report;

#define SIZED(type)                                                             \
    void fallow_##type##_init_sized(fallow_##type *object, size_t struct_size); \
    static inline void fallow_##type##_init(fallow_##type *object)              \
    {                                                                           \
        fallow_##type##_init_sized(object, sizeof *object);                     \
    }
SIZED(pool_config)
SIZED(request)
SIZED(block)
SIZED(stats)
SIZED(oom_report)

const char *fallow_status_name(int status);
fallow_status fallow_pool_create(const fallow_pool_config *config, fallow_pool **out_pool);
void fallow_pool_destroy(fallow_pool *pool);
fallow_status fallow_alloc(fallow_pool *pool, size_t bytes, fallow_stream stream, void **out_ptr);
fallow_status fallow_alloc_aligned(fallow_pool *pool, size_t bytes, size_t align_bytes,
                                   fallow_stream stream, void **out_ptr);
fallow_status fallow_alloc_request(fallow_pool *pool, const fallow_request *request,
                                   fallow_stream stream, void **out_ptr);
fallow_status fallow_alloc_batch(fallow_pool *pool, const size_t *sizes, size_t count,
                                 fallow_stream stream, void **out_ptrs);
fallow_status fallow_free(fallow_pool *pool, void *ptr, fallow_stream stream);
fallow_status fallow_free_sized(fallow_pool *pool, void *ptr, size_t bytes, fallow_stream stream);
fallow_status fallow_block_info(fallow_pool *pool, const void *ptr, fallow_block *out_block);
fallow_status fallow_pool_get_stats(fallow_pool *pool, fallow_stats *out_stats);
fallow_status fallow_pool_get_oom_report(fallow_pool *pool, fallow_oom_report *out_report);
fallow_status fallow_pool_trim(fallow_pool *pool, size_t keep_bytes, uint64_t deadline_ns,
                               size_t *out_released_bytes);
fallow_status fallow_pool_poll(fallow_pool *pool);
fallow_status fallow_pool_validate(fallow_pool *pool);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the stats page, a snapshot of a process's pools, and the encoding on a stats file. Does not: read pools
 * (collect.c), or show anything (the tools).
 *
 * The encoding is 64-bit words, little-endian. Each kind of record has the number of words: a later version may append
 * words, which an earlier reader skips, and words that an earlier version lacks read as 0.
 *
 *   words of the head    process, process name (2 words of text), clock, count of pools, count of pools below
 *   per pool             words; values (FLW_STATS_PAGE_VALUES), stages (count and ns), driver (4 words)
 *                        classes, words of one; the classes
 *                        streams, words of one; the streams
 *                        holders, words of one; the holders
 *                        arenas, words of one; the arenas
 */
#ifndef FLW_PUBLISH_STATS_PAGE_H
#define FLW_PUBLISH_STATS_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FLW_STATS_PAGE_STAGES  12
#define FLW_STATS_PAGE_CLASSES 74 /* the size classes, and all runs as one */
#define FLW_STATS_PAGE_STREAMS 64 /* rows of their own; all others share one more row */
#define FLW_STATS_PAGE_HOLDERS 48 /* the same */
#define FLW_STATS_PAGE_ARENAS  32 /* most arenas of a pool in a stats page */

#define FLW_STATS_PAGE_FRAMES_BYTES 1000

/* X(name, source, kind, help): the numbers of a pool. Append only: the order is the format. Those
 * of fallow_stats (STATS) keep their names. TOTAL increases while the pool lives; VALUE may
 * decrease. */
#define FLW_STATS_PAGE_VALUES(X)                                                                 \
    X(number, POOL, LABEL, "of the pool in its process")                                         \
    X(device, POOL, LABEL, "ordinal of the device")                                              \
    X(limit_bytes, POOL, VALUE, "most that the driver may have given")                           \
    X(device_bytes, POOL, VALUE, "memory of the device")                                         \
    X(requested_bytes, STATS, VALUE, "live blocks, requested bytes")                             \
    X(live_bytes, STATS, VALUE, "live blocks, as given")                                         \
    X(reserved_bytes, STATS, VALUE, "allocated from the driver")                                 \
    X(peak_requested_bytes, STATS, VALUE, "most requested_bytes")                                \
    X(peak_live_bytes, STATS, VALUE, "most live_bytes that was seen")                            \
    X(peak_reserved_bytes, STATS, VALUE, "most reserved_bytes")                                  \
    X(cached_bytes, STATS, VALUE, "free, in thread caches")                                      \
    X(free_bytes, POOL, VALUE, "free and mapped, in the heap")                                   \
    X(unmapped_bytes, POOL, VALUE, "reserved and mapped nowhere")                                \
    X(deferred_bytes, STATS, VALUE, "freed, no stream's yet")                                    \
    X(captured_bytes, STATS, VALUE, "free memory that captures hold")                            \
    X(host_bytes, STATS, VALUE, "host memory of the pool's tables")                              \
    X(live_count, STATS, VALUE, "blocks allocated")                                              \
    X(stream_count, STATS, VALUE, "streams known")                                               \
    X(thread_cache_count, POOL, VALUE, "thread caches, one a thread and stream")                 \
    X(capture_count, POOL, VALUE, "captures under way")                                          \
    X(alloc_count, STATS, TOTAL, "blocks allocated so far; size 0 apart")                        \
    X(free_count, STATS, TOTAL, "blocks freed so far")                                           \
    X(zero_size_count, STATS, TOTAL, "requests of size 0")                                       \
    X(hit_count, STATS, TOTAL, "allocations served by a thread cache")                           \
    X(event_count, STATS, TOTAL, "events recorded")                                              \
    X(query_count, POOL, TOTAL, "events queried")                                                \
    X(steal_count, STATS, TOTAL, "batches or runs taken from another stream with a device wait") \
    X(wait_count, STATS, TOTAL, "host waits for the device")                                     \
    X(stream_wait_count, POOL, TOTAL, "waits given to streams")                                  \
    X(driver_call_count, STATS, TOTAL, "all driver calls")                                       \
    X(remap_count, STATS, TOTAL, "handles moved")                                                \
    X(remap_wait_count, STATS, TOTAL, "moves that had to wait for the device")                   \
    X(grow_count, STATS, TOTAL, "growth operations")                                             \
    X(trim_count, STATS, TOTAL, "handles released")                                              \
    X(lost_streams, STATS, TOTAL, "streams destroyed without retire")                            \
    X(misuse_count, STATS, TOTAL, "frees refused")                                               \
    X(oom_count, STATS, TOTAL, "allocations that failed after the whole ladder")                 \
    X(damage_count, STATS, TOTAL, "debug checks: red zones and freed blocks found written")      \
    X(unchecked_count, STATS, TOTAL, "debug checks left out")                                    \
    X(uses_vmm, STATS, VALUE, "1: address space and physical memory are separate")               \
    X(uses_membarrier, STATS, VALUE, "0: no call is a hit")                                      \
    X(is_lost, POOL, VALUE, "1: the device is lost")                                             \
    X(is_recorded, POOL, VALUE, "1: being recorded")                                             \
    X(last_climb_stage, POOL, LABEL,                                                             \
      "stage that served the last climb above the first, plus 1; 0 none")                        \
    X(last_climb_bytes, POOL, VALUE, "size of that request")                                     \
    X(is_asleep, STATS, VALUE, "1: the memory is released, the addresses are kept")              \
    X(asleep_bytes, STATS, VALUE, "bytes that the next wake allocates")                          \
    X(saved_bytes, STATS, VALUE, "contents in pinned host memory while asleep")                  \
    X(exported_bytes, STATS, VALUE, "handles that were exported")                                \
    X(imported_bytes, STATS, VALUE, "handles of others that are mapped here")                    \
    X(lost_membarrier, STATS, VALUE,                                                             \
      "1: the kernel has refused membarrier since the pool was made")                            \
    X(has_context_order, POOL, VALUE, "1: calls name no stream")                                 \
    X(idle_bytes, STATS, VALUE, "reserved, and neither live, cached, deferred nor captured")     \
    X(arena_bytes, POOL, VALUE, "live blocks that arenas hold")                                  \
    X(arena_count, POOL, VALUE, "arenas")

enum flw_stats_page_value {
#define X(name, source, kind, help) FLW_VALUE_##name,
    FLW_STATS_PAGE_VALUES(X)
#undef X
    FLW_VALUE_COUNT
};

/* One size class, or the runs: blocks above the largest class. Reserved memory that is neither
 * live, cached nor deferred is free in the slabs. */
struct flw_stats_page_class {
    uint64_t size_bytes;     /* of a block; 0: runs */
    uint64_t reserved_bytes; /* the slabs; of runs: those that are not free */
    uint64_t live_count, live_bytes, requested_bytes;
    uint64_t cached_bytes; /* in thread caches */
    uint64_t deferred_bytes;
};

enum flw_stats_page_kind {
    FLW_STATS_PAGE_STREAM, /* tracked by the pool */
    FLW_STATS_PAGE_GONE,   /* retired or lost, with blocks still allocated or memory not yet
                             complete */
    FLW_STATS_PAGE_SHARED, /* of no single stream: free for any, of the context, or of several streams */
    FLW_STATS_PAGE_REST /* the sum over further streams; `id` is their number */
};

/* Blocks count for the stream that allocated them. Counts and hits are of the present caches. */
struct flw_stats_page_stream {
    uint64_t kind;   /* enum flw_stats_page_kind */
    uint64_t id;     /* cuStreamGetId; 0 unknown */
    uint64_t handle; /* as the program uses it; 0 is also the default stream */
    uint64_t live_count, live_bytes, requested_bytes;
    uint64_t cached_bytes, free_bytes, captured_bytes;
    uint64_t alloc_count, hit_count;
    uint64_t cache_count; /* threads that use it */
    uint64_t fence_count; /* recorded, and not yet found complete */
};

/* Live blocks allocated from one call stack, if the pool is recorded with stacks. The frames have
 * a line each for function, file and line number: those of Python first, then those of C, both
 * with the innermost first, in whole frames as far as there is room. */
struct flw_stats_page_holder {
    uint64_t stack_count; /* 1; in the last entry the number of further stacks, if there are too
                         many */
    uint64_t live_count, requested_bytes;
    char frames[FLW_STATS_PAGE_FRAMES_BYTES]; /* padded with zero bytes, at least one */
};

/* An arena and the memory. */
struct flw_stats_page_arena {
    uint64_t scratch_bytes, persistent_bytes;
    uint64_t lease_count;
    uint64_t capture_count;        /* captures with graphs that hold addresses of the arena */
    uint64_t is_leased, is_locked; /* 0 or 1 */
    char name[64];                 /* padded with zero bytes, at least one */
};

struct flw_stats_page_pool {
    uint64_t value[FLW_VALUE_COUNT];
    uint64_t stage_count[FLW_STATS_PAGE_STAGES], stage_ns[FLW_STATS_PAGE_STAGES];
    char driver[32]; /* as in the config; "" = libcuda.so.1; truncated */
    uint32_t class_count, stream_count, holder_count, arena_count;
    struct flw_stats_page_class classes[FLW_STATS_PAGE_CLASSES]; /* those with memory, ascending */
    struct flw_stats_page_stream streams[FLW_STATS_PAGE_STREAMS + 1]; /* most memory first */
    struct flw_stats_page_holder holders[FLW_STATS_PAGE_HOLDERS + 1]; /* the same */
    struct flw_stats_page_arena arenas[FLW_STATS_PAGE_ARENAS];        /* in no order */
};

struct flw_stats_page {
    uint64_t process;
    char name[16];
    uint64_t clock_ns;   /* CLOCK_MONOTONIC when it was composed */
    uint64_t pool_total; /* number of pools */
    uint32_t pool_count; /* pools in the stats page: fewer if the stats file is full */
    struct flw_stats_page_pool *pools;
};

/* Return the name of a stage of the pool's ladder; NULL: that ladder has no such stage. */
const char *flw_stats_page_stage(const struct flw_stats_page_pool *pool, uint64_t stage);

/* ---- writing: head, pools, end */

struct flw_stats_page_writer {
    unsigned char *bytes;
    size_t capacity, used;
    uint32_t pool_count;
};

void flw_stats_page_begin(struct flw_stats_page_writer *writer, void *bytes, size_t capacity);
/* Append a pool. If the pool does not fit, leave out the holders, then classes, streams and
 * arenas, then the pool. */
void flw_stats_page_add(struct flw_stats_page_writer *writer,
                        const struct flw_stats_page_pool *pool);
/* Write the head; `stats page`'s pools are ignored. Returns the bytes used. */
size_t flw_stats_page_end(struct flw_stats_page_writer *writer,
                          const struct flw_stats_page *stats_page);

/* ---- reading */

/* False: broken, or no host memory; nothing is held. drop frees `stats page->pools`. */
bool flw_stats_page_read(struct flw_stats_page *stats_page, const void *bytes, size_t count);
void flw_stats_page_drop(struct flw_stats_page *stats_page);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: reading a pool for a stats page. It reads data that owners write anyway, and holds the
 * pool's locks for at most some ten thousand instructions at a time; the pool's callers do no
 * extra work. Makes no driver calls and allocates no host memory except the collector. */
#ifndef FLW_PUBLISH_COLLECT_H
#define FLW_PUBLISH_COLLECT_H

#include "pool/pool.h"
#include "publish/stats_page.h"

#define FLW_COLLECT_ROWS (FLW_STREAM_NUMBER_COUNT + 1)

/* Work space; large, and used as far as there are streams. Zeros are a new one. */
struct flw_collector {
    uint32_t row_of[FLW_STREAM_NUMBER_COUNT]; /* 1 + row of a stream's number; 0 none */
    uint32_t number_of[FLW_COLLECT_ROWS];
    uint32_t row_count;
    struct flw_stats_page_stream rows[FLW_COLLECT_ROWS];
    struct flw_stats_page_class classes[FLW_STATS_PAGE_CLASSES]; /* by index, runs last */
    uint64_t free_run_bytes;
};

/* Read a pool. Exact if no thread is inside a call on it, otherwise each number is read at about
 * the same moment. The pool is being visited (flw_pool_table_each). */
void flw_collect_pool(struct flw_collector *collector, struct flw_pool *pool,
                      struct flw_stats_page_pool *out_pool);

#endif

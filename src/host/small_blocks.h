/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: blocks below four pages: a jemalloc arena with runs of pinned pages as extents.
 *
 * The hooks give pages to jemalloc and take them back; they make no driver call, so none runs
 * under jemalloc's locks. Without pages an allocation fails, and the caller pins more and retries.
 * jemalloc's own metadata stays in ordinary memory (metadata_use_hooks off), nothing is purged,
 * decommitted or zeroed, and decay is off: flw_small_blocks_flush returns the free pages.
 *
 * Larger blocks are runs of pages: jemalloc's size classes for them, four per doubling and a page
 * of padding, would cost up to a quarter.
 *
 * Synchronization: `lock` around the explicit cache, held over jemalloc, which may call the hooks,
 * which take the pool's lock. jemalloc may also call them from a thread of its own. */
#ifndef FLW_HOST_SMALL_BLOCKS_H
#define FLW_HOST_SMALL_BLOCKS_H

#include <stddef.h>

#include "base/lock.h"
#include "host/pages.h"

#include "fallow/status.h"

#include <jemalloc/jemalloc.h>

#define FLW_SMALL_ALIGN_LOG2 6 /* a line: two blocks never share one */

struct flw_small_blocks {
    extent_hooks_t hooks; /* first: the hooks find the other fields by it */
    struct flw_lock lock;
    struct flw_lock *pages_lock; /* the pool's */
    struct flw_pages *pages;
    unsigned arena, cache; /* jemalloc's numbers */
    int flags;             /* of mallocx */
    size_t most_bytes;     /* the largest size served here */
    _Atomic bool
        takes_any; /* of the present take; relaxed: a hook in jemalloc's own thread may miss
                       the change */
    bool is_open;
};

/* NOT_SUPPORTED: jemalloc cannot keep the metadata separate (before 5.3). OUT_OF_HOST_MEMORY. */
fallow_status flw_small_blocks_init(struct flw_small_blocks *small_blocks, struct flw_pages *pages,
                                    struct flw_lock *pages_lock);
/* Free everything, allocated blocks included. */
void flw_small_blocks_finish(struct flw_small_blocks *small_blocks);

/* NULL: no pages; pages of chunks for larger blocks are taken only with `takes_any`. */
void *flw_small_blocks_take(struct flw_small_blocks *small_blocks, size_t bytes, bool takes_any);
/* Call several times between begin and end. */
void flw_small_blocks_begin_put(struct flw_small_blocks *small_blocks);
void flw_small_blocks_put(struct flw_small_blocks *small_blocks, void *block, size_t bytes);
void flw_small_blocks_end_put(struct flw_small_blocks *small_blocks);
/* Return every page without a block to the runs. */
void flw_small_blocks_flush(struct flw_small_blocks *small_blocks);

#endif

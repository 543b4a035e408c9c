/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: blocks below four pages: a jemalloc arena with runs of pinned pages as extents.
 *
 * The hooks give pages to jemalloc and take them back; they make no driver call, so none runs
 * under jemalloc's locks. Without pages an allocation fails, and the caller pins more and retries.
 * jemalloc's own metadata stays in ordinary memory (metadata_use_hooks off), nothing is purged,
 * decommitted or zeroed, and decay is off: flw_smalls_flush returns the free pages.
 *
 * Larger blocks are runs of pages: jemalloc's size classes for them, four per doubling and a page
 * of padding, would cost up to a quarter.
 *
 * Synchronization: `lock` around the explicit cache, held over jemalloc, which may call the hooks,
 * which take the pool's lock. jemalloc may also call them from a thread of its own. */
#ifndef FLW_HOST_SMALLS_H
#define FLW_HOST_SMALLS_H

#include <stddef.h>

#include "base/lock.h"
#include "host/pages.h"

#include "fallow/status.h"

#include <jemalloc/jemalloc.h>

#define FLW_SMALL_ALIGN_LOG2 6 /* a line: two blocks never share one */

struct flw_smalls {
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
fallow_status flw_smalls_init(struct flw_smalls *smalls, struct flw_pages *pages,
                              struct flw_lock *pages_lock);
/* Free everything, allocated blocks included. */
void flw_smalls_finish(struct flw_smalls *smalls);

/* NULL: no pages; pages of chunks for larger blocks are taken only with `takes_any`. */
void *flw_smalls_take(struct flw_smalls *smalls, size_t bytes, bool takes_any);
/* Call several times between begin and end. */
void flw_smalls_begin_put(struct flw_smalls *smalls);
void flw_smalls_put(struct flw_smalls *smalls, void *block, size_t bytes);
void flw_smalls_end_put(struct flw_smalls *smalls);
/* Return every page without a block to the runs. */
void flw_smalls_flush(struct flw_smalls *smalls);

#endif

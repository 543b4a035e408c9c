/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: graph captures and their interface for the rest of the pool. Synchronization: pool, handle
 * and index are immutable from begin on; everything else under the pool's heap lock.
 *
 * A capture has a place in the table of captures (base/handles.h). Holders of the handle enter as
 * visitors. Captured streams and domains of the capture store the index. It belongs to this
 * capture until none of them stores it; the heap lock guards that. */
#ifndef FLW_POOL_CAPTURE_H
#define FLW_POOL_CAPTURE_H

#include "heap/heap.h"

#include "fallow/fallow.h"

struct flw_pool;

#define FLW_CAPTURE_STREAMS 32

struct flw_capture {
    struct flw_pool *pool;
    fallow_capture *handle;
    uint32_t index;        /* 1 + place */
    bool is_capturing;     /* between begin and end */
    bool is_released;      /* the handle is gone; the memory and place too, once no thread is
                               inside */
    uint32_t inside_count; /* allocations under way from the memory */
    uint64_t idle_bytes;   /* part of pool.captured_idle_bytes: 0 during the capture */
    uint32_t stream_count;
    struct flw_domain *stream_domains[FLW_CAPTURE_STREAMS]; /* the streams' own domains */
    struct flw_domain *domains[FLW_CAPTURE_STREAMS];        /* the capture's, one for each */
    struct flw_domain *kept;     /* a domain that serves no request: captured blocks with a next
                                 use that no stream of the capture orders; NULL: none yet */
    struct flw_deferred *parked; /* ordinary blocks freed on the streams, until the end */
};

/* Return the capture that a stream is in; NULL: none, which costs one load if nothing
 * is captured. */
fallow_capture *flw_capture_of(struct flw_pool *pool, fallow_stream stream);
/* Return the stream that a capture under way of the pool began on; NULL: it is not under way. */
struct flw_domain *flw_capture_origin(struct flw_pool *pool, const fallow_capture *handle);
/* True until the capture is released or the pool ends. */
bool flw_capture_lives(const fallow_capture *handle);
/* Enter the capture of a stream: return the domain, NULL: the stream is not captured. Until it is
 * left, other threads may end and release the capture, but the memory and domains stay; the last
 * to leave frees them. */
struct flw_domain *flw_capture_enter(struct flw_pool *pool, const struct flw_domain *stream_domain);
void flw_capture_leave(struct flw_pool *pool, const struct flw_domain *domain);
/* Return the new owner of a captured block of `domain` freed on another stream: that stream's
 * domain in the same capture, which orders the free, or one that serves nothing before release;
 * the stream itself after release. NULL: no host memory. Heap lock held. */
struct flw_domain *flw_capture_home_of(struct flw_pool *pool, struct flw_domain *domain,
                                       struct flw_domain *freeing, bool has_uses);
/* Park an ordinary block freed on a captured stream. */
fallow_status flw_capture_park(struct flw_pool *pool, struct flw_domain *domain,
                               struct flw_slot *slot);
/* Capture again with the memory of an ended capture: the free memory serves the streams that join.
 * The caller guarantees that the graphs are never launched at the same time. BUSY: it is
 * capturing. */
fallow_status flw_capture_resume(fallow_capture *handle, fallow_stream stream);
/* At the end of the pool, or when abandoned: refuse handles of the captures. Waits
 * for no thread. */
void flw_captures_forget(struct flw_pool *pool);
void flw_captures_forget_all(void); /* in the child of a fork */
/* CAPTURING if the stream is being captured without an announcement. Makes a driver call. */
fallow_status flw_capture_check(struct flw_pool *pool, struct flw_domain *domain);

#endif

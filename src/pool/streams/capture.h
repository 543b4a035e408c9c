/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what one graph capture is, and what the rest of the pool asks of it. Synchronization: pool,
 * handle and index are immutable from begin on; everything else under the pool's heap lock.
 *
 * A capture has a place of the table of captures (base/handles.h). Who has its handle comes as a visitor.
 * A stream that is captured and a domain of the capture have its index: under the heap lock, while they
 * have it, the place is that capture's.
 */
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
    bool is_released;      /* its handle is gone; its memory and place too, once no thread is
                              inside */
    uint32_t inside_count; /* allocations under way from its memory */
    uint64_t idle_bytes;   /* of pool.captured_idle_bytes: 0 during the capture */
    uint32_t stream_count;
    struct flw_domain *stream_domains[FLW_CAPTURE_STREAMS]; /* the streams' own domains */
    struct flw_domain *domains[FLW_CAPTURE_STREAMS];        /* the capture's, one for each */
    struct flw_domain *kept; /* a domain that serves no request: captured blocks whose next use no
                                stream of the capture orders; NULL: none yet */
    struct flw_deferred *parked; /* ordinary blocks freed on its streams, until its end */
};

/* The capture that a stream is in; NULL: none, which is one load while nothing is captured. */
fallow_capture *flw_capture_of(struct flw_pool *pool, fallow_stream stream);
/* Of a capture of the pool that is under way, the stream it began on; NULL: it is not. */
struct flw_domain *flw_capture_origin(struct flw_pool *pool, const fallow_capture *handle);
/* Has the capture not been released yet, nor its pool ended? */
bool flw_capture_lives(const fallow_capture *handle);
/* The capture's domain for a stream that is being captured, NULL: it is not. Until it is left again
 * the capture may be ended and released by others, but keeps its memory and its domains: whoever
 * leaves last gives them up. */
struct flw_domain *flw_capture_enter(struct flw_pool *pool, const struct flw_domain *stream_domain);
void flw_capture_leave(struct flw_pool *pool, const struct flw_domain *domain);
/* heap lock. Who gets a captured block of `domain` that is freed on another stream: the domain of
 * that stream in the same capture, whose order the free is in, or one that serves nothing before
 * release; the stream itself once the capture is released. NULL: host memory. */
struct flw_domain *flw_capture_home_of(struct flw_pool *pool, struct flw_domain *domain,
                                       struct flw_domain *freeing, bool has_uses);
/* Park an ordinary block freed on a captured stream. */
fallow_status flw_capture_park(struct flw_pool *pool, struct flw_domain *domain,
                               struct flw_slot *slot);
/* Capture again into what an ended capture has: its free memory serves the streams that join it. The
 * caller sees to it that the graphs are never launched at once. BUSY: it is capturing. */
fallow_status flw_capture_resume(fallow_capture *handle, fallow_stream stream);
/* The pool ends, or is abandoned: handles of its captures are refused. Waits for no thread. */
void flw_captures_forget(struct flw_pool *pool);
void flw_captures_forget_all(void); /* in the child of a fork */
/* CAPTURING if the stream is being captured and was not announced. Driver call. */
fallow_status flw_capture_check(struct flw_pool *pool, struct flw_domain *domain);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: one whole capture of a correct program: announce, capture, allocate and free inside, a
 * joining second stream, launches, release. Does not: choose when to capture. */
#ifndef FLW_TESTS_SUPPORT_CLIENT_CAPTURE_H
#define FLW_TESTS_SUPPORT_CLIENT_CAPTURE_H

#include "support/client.h"

struct flw_client_capture {
    uint32_t stream;    /* used by nobody else; holds no block that waits for readers */
    uint32_t joined[2]; /* two more private streams, possibly the same; equal to `stream`: none
                            joins */
    size_t most_bytes;  /* of one block */
    bool dies;  /* `stream` is renewed (flw_client_renew_stream) before the capture is released,
                  or before the pool is informed of the end, and then no graph is launched */
    bool tells; /* retire the stream first, if permitted */
    /* Called while the streams capture; must leave both alone. NULL: nothing. */
    void (*between)(void *context);
    void *context;
};

/* Returns OK; OUT_OF_MEMORY if the pool returned it (the capture was ended and released properly);
 * a status that flw_client_forgives accepts; any other status after an error, with a line on
 * stderr. Blocks may stay allocated, with `stream` as home. */
fallow_status flw_client_capture_run(struct flw_client *client,
                                     const struct flw_client_capture *how);

#endif

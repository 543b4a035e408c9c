/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: one whole capture as a correct program makes it: announce, capture, allocate and free
 * inside, a second stream that joins, launches, release. Does not: choose when.
 */
#ifndef FLW_TESTS_SUPPORT_CLIENT_CAPTURE_H
#define FLW_TESTS_SUPPORT_CLIENT_CAPTURE_H

#include "support/client.h"

struct flw_client_capture {
    uint32_t stream;    /* its own: nobody else uses it; holds no block that waits for readers */
    uint32_t joined[2]; /* others of its own, which may be one; the same as `stream` = none joins */
    size_t most_bytes;  /* of one block */
    bool
        dies; /* `stream` is renewed (flw_client_renew_stream) before the capture is released, or before
                           the pool is informed of its end, and then no graph is launched */
    bool tells; /* retire the stream first, if permitted */
    /* Called while the streams capture; must leave both alone. NULL: nothing. */
    void (*between)(void *context);
    void *context;
};

/* OK; OUT_OF_MEMORY when the pool said so (the capture was ended and released in good order);
 * what flw_client_forgives; anything else, after a line on stderr, when something happened that must
 * not. Blocks may stay allocated:
 * their home is `stream`. */
fallow_status flw_client_capture_run(struct flw_client *client,
                                     const struct flw_client_capture *how);

#endif

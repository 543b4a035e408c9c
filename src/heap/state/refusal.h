/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what a heap remembers of a growth that the driver refused. Does not: call the driver, or know of
 * memory that it has not.
 *
 * A refusal usually lasts (a permission, a kind of machine), and asking again costs every request
 * driver calls. So a growth like the refused one backs off: 0 growths go without asking after the
 * first refusal, then 1, 3, 7 and so on. A caller that would fail without an answer insists on one;
 * any other answer ends the back-off. Only where something has to go back to the driver before it
 * can be asked, and may not come again, such requests take their turn among the others.
 */
#ifndef FLW_HEAP_STATE_REFUSAL_H
#define FLW_HEAP_STATE_REFUSAL_H

#include <stdbool.h>
#include <stdint.h>

#define FLW_REFUSAL_SPARES_MOST 1023

/* Zero: none is remembered. Synchronization: the heap lock. */
struct flw_refused_growth {
    bool is_refused;
    uint64_t
        bytes; /* of the smallest new handle or segment that was; 0: nothing is mapped either */
    uint32_t spared; /* growths that went without since */
    uint32_t spares; /* how many are to go without */
};

/* Is a new handle or segment of so many bytes (0: none, but what is at hand mapped) like what was refused? */
static inline bool flw_refusal_covers(const struct flw_refused_growth *refused, uint64_t bytes)
{
    return refused->is_refused && bytes >= refused->bytes;
}

/* The driver is not to be asked for it now. */
static inline bool flw_refusal_spares(struct flw_refused_growth *refused, uint64_t bytes)
{
    bool is_spared = flw_refusal_covers(refused, bytes) && refused->spared < refused->spares;
    refused->spared += is_spared;
    return is_spared;
}

/* The driver refused it. A growth that insisted does not lengthen the back-off of the others. */
static inline void flw_refusal_note(struct flw_refused_growth *refused, uint64_t bytes,
                                    bool is_insisted)
{
    bool is_again = flw_refusal_covers(refused, bytes);
    if (is_again && !is_insisted) {
        uint32_t spares = 2 * refused->spares + 1;
        refused->spares =
            spares < FLW_REFUSAL_SPARES_MOST ? spares : (uint32_t)FLW_REFUSAL_SPARES_MOST;
        refused->spared = 0;
    }
    refused->bytes = refused->is_refused && refused->bytes < bytes ? refused->bytes : bytes;
    refused->is_refused = true;
}

/* The driver gave it, or had no memory for it. */
static inline void flw_refusal_end(struct flw_refused_growth *refused, uint64_t bytes)
{
    if (flw_refusal_covers(refused, bytes)) {
        *refused = (struct flw_refused_growth){.is_refused = false};
    }
}

#endif

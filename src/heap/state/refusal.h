/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the record of a growth that the driver refused. Does not: call the driver.
 *
 * A refusal usually lasts (a permission, a kind of machine), and repeating it would cost every
 * request driver calls. So growths like the refused one back off: after the first refusal 0 of
 * them are skipped, then 1, 3, 7 and so on. A caller that would fail otherwise skips the
 * back-off; any other result ends the back-off. Only if something must be released to the driver first, and
 * may not be available again, does such a request take its turn with the others. */
#ifndef FLW_HEAP_STATE_REFUSAL_H
#define FLW_HEAP_STATE_REFUSAL_H

#include <stdbool.h>
#include <stdint.h>

#define FLW_REFUSAL_SPARES_MOST 1023

/* Zeros: nothing is recorded. Synchronization: the heap lock. */
struct flw_refused_growth {
    bool is_refused;
    uint64_t bytes;  /* of the smallest refused handle or segment; 0: mappings are refused too */
    uint32_t spared; /* growths skipped since */
    uint32_t spares; /* growths to skip */
};

/* True if the driver refused a request of this size or smaller. bytes == 0 means mapping existing
 * handles. */
static inline bool flw_refusal_covers(const struct flw_refused_growth *refused, uint64_t bytes)
{
    return refused->is_refused && bytes >= refused->bytes;
}

/* True if the driver should not be called now; counts a skipped growth. */
static inline bool flw_refusal_spares(struct flw_refused_growth *refused, uint64_t bytes)
{
    bool is_spared = flw_refusal_covers(refused, bytes) && refused->spared < refused->spares;
    refused->spared += is_spared;
    return is_spared;
}

/* Record a refusal. A growth that skips the back-off does not lengthen the back-off of the others. */
static inline void flw_refusal_note(struct flw_refused_growth *refused, uint64_t bytes,
                                    bool skips_backoff)
{
    bool is_again = flw_refusal_covers(refused, bytes);
    if (is_again && !skips_backoff) {
        uint32_t spares = 2 * refused->spares + 1;
        refused->spares =
            spares < FLW_REFUSAL_SPARES_MOST ? spares : (uint32_t)FLW_REFUSAL_SPARES_MOST;
        refused->spared = 0;
    }
    refused->bytes = refused->is_refused && refused->bytes < bytes ? refused->bytes : bytes;
    refused->is_refused = true;
}

/* End the back-off: the driver created memory, or had none. */
static inline void flw_refusal_end(struct flw_refused_growth *refused, uint64_t bytes)
{
    if (flw_refusal_covers(refused, bytes)) {
        *refused = (struct flw_refused_growth){.is_refused = false};
    }
}

#endif

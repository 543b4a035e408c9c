/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the shadow bytes of shadow.h.
 * Does not: report: the reader has the kernel and the argument. */
#include "simcuda/shadow.h"

#include <string.h>

#include "simcuda/check.h"

/* Find the part at the address; false as flw_storage_part, or the part has no shadow. */
static bool shadow_part(uint64_t address, uint64_t bytes, struct flw_part *part)
{
    return flw_storage_part(address, bytes, part) && part->physical != NULL &&
           part->physical->shadow.at != NULL;
}

void flw_shadow_set(uint64_t address, uint64_t bytes, unsigned char value)
{
    struct flw_part part;
    for (uint64_t done = 0; done < bytes && flw_storage_part(address + done, bytes - done, &part);
         done += part.bytes) {
        if (part.physical != NULL && part.physical->shadow.at != NULL) {
            flw_bytes_fill(&part.physical->shadow, part.offset, part.bytes, value, 1);
        }
    }
}

uint64_t flw_shadow_search(uint64_t address, uint64_t bytes, unsigned char value)
{
    struct flw_part part;
    for (uint64_t done = 0, size; done < bytes; done += size) {
        if (!flw_storage_part(address + done, bytes - done, &part)) {
            return bytes;
        }
        size = part.bytes;
        if (part.physical == NULL || part.physical->shadow.at == NULL) {
            continue;
        }
        const unsigned char *shadow = flw_bytes_read(&part.physical->shadow, part.offset, &size);
        const unsigned char *hit =
            memchr(shadow, value, flw_bytes_is_uniform(shadow) ? 1 : (size_t)size);
        if (hit != NULL) {
            return done + (uint64_t)(hit - shadow);
        }
    }
    return bytes;
}

/* The shadow of memory without one is FLW_SHADOW_HOST. */
void flw_shadow_copy(uint64_t to, uint64_t from, uint64_t bytes)
{
    struct flw_part part, source;
    for (uint64_t done = 0, size; done < bytes; done += size) {
        if (!flw_storage_part(to + done, bytes - done, &part)) {
            return;
        }
        size = part.bytes;
        bool has_shadow = shadow_part(from + done, size, &source);
        if (!has_shadow && flw_storage_to_read(from + done, &size) == NULL) {
            return;
        }
        if (part.physical == NULL || part.physical->shadow.at == NULL) {
            continue;
        }
        if (has_shadow) {
            size = source.bytes;
            const unsigned char *shadow =
                flw_bytes_read(&source.physical->shadow, source.offset, &size);
            flw_bytes_put(&part.physical->shadow, part.offset, shadow, size);
        } else {
            flw_bytes_fill(&part.physical->shadow, part.offset, size, FLW_SHADOW_HOST, 1);
        }
    }
}

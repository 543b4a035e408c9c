/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the shadow bytes of shadow.h.
 * Does not: report: the reader has the kernel and the argument. */
#include "simcuda/shadow.h"

#include <string.h>
#include <sys/mman.h>

#include "base/bits.h"
#include "simcuda/check.h"

bool flw_shadow_make(struct flw_physical *physical)
{
    void *shadow = mmap(NULL, physical->bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (shadow == MAP_FAILED) {
        return false;
    }
    physical->shadow = shadow; /* zero: FLW_SHADOW_UNWRITTEN */
    return true;
}

void flw_shadow_end(struct flw_physical *physical)
{
    if (physical->shadow != NULL) {
        munmap(physical->shadow, physical->bytes);
        physical->shadow = NULL;
    }
}

void flw_shadow_set(uint64_t address, uint64_t bytes, unsigned char value)
{
    while (bytes > 0) {
        uint64_t part = bytes;
        unsigned char *shadow = NULL;
        if (flw_storage_content(address, &part, &shadow) == NULL) {
            return;
        }
        if (shadow != NULL) {
            memset(shadow, value, part);
        }
        address += part;
        bytes -= part;
    }
}

uint64_t flw_shadow_search(uint64_t address, uint64_t bytes, unsigned char value)
{
    uint64_t offset = 0;
    while (offset < bytes) {
        uint64_t part = bytes - offset;
        unsigned char *shadow = NULL;
        if (flw_storage_content(address + offset, &part, &shadow) == NULL) {
            return bytes;
        }
        const unsigned char *hit = shadow != NULL ? memchr(shadow, value, part) : NULL;
        if (hit != NULL) {
            return offset + (uint64_t)(hit - shadow);
        }
        offset += part;
    }
    return bytes;
}

void flw_shadow_copy(uint64_t to, uint64_t from, uint64_t bytes)
{
    while (bytes > 0) {
        uint64_t part = bytes;
        unsigned char *shadow_to = NULL;
        unsigned char *shadow_from = NULL;
        if (flw_storage_content(to, &part, &shadow_to) == NULL ||
            (flw_storage_content(from, &part, &shadow_from) == NULL &&
             flw_storage_to_read(from, &part) == NULL)) {
            return;
        }
        if (shadow_to != NULL && shadow_from != NULL) {
            memmove(shadow_to, shadow_from, part);
        } else if (shadow_to != NULL) {
            memset(shadow_to, FLW_SHADOW_HOST, part);
        }
        to += part;
        from += part;
        bytes -= part;
    }
}

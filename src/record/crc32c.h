/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: CRC-32C (Castagnoli; polynomial 0x1EDC6F41, reflected, as iSCSI and ext4 use it).
 */
#ifndef FLW_RECORD_CRC32C_H
#define FLW_RECORD_CRC32C_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Effect of a byte, followed by 0 to 7 zero bytes, on a checksum of 0. */
struct flw_crc32c {
    bool has_instruction; /* the processor's own; otherwise the tables */
    uint32_t tables[8][256];
};

void flw_crc32c_init(struct flw_crc32c *crc);

/* Return the checksum of some bytes; `before`: that of the preceding bytes, or 0. */
uint32_t flw_crc32c_add(const struct flw_crc32c *crc, uint32_t before, const void *bytes,
                        size_t count);

#endif

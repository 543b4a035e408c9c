/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the tables and the walk, eight bytes a step.
 */
#include "record/crc32c.h"

#define POLYNOMIAL UINT32_C(0x82F63B78) /* reflected */

void flw_crc32c_init(struct flw_crc32c *crc)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t value = byte;
        for (int bit = 0; bit < 8; bit++) {
            value = (value >> 1) ^ ((value & 1) != 0 ? POLYNOMIAL : 0);
        }
        crc->tables[0][byte] = value;
    }
    for (int zeros = 1; zeros < 8; zeros++) {
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t value = crc->tables[zeros - 1][byte];
            crc->tables[zeros][byte] = (value >> 8) ^ crc->tables[0][value & 255];
        }
    }
}

uint32_t flw_crc32c_add(const struct flw_crc32c *crc, uint32_t before, const void *bytes,
                        size_t count)
{
    const unsigned char *at = bytes;
    uint32_t value = ~before;
    for (; count >= 8; count -= 8, at += 8) {
        value ^=
            (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
        value = crc->tables[7][value & 255] ^ crc->tables[6][value >> 8 & 255] ^
                crc->tables[5][value >> 16 & 255] ^ crc->tables[4][value >> 24] ^
                crc->tables[3][at[4]] ^ crc->tables[2][at[5]] ^ crc->tables[1][at[6]] ^
                crc->tables[0][at[7]];
    }
    for (; count > 0; count--, at++) {
        value = (value >> 8) ^ crc->tables[0][(value ^ *at) & 255];
    }
    return ~value;
}
